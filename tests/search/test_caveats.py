"""What a text says against a part of it is quoted with that part."""

from __future__ import annotations

import pytest

from holdfast.search.caveats import Caveats, find_caveats

FILLER = "The garden furniture arrived late, and the neighbours complained about the weather. " * 6


def find(text: str, part: str) -> Caveats:
    """Find what a text says against a part of it."""
    start = text.index(part)
    return find_caveats(text, start, start + len(part))


@pytest.mark.parametrize(
    ("text", "part", "before"),
    [
        (
            f"# Proposal (rejected on May 3)\n\n{FILLER}\n\n## Timeouts\n\nThe timeout is 90 seconds.\n",
            "The timeout is 90 seconds.",
            "# Proposal (rejected on May 3)",
        ),
        (
            f"Prices before 2020, no longer valid:\n\n{FILLER}\nsku-1280 costs 1.90.",
            "sku-1280 costs 1.90.",
            "Prices before 2020, no longer valid:",
        ),
        (
            f"The following claims from the old wiki are all wrong. {FILLER}The proxy uses port 7443.",
            "The proxy uses port 7443.",
            "The following claims from the old wiki are all wrong.",
        ),
        (
            "下面这几条都是错的，请忽略。会员可以免运费。退货期限是30天。",
            "退货期限是30天。",
            "下面这几条都是错的，请忽略。",
        ),
        (f"## 旧方案（已作废）\n{FILLER}\n超时是90秒。", "超时是90秒。", "## 旧方案（已作废）"),
    ],
)
def test_what_is_said_before_a_part_is_found(text: str, part: str, before: str) -> None:
    """In a heading around it, or in a sentence about what follows."""
    assert find(text, part) == Caveats(before=before)


def test_what_is_said_after_a_part_is_found() -> None:
    """In a sentence about what stands above."""
    text = f"Voltage 1: 700. Voltage 2: 655. {FILLER}All of these values are invalid. {FILLER}"
    assert find(text, "Voltage 1: 700.").after == "All of these values are invalid."
    assert (
        find(text, "Voltage 1: 700.").add_to("Voltage 1: 700.")
        == "Voltage 1: 700.\n…\nAll of these values are invalid."
    )


@pytest.mark.parametrize(
    "text",
    [
        f"# Decided\n\n{FILLER}\n\nThe timeout is 90 seconds.",
        f"# Rejected\n\n{FILLER}\n\n# Accepted\n\nThe timeout is 90 seconds.",
        f"Rejected:\n- MySQL\n- Oracle\n\n{FILLER}The timeout is 90 seconds.",
        f"```\n# deprecated flag, keep\nrun()\n```\n{FILLER}The timeout is 90 seconds.",
        f"# {'obsolete ' * 40}\n{FILLER}The timeout is 90 seconds.",
        f"The following is not wrong. {FILLER}The timeout is 90 seconds.",
        f"The password was wrong. {FILLER}The timeout is 90 seconds.",
        f"The timeout is 90 seconds. {FILLER}The following claims are wrong. {FILLER}",
        f"The following claims are wrong. {FILLER * 3}The timeout is 90 seconds.",
    ],
)
def test_what_is_said_about_something_else_is_left_out(text: str) -> None:
    """Another section, a sentence about nothing near it, or one that is far away."""
    assert find(text, "The timeout is 90 seconds.") == Caveats()
