"""How far the vectors of a question can be trusted."""

from pathlib import Path

import pytest

from holdfast.embed import CachedEmbedder, Embedder, HashEmbedder, StaticEmbedder
from holdfast.embed.static import JointEmbedder, vector_weight
from support.embed_models import static_folder


@pytest.fixture
def static(tmp_path: Path) -> StaticEmbedder:
    """A small table of words."""
    return StaticEmbedder.from_folder(static_folder(tmp_path / "model"))


@pytest.mark.parametrize(
    ("question", "trust"),
    [
        ("Where is the cat?", 1.0),
        ("猫在哪里？", 0.0),
        ("cat 猫", 0.75),
        ("東京 is 首都", 1 / 3),
        ("8080?", 1.0),
        ("", 1.0),
    ],
)
def test_letters_of_scripts_without_spaces_take_their_share(
    static: StaticEmbedder, question: str, trust: float
) -> None:
    """A static table is trusted as far as the letters of the question are of scripts with spaces."""
    embedders: list[Embedder] = [static, JointEmbedder([static, static]), CachedEmbedder(static)]
    assert [vector_weight(embedder, question) for embedder in embedders] == pytest.approx([trust] * 3)


def test_other_models_are_trusted_with_every_script() -> None:
    """What is no table of words reads all scripts; and where nothing embeds there is nothing to doubt."""
    assert vector_weight(CachedEmbedder(HashEmbedder()), "猫在哪里？") == 1.0
    assert vector_weight(None, "猫在哪里？") == 1.0
