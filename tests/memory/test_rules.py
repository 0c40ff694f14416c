"""Facts by rule: what counts as one, and what only looks like one."""

from __future__ import annotations

import pytest

from fact_talk import rows, said
from holdfast.memory.block import Fact, render
from holdfast.memory.draft import Draft
from holdfast.memory.rules import claim_in, drafts, sentence_of, value_of
from talk import MARKS


def only(text: str, *, name: str | None = None) -> Draft:
    """The one fact that a message of the user states."""
    (found,) = drafts([said(1, text, name=name)])
    return found


@pytest.mark.parametrize(
    ("text", "subject", "slot", "value"),
    [
        ("The billing API listens on port 8080.", "The billing API", "port", "8080"),
        ("The port of the billing API is 8080.", "The the billing API", "port", "8080"),
        ("Python version: 3.12", "Python", "version", "3.12"),
        ("We run Terraform 1.5.7.", "Terraform", "version", "1.5.7"),
        ("Alice owns the search index.", "the search index", "owner", "Alice"),
        ("The search index was handed over to Miguel.", "The search index", "owner", "Miguel"),
        ("We use Celery for background jobs.", "background jobs", "choice", "Celery"),
        ("We use PostgreSQL as the database.", "the", "database", "PostgreSQL"),
        ("I like my reports as Markdown.", "my reports", "choice", "Markdown"),
        ("We deploy with Nomad.", "deploy", "choice", "Nomad"),
        ("The audit logs are stored in /var/log/audit.", "The audit logs", "place", "/var/log/audit"),
        ("You can find the docs at https://docs.acme.test/v1.", "the docs", "url", "https://docs.acme.test/v1"),
        ("Our standup is at 10:15.", "Our standup", "date", "10:15"),
        ("The tax return is due on May 31.", "The tax return", "deadline", "May 31"),
        ("MAX_RETRIES=5", "MAX_RETRIES", "value", "5"),
        ("I raised MAX_RETRIES to 7.", "MAX_RETRIES", "value", "7"),
        ("I live in Hamburg.", "user", "home", "Hamburg"),
        ("The refund flow is in progress.", "The refund flow", "status", "in progress"),
        ("支付服务的端口是 8080。", "支付服务", "port", "8080"),
        ("我们把支付服务的端口从 8080 改为 9090。", "支付服务", "port", "9090"),
        ("网关换到 8100 端口了。", "网关", "port", "8100"),
        ("移动端由陈静负责。", "移动端", "owner", "陈静"),
        ("周会是每周二下午。", "周会", "date", "每周二下午"),
        ("在预发环境，网关的端口是 7001。", "在预发环境网关", "port", "7001"),
        ("我住在杭州。", "user", "home", "杭州"),
        ("APIのポートを8080から9090に変更しました。", "API", "port", "9090"),
        ("API 포트는 8080입니다.", "API", "port", "8080"),
    ],
)
def test_a_property_is_read(text: str, subject: str, slot: str, value: str) -> None:
    """Plain sentences become a subject, a slot and a value, in four languages."""
    found = only(text)
    assert (found.subject, found.slot, found.value) == (subject, slot, value)
    assert found.content == found.quote == text
    assert found.evidence == (1,)


@pytest.mark.parametrize(
    "text",
    [
        "Does the API listen on port 8080?",
        "If the API listened on port 8080, we would need a rule.",
        "The API might listen on port 8080.",
        "We plan to move the API to port 8080.",
        "According to the docs the port of the API is 8080.",
        'The tutorial says "the API listens on port 8080".',
        "> The port of the API is 8080.",
        "```\nThe port of the API is 8080.\n```",
        "The API does not listen on port 8080.",
        "Back in 2019 the port of the API was 80.",
        "The API used to listen on port 80.",
        "2026-01-02 10:00:01 INFO The port of the API is 8080.",
        "res.json({ status: 'ok', port: 8080 });",
        "Time is always critical.",
        "The language is strong and direct.",
        "It is on port 8080.",
        "ok",
        "如果端口是 8080 就要改防火墙。",
        "网关的端口不是 8080。",
        "网关的端口以前是 8080。",
        "听说网关的端口是 8080。",
        "网关的端口是 8080 吗？",
        "もしポートが8080なら教えて。",
        "NO_REPLY",
    ],
)
def test_what_is_not_said_to_be_so_is_no_fact(text: str) -> None:
    """Questions, conditions, plans, quotations, denials, history, code and noise state nothing."""
    assert drafts(rows(text)) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Remember that the customer pays late.", "decision"),
        ("We decided to drop support for Windows 7.", "decision"),
        ("Always run the linter before you commit.", "decision"),
        ("Let's go with the second layout.", "decision"),
        ("I'm allergic to peanuts.", "decision"),
        ("I've deployed the new search to production.", "task_state"),
        ("The build failed because of the lockfile, fixed it by pinning npm.", "issue"),
        ("我们决定不再支持旧版浏览器。", "decision"),
        ("修复方法是清空缓存。", "issue"),
    ],
)
def test_a_remark_is_kept_without_a_slot(text: str, kind: str) -> None:
    """Decisions, rules, preferences, finished work and causes are kept as they were said, and replace nothing."""
    found = only(text)
    assert (found.type, found.slot, found.subject) == (kind, "", "")


