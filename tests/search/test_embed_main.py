"""`python -m holdfast.search.embed` measures the embedder that is taken."""

import json
from pathlib import Path

import pytest

from embed_models import static_folder
from holdfast.search.embed.__main__ import main


def test_a_text_gives_the_speed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A text is cut into passages; the embedder, its speed and its latency are printed."""
    (tmp_path / "text.md").write_text("cat dog " * 300)
    assert main([str(tmp_path / "text.md"), "--provider", "hash"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "hash is taken: 384 dimensions"
    assert lines[1].startswith("opened in ")
    assert lines[2].endswith("passages a second (3 of 800 characters)")
    assert lines[3].endswith(" ms a question")
    assert len(lines) == 4


def test_questions_give_the_recall(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Questions in the form of SQuAD say how often the right paragraph is in front."""
    paragraphs = [
        {"context": "kitten", "qas": [{"question": "cat"}, {"question": "猫"}]},
        {"context": "quarter", "qas": [{"question": "revenue"}]},
    ]
    (tmp_path / "dev.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    assert main([str(tmp_path / "dev.json"), "--model", str(static_folder(tmp_path / "tiny"))]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "R@5 1.000, R@10 1.000 (3 questions)"


def test_no_embedder_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an embedder the reasons are printed, and the command fails."""
    assert main([str(tmp_path / "text.md"), "--provider", "none"]) == 1
    assert "search goes by words alone" in capsys.readouterr().out
