"""Several static models as one."""

from pathlib import Path

import numpy as np
import pytest

from holdfast.embed.static import JointEmbedder, StaticEmbedder
from support.embed_models import VECTORS, static_folder


@pytest.fixture
def two(tmp_path: Path) -> tuple[StaticEmbedder, StaticEmbedder]:
    """Two models of the same words that differ in what they think of them."""
    first = static_folder(tmp_path / "first")
    second = static_folder(tmp_path / "second", VECTORS[::-1].copy())
    return StaticEmbedder.from_folder(first), StaticEmbedder.from_folder(second)


def test_a_cosine_is_the_mean_of_both(two: tuple[StaticEmbedder, StaticEmbedder]) -> None:
    """What the two models say counts the same."""
    messages = ["cat", "revenue quarter"]
    joint = JointEmbedder(two).embed(messages, kind="passage")
    apart = [one.embed(messages, kind="passage") for one in two]
    assert np.allclose(np.linalg.norm(joint, axis=1), 1, atol=1e-6)
    assert joint[0] @ joint[1] == pytest.approx(np.mean([rows[0] @ rows[1] for rows in apart]), abs=1e-6)


def test_it_is_a_space_of_its_own(two: tuple[StaticEmbedder, StaticEmbedder]) -> None:
    """Its vectors meet those of neither model, nor those of the two the other way round."""
    space = JointEmbedder(two).space
    assert space.name == "first+second"
    assert space.dimension == 6
    assert len({space, JointEmbedder(two[::-1]).space, *(one.space for one in two)}) == 4


def test_a_text_without_content_is_zeros(two: tuple[StaticEmbedder, StaticEmbedder]) -> None:
    """Nothing is like nothing; and no text gives no rows."""
    joint = JointEmbedder(two)
    assert not joint.embed([""], kind="query").any()
    assert joint.embed([], kind="query").shape == (0, 6)


def test_it_needs_a_model() -> None:
    """Nothing cannot embed."""
    with pytest.raises(ValueError, match="needs a model"):
        JointEmbedder([])
