"""What of a long output is kept."""

from __future__ import annotations

import pytest

from holdfast.context.edits import GAP
from holdfast.context.prune import excerpt
from support.cases import each

LINES = [f"[{number:04}] compiled module {number} in 12 ms" for number in range(800)]


def shown(text: str, *, first: int = 400, last: int = 400, limit: int = 1_500) -> str:
    """What is left of a text."""
    return GAP.join(text[start:stop] for start, stop in excerpt(text, first=first, last=last, limit=limit))


def log(*told: tuple[int, str]) -> str:
    """A long log with these lines in it."""
    lines = list(LINES)
    for place, line in told:
        lines[place] = line
    return "\n".join(lines)


class TestEnds:
    """Beginning and end."""

    def test_a_short_text_is_kept_whole(self) -> None:
        """Nothing is gained by cutting it."""
        assert shown("short") == "short"
        assert excerpt("", first=1, last=1, limit=0) == ((0, 0),)

    def test_beginning_and_end_stay_in_whole_lines(self) -> None:
        """Whatever goes, goes from the middle."""
        kept = shown(log())
        first, last = kept.split(GAP)
        assert first.splitlines() == LINES[: len(first.splitlines())]
        assert last.splitlines() == LINES[-len(last.splitlines()) :]

    def test_an_endless_line_is_cut_all_the_same(self) -> None:
        """Between two characters."""
        kept = shown("x" * 5_000 + "👩‍👩‍👧‍👦" * 300, first=100, last=100, limit=300)
        assert kept == "x" * 100 + GAP + "👩‍👩‍👧‍👦" * (100 // len("👩‍👩‍👧‍👦"))

    @pytest.mark.parametrize("limit", [0, 1, 8, 50, 300])
    def test_the_limit_holds_whatever_the_settings_ask_for(self, limit: int) -> None:
        """Both ends give way alike."""
        assert len(shown(log(), first=1_000, last=3_000, limit=limit)) <= limit


class TestTrouble:
    """What went wrong in between."""

    @each(
        "line",
        [
            "ERROR: connection refused",
            "ValueError: invalid literal",
            "Traceback (most recent call last):",
            "thread 'main' panicked at src/main.rs:4",
            "3 tests failed",
            "错误：证书已过期",
            "构建失败",
            "抛出异常",
            "エラーが発生しました",
            "오류: 연결이 거부되었습니다",
            "Ошибка: нет доступа",
            "Erreur fatale",
            "Fehler beim Lesen",
            "Process exited with code 137",
            "进程已结束，退出码 2",
        ],
    )
    def test_a_line_of_trouble_in_the_middle_stays(self, line: str) -> None:
        """In many languages."""
        kept = shown(log((400, line)))
        assert line in kept.splitlines()
        assert len(kept) <= 1_500

    def test_the_status_counts_most_then_the_first_and_the_last_trouble(self) -> None:
        """When there is not room for all."""
        received = [(place, f"error number {place} " + "x" * 100) for place in range(100, 700, 10)]
        kept = shown(log(*received, (650, "exit code: 1")), limit=1_200).splitlines()
        assert "exit code: 1" in kept
        assert any(line.startswith("error number 100 ") for line in kept)
        assert any(line.startswith("error number 690 ") for line in kept)
        assert not any(line.startswith("error number 300 ") for line in kept)

    def test_neighbouring_lines_stay_together(self) -> None:
        """Without a gap between them."""
        assert "error: one\nerror: two" in shown(log((400, "error: one"), (401, "error: two")))

    def test_of_an_endless_line_the_part_around_the_trouble_stays(self) -> None:
        """And no more of it."""
        text = "a" * 4_000 + "\n" + "b" * 3_000 + " fatal: here " + "b" * 3_000 + "\n" + "c" * 4_000
        kept = shown(text)
        assert "fatal: here" in kept
        assert kept.count("b") < 300

    def test_letters_that_grow_when_lowered_do_no_harm(self) -> None:
        """Places stay true."""
        kept = shown("İ" * 2_000 + "\nerror: x\n" + "İ" * 2_000)
        assert "error: x" in kept.splitlines()

    def test_the_text_is_read_in_linear_time(self) -> None:
        """Also where every line is trouble."""
        kept = shown("error\n" * 200_000)
        assert len(kept) <= 1_500