@pytest.mark.parametrize("text", ["Let's stick with that.", "Never say never!", "I've decided.", "We decided?"])
def test_a_remark_that_says_nothing_is_left_out(text: str) -> None:
    """What points at something else, or at nothing, is no fact."""
    assert drafts(rows(text)) == []


def test_a_task_is_open_until_it_is_done() -> None:
    """The same task, unticked and ticked, is one subject with two states."""
    todo, done, note = drafts(rows("- [ ] write the migration", "- [x] write the migration", "TODO: add an index"))
    assert (todo.subject, todo.slot, todo.value) == ("write the migration", "status", "open")
    assert (done.subject, done.value) == ("write the migration", "done")
    assert note.type == "task_state"
    assert value_of("- [x] write the migration") == "done"


def test_an_assistant_states_only_what_it_changed() -> None:
    """Explanations of the assistant are no facts; that it changed one value into another is."""
    talk = [
        said(1, "The port of Redis is 6379.", role="assistant"),
        said(2, "I changed the port of Redis from 6379 to 6380.", role="assistant"),
        said(3, "[ ] Prefer not to say", role="assistant"),
    ]
    (found,) = drafts(talk)
    assert (found.value, found.old, found.evidence) == ("6380", "6379", (2,))


def test_recalled_text_is_never_extracted_from() -> None:
    """What memory put into a message itself is not learned again."""
    block = render([Fact(type="config", text="The port of the API is 8080.")], [], MARKS)
    assert drafts(rows(block), MARKS) == []
    (found,) = drafts(rows(f"{block}\n\nThe port of the API is 9090."), MARKS)
    assert found.value == "9090"


def test_a_secret_is_never_a_fact() -> None:
    """Neither a secret nor its mask is kept."""
    assert drafts(rows("Remember that the token is ghp_" + "a1B2" * 9 + ".", "Remember that: [REDACTED:token]")) == []


def test_a_speaker_has_preferences_of_their_own() -> None:
    """What somebody says about themselves is told apart by their name."""
    ours, theirs = only("I prefer tabs for indentation."), only("I prefer spaces for indentation.", name="Robin")
    assert (ours.subject, theirs.subject) == ("indentation", "Robin indentation")


def test_of_a_pasted_text_only_the_words_around_it_count() -> None:
    """Somebody else's long text is not what the user says; what stands before and after it is."""
    pasted = "\n".join(f"The port of server{number} is {number + 2000}." for number in range(300))
    found = drafts(rows(f"Remember that this is old.\n{pasted}\nThe port of the API is 8080."))
    assert len(found) < 60
    assert {"Remember that this is old.", "The port of the API is 8080."} <= {draft.content for draft in found}


def test_what_is_over_may_be_named_beside() -> None:
    """A contrast does not make a denial of the sentence."""
    for text in ("The API is on port 9090, not 8080.", "The port of the API is 9090 (it was 8080 before)."):
        claim = claim_in(text)
        assert claim is not None
        assert claim.value == "9090"


def test_a_quote_is_seen_in_its_sentence() -> None:
    """A quote that leaves out the `if` is read with it."""
    text = "Fine. If the port is 8080, tell me."
    assert sentence_of("the port is 8080", text) == "If the port is 8080, tell me."
    assert sentence_of("nowhere", text) == "nowhere"
