"""What a summary must hold."""

from __future__ import annotations

from holdfast.compaction.audit import Checklist, audit, find_requirements, repair
from holdfast.compaction.sections import HEADINGS, pack
from support.compaction import NAMES, REQUEST, compaction, conversation, good, planned
from support.conversations import reply, user

WANTED = Checklist(headings=HEADINGS, request=REQUEST, names=NAMES, language="Latin script")


def test_a_good_summary_lacks_nothing() -> None:
    """All headings, the request, the identifiers, in the right language."""
    misses = audit(good(), WANTED)
    assert not misses
    assert misses.total == 0
    assert str(misses) == ""


def test_each_thing_is_missed() -> None:
    """Headings count as whole lines, identifiers exactly, the request by its words."""
    text = good(request="something else", names=NAMES[1:]).replace("## Goal", "## Goals")
    misses = audit(text, WANTED)
    assert misses == Checklist(headings=("## Goal",), request=REQUEST, names=NAMES[:1])
    assert "the heading: ## Goal" in str(misses)
    assert f"exactly as written: {NAMES[0]}" in str(misses)
    assert REQUEST in str(misses)


def test_what_is_written_below_counts_for_lists() -> None:
    """Failures and files that stand below the summary are not missed."""
    want = Checklist(headings=(), failures=("pytest -q",), files=("a.py",))
    assert audit("words", want).total == 2
    assert "the failed call: pytest -q" in str(audit("words", want))
    assert "the changed file: a.py" in str(audit("words", want))
    assert not audit("words", want, below="- pytest -q: boom\na.py")


def test_the_language_of_the_conversation_is_wanted() -> None:
    """A Chinese conversation wants a Chinese summary; English headings in it are fine."""
    want = Checklist(headings=(), language="Chinese")
    assert audit("The signature check was fixed.", want).language == "Chinese"
    assert not audit("## Goal\n修复了签名验证并通过了测试，端口仍是 8443。", want)
    assert str(audit("The signature check was fixed.", want)) == "- it must be written in Chinese"
    english = Checklist(headings=(), language="Latin script")
    assert (
        str(audit("修复了签名验证并通过了测试", english)) == "- it must be written in the language of the conversation"
    )


def test_a_short_request_is_held_by_its_words() -> None:
    """Half of the words are enough; a request without words cannot be missed."""
    assert not audit(
        "the webhook signature in verify",
        Checklist(headings=(), request="fix webhook signature verify"),
    )
    assert audit("ducks", Checklist(headings=(), request="fix webhook")).request
    assert not audit("ducks", Checklist(headings=(), request="???"))


def test_wanted_is_what_the_recent_turns_hold() -> None:
    """The newest identifiers, the failed calls, the changed files, the user's language."""
    want = find_requirements(planned([*conversation(), user("go on with it please")], keep=10), settings=compaction())
    assert set(NAMES) <= set(want.names)
    assert len(want.names) <= 12
    assert want.failures == ("pytest -q tests/hooks --maxfail=1",)
    assert want.files == ("src/hooks/verify.py",)
    assert want.language == "Latin script"


def test_identifiers_are_not_required_if_the_policy_is_off() -> None:
    """`identifier_policy = "off"` asks for none."""
    assert find_requirements(planned(conversation()), settings=compaction(identifier_policy="off")).names == ()


def test_the_assistants_language_counts_if_the_user_writes_nothing() -> None:
    """An agent that works alone still has a language; one that says nothing has none."""
    messages = [
        user("go"),
        *[reply(f"我先检查第{number}个签名验证模块，然后修复它。" * 20) for number in range(9)],
        user("1"),
    ]
    assert find_requirements(planned(messages, keep=10), settings=compaction()).language == "Chinese"
    silent = [user("1"), *[reply("12345 " * 200) for _ in range(9)], user("1")]
    assert find_requirements(planned(silent, keep=10), settings=compaction()).language is None


def test_what_is_missing_is_put_in_by_rule() -> None:
    """The request comes first, sections and identifiers behind, and then nothing is missing."""
    made = planned(conversation(), keep=60)
    want = find_requirements(made, settings=compaction())
    for text in ("Only one sentence.", good(request="ducks", names=()), "## Goal\nSomething."):
        sections = repair(text, audit(text, want), plan=made)
        mended_text = pack(sections, limit=4_000)
        left = audit(mended_text, want)
        assert left == Checklist(failures=want.failures)
        assert mended_text.startswith(f"## Last Request\n{REQUEST}")
        assert mended_text.count(HEADINGS[0]) == 1


def test_a_summary_in_another_language_gets_the_users_own_words() -> None:
    """What cannot be put right by rule is at least preceded by the request as it was said."""
    request = "请修复 src/hooks/verify.py 里的签名验证"
    made = planned(
        [user("帮我看看网关的日志，然后汇报问题"), reply("好的。" * 400), user(request), reply("在看。")], keep=10
    )
    misses = audit(good(request=request, names=()), find_requirements(made, settings=compaction()))
    assert misses.language == "Chinese"
    assert pack(repair(good(names=()), misses, plan=made), limit=900).startswith(f"## Last Request\n{request}")


def test_a_heading_without_content_says_none() -> None:
    """A missing heading is there in the end, even if nothing is known about it."""
    made = planned([user("x " * 400), reply("y " * 400), user("z")], keep=10)
    misses = audit(good().replace("## Key Decisions", "## Decided"), Checklist(headings=HEADINGS))
    assert "## Key Decisions\n(none)" in pack(repair(good(), misses, plan=made), limit=900)
