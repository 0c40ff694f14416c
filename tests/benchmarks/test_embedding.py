"""The embedding benchmark: speed on any text, recall on questions."""

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.__main__ import bench
from support.embed_models import static_folder


def test_a_text_gives_the_speed(tmp_path: Path) -> None:
    """A text is cut into passages; the embedder, its speed and its latency are reported."""
    (tmp_path / "text.md").write_text("cat dog " * 300)
    result = CliRunner().invoke(bench, ["embedding", str(tmp_path / "text.md"), "--provider", "hash", "--json"])
    figures = json.loads(result.stdout)
    assert figures["embedder"] == ["hash is used: 384 dimensions"]
    assert figures["passages"] == 3
    assert figures["passages_per_second"] > 0 < figures["query_ms"]
    assert "r5" not in figures


def test_questions_give_the_recall(tmp_path: Path) -> None:
    """Questions in the format of SQuAD give how often the right paragraph is among the first."""
    paragraphs = [
        {"context": "kitten", "qas": [{"question": "cat"}, {"question": "猫"}]},
        {"context": "quarter", "qas": [{"question": "revenue"}]},
    ]
    (tmp_path / "dev.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    model = str(static_folder(tmp_path / "tiny"))
    result = CliRunner().invoke(bench, ["embedding", str(tmp_path / "dev.json"), "--model", model])
    assert result.exit_code == 0
    assert "1.000" in result.stdout


def test_no_embedder_is_an_error(tmp_path: Path) -> None:
    """Without an embedder the reasons are the error."""
    (tmp_path / "text.md").write_text("cat")
    result = CliRunner().invoke(bench, ["embedding", str(tmp_path / "text.md"), "--provider", "none"])
    assert result.exit_code != 0
    assert "search uses words alone" in str(result.exception)
