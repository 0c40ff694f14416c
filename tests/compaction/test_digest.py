"""A summary that needs no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from holdfast import Engine
from holdfast.compaction import sections
from holdfast.compaction.digest import make_digest, outline, split_turns
from holdfast.compaction.sections import HEADINGS, parse
from holdfast.compaction.tool_calls import find_activity
from holdfast.context.edits import Block
from holdfast.messages import Message
from holdfast.settings import Embedding, Settings
from holdfast.tokens import count_text
from support.compaction import REQUEST, Summariser, conversation, good, planned, summed_up
from support.conversations import answer, call, items, reply, results, user

CHINESE = [
    user("帮我修复 src/hooks/verify.py 里的签名验证，不要改测试文件。"),
    reply("我先看代码。", call("a", "read", path="src/hooks/verify.py")),
    results(answer("a", "def verify(): ...")),
    reply("原因是比较了错误的请求头。我们决定改用原始请求体来计算签名。"),
    user("好的，端口改成 8443，然后继续"),
    reply("", call("b", "bash", command="pytest -q --maxfail=1 测试/")),
    results(answer("b", "断言错误：签名不匹配\n退出码：1", is_error=True)),
    reply("还需要更新部署脚本 deploy/prod.sh。"),
]


def made(messages: Sequence[Message], *, limit: int = 2_000, previous: str = "", request: str = "") -> str:
    """The digest of messages."""
    return make_digest(messages, limit=limit, activity=find_activity(messages), previous=previous, request=request)


def test_the_last_request_is_first() -> None:
    """Whatever else there is, a digest begins with what the user asked for last, word for word."""
    assert made(conversation()[1:]).startswith(f"## Last Request\n{REQUEST}\n")


def test_a_short_request_is_quoted_with_the_one_it_continues() -> None:
    """To continue means nothing without the request before it."""
    lines = parse(made([user(REQUEST), reply("ok"), user("go on")]))[HEADINGS[0]]
    assert lines == ["go on", f"(after: {REQUEST})"]
    assert parse(made([user("hi")]))[HEADINGS[0]] == ["hi"]


def test_decisions_steps_and_open_tasks_are_in_the_digest() -> None:
    """What was decided, done, planned and left open has its heading."""
    todos = [{"content": "ship it", "status": "pending"}, {"content": "test it", "status": "in_progress"}]
    messages = [
        user("Never push to main. We decided to use Redis."),
        reply("", call("t", "TodoWrite", todos=todos)),
        results(answer("t")),
        reply("", call("s", "bash", command="npm run dev", run_in_background=True)),
        results(answer("s")),
        reply("Next step: write the docs.", call("w", "bash", command="make wait")),
    ]
    found = parse(made(messages))
    assert found["## Constraints & Preferences"] == ["- Never push to main."]
    assert "- We decided to use Redis." in found["## Key Decisions"]
    assert "- test it" in found["### In Progress"]
    assert any("npm run dev" in line for line in found["### In Progress"])
    assert any("make wait" in line for line in found["### In Progress"])
    assert found["## Next Steps"] == ["- ship it", "- Next step: write the docs."]
    assert found["### In Progress"][0].startswith("- not finished: Never push to main.")
    assert "### Done" not in found


def test_a_chinese_digest_is_as_good() -> None:
    """Requests, rules, decisions, commands, identifiers and next steps are found in Chinese."""
    found = parse(made(CHINESE))
    assert found["## Last Request"][0] == "好的，端口改成 8443，然后继续"
    assert any("不要改测试文件" in line for line in found["## Constraints & Preferences"])
    assert any("决定改用原始请求体" in line for line in found["## Key Decisions"])
    assert any("deploy/prod.sh" in line for line in found["## Next Steps"])
    assert {"- src/hooks/verify.py", "- deploy/prod.sh"} <= set(found["### Exact Identifiers"])
    failure = find_activity(CHINESE).failures[0]
    assert failure.status == 1
    assert "签名不匹配" in failure.text


def test_a_digest_continues_the_previous_one() -> None:
    """Goal, rules, decisions and commands of the summary before stay, and are not told twice."""
    first = made([user("Build the gateway and never log tokens. We decided to use Go."), reply("Done.")])
    second = parse(made([user("Now add tests. We decided to use Go."), reply("Added.")], previous=first))
    assert second["## Goal"] == parse(first)["## Goal"]
    assert "- Build the gateway and never log tokens." in second["## Constraints & Preferences"]
    assert second["## Key Decisions"].count("- We decided to use Go.") == 1
    assert len(second["### Done"]) == 2
    assert second["## Last Request"] == ["Now add tests. We decided to use Go."]


def test_a_summary_in_another_form_is_carried_on() -> None:
    """What stands under no heading of ours is kept as it is."""
    found = parse(made([user("and now?")], previous="All of it was about ducks.\n### Birds\nduck"))
    assert found["### Earlier"] == ["All of it was about ducks.", "duck"]


def test_twenty_digests_in_a_row_stay_within_the_cap() -> None:
    """However often a digest is made of a digest, it fits and begins with the newest request."""
    text = ""
    for number in range(20):
        text = made(
            [user(f"Task {number}: change src/file{number}.py"), reply(f"Done {number}.")], limit=600, previous=text
        )
        assert count_text(text) <= 600
        assert text.startswith(f"## Last Request\nTask {number}:")
    assert "Task 18" in text
    assert "## Goal\nTask 0" in text


def test_turns_end_with_the_last_answer() -> None:
    """A turn is a request and its final words; what comes before the first request belongs to none."""
    found = split_turns([reply("hello"), user("a"), reply("first"), reply("second"), user("b")])
    assert [(turn.request, turn.answer) for turn in found] == [("", "hello"), ("a", "second"), ("b", "")]


def test_nothing_makes_an_empty_digest() -> None:
    """Of no messages nothing is said."""
    assert made([]) == ""
    assert set(outline([], activity=find_activity([]))) == set(HEADINGS)


def test_without_a_model_the_digest_is_the_summary() -> None:
    """It holds the request, the failure, the files and the archive numbers, and takes less than it stands for."""
    made_plan = planned(conversation(), keep=60)
    summary = summed_up(made_plan, None)
    assert summary.rung == "digest"
    assert summary.calls == 0
    assert summary.tokens < made_plan.replaced
    assert summary.text.startswith("## Last Request\n")
    assert "AssertionError: bad signature" in summary.text
    assert "<modified-files>\nsrc/hooks/verify.py\n</modified-files>" in summary.text
    assert f"Archive: messages 2–{made_plan.ids[-1]}" in summary.text
    assert summary.details == {
        "readFiles": [f"src/part{number}.py" for number in sorted(range(30), key=str)],
        "modifiedFiles": ["src/hooks/verify.py"],
        "toolFailures": [{"toolName": "bash", "summary": str(made_plan.activity.failures[0])}],
    }


def test_the_last_turns_are_repeated_word_for_word() -> None:
    """As many turns as the settings say stand below the summary, in their own words."""
    made_plan = planned(conversation(), keep=60)
    assert "- User: Look into part 29 of the gateway." in summed_up(made_plan, None).text


def test_many_failures_and_files_are_counted() -> None:
    """Of many the newest failures and the first files are told, and how many more there are."""
    messages: list[Message] = []
    for number in range(80):
        messages += [reply("", call(f"c{number}", "write", path=f"f{number:02}.py")), results(answer(f"c{number}"))]
        messages += [
            reply("", call(f"d{number}", "bash", command=f"make step{number}")),
            results(answer(f"d{number}", f"boom {number}", is_error=True)),
        ]
    text = summed_up(planned([user(REQUEST), *messages, user("so?")], keep=10), None).text
    assert "- …and 72 earlier ones" in text
    assert "make step79" in text
    assert "make step71:" not in text
    assert "and 20 more…" in text


def test_what_was_open_stays_open_and_calls_that_wait_do_not() -> None:
    """Open items of the summary before are carried, its next steps until something is answered, its calls never."""
    waiting = "### In Progress\n- [ ] port the tests\n- called, not answered: x()"
    before = f"{waiting}\n### Blocked\n- no key\n## Next Steps\n1. ship"
    found = parse(made([user("and now the other thing please"), reply("ok")], previous=before))
    assert found["### In Progress"] == ["- [ ] port the tests", "- no key"]
    assert found["## Next Steps"] == ["- Wait for the next request"]
    assert parse(made([user("and now the other thing please")], previous=before))["## Next Steps"] == ["1. ship"]


def test_failures_are_listed_until_their_command_succeeds() -> None:
    """A failure of the summary before stays in the next one, unless the same command went through meanwhile."""
    lines = "- …and 3 earlier ones\n- make deploy [exit 2]: no key\n- make test: boom"
    before = f"## Tool Failures\n{lines}\n\n<read-files>\na.py\n</read-files>"
    went_well = [reply("", call("m", "bash", command="make test")), results(answer("m", "fine"))]
    messages = [user(REQUEST), reply("Looking. " * 200), *went_well, user("so?")]
    text = summed_up(planned(messages, keep=10, previous=before), None).text
    assert parse(sections.without_lists(text))["## Tool Failures"] == ["- make deploy [exit 2]: no key"]
    assert "<read-files>\na.py\n</read-files>" in text


def test_recalled_text_is_never_summarised() -> None:
    """What was recalled next to a message is no part of history: neither the digest nor a model sees it."""
    window = [replace(item, block=Block("SECRET RECALL", 9)) for item in items(conversation(5))]
    made_plan = planned(window, keep=30)
    model = Summariser(lambda _number, _prompt: good())
    assert "SECRET RECALL" not in summed_up(made_plan, None).text
    assert "SECRET RECALL" not in summed_up(made_plan, model).text
    assert all("SECRET RECALL" not in message.text for prompt in model.prompts for message in prompt.messages)


def test_a_request_without_a_final_reply_is_not_done() -> None:
    """It is in progress and the next step; once it is answered it is done, and the next step is to wait."""
    messages = [user("Rotate the signing keys of the gateway."), reply("Looking.", call("a", "bash", command="ls"))]
    found = parse(made([user("列出所有需要轮换的密钥"), reply("一共三个密钥。"), *messages, results(answer("a"))]))
    assert found["### Done"] == ["- 列出所有需要轮换的密钥 → 一共三个密钥。"]
    assert found["### In Progress"] == ["- not finished: Rotate the signing keys of the gateway. → Looking."]
    assert found["## Next Steps"] == ["- Finish the last request: Rotate the signing keys of the gateway."]
    first = made([*messages, results(answer("a"))])
    second = parse(made([reply("All keys are rotated.")], previous=first))
    assert second["### Done"] == ["- (going on) → All keys are rotated."]
    assert "### In Progress" not in second
    assert second["## Next Steps"] == ["- Wait for the next request"]


def test_a_request_that_is_finished_in_what_is_kept_is_done() -> None:
    """The cut may be within a turn: the reply that ends it stays in the window, and nothing is asked for again."""
    messages = [user("Check the tide tables."), reply("", call("a", "bash", command="ls")), results(answer("a"))]
    kept = [reply("The tables are right."), user("现在检查港口地图"), reply("地图也正确。")]
    activity = find_activity(messages)
    first = outline(messages, activity=activity, request="现在检查港口地图", kept=kept)
    text = sections.pack(chain.from_iterable(first.values()), limit=2_000, count=count_text)
    found = parse(text)
    assert found["### Done"] == ["- Check the tide tables. → The tables are right."]
    assert "### In Progress" not in found
    assert found["## Next Steps"] == ["- Wait for the next request"]
    later = parse(made(kept, previous=text))
    assert later["### Done"] == [*found["### Done"], "- 现在检查港口地图 → 地图也正确。"]


def test_calls_in_a_tool_loop_belong_to_the_request_that_is_kept(tmp_path: Path) -> None:
    """The request of the loop stays in the window, and the one before it, which is answered, is done."""
    output = "\n".join(f"line {number} of the log" for number in range(250))
    messages: list[dict[str, Any]] = []
    for number in range(6):
        messages.append({"role": "user", "content": f"Count the errors of service {number}."})
        messages += make_call(f"a{number}", output)
        messages.append({"role": "assistant", "content": f"Service {number} has {number} errors."})
    messages.append({"role": "user", "content": "现在重启邮件服务并观察它。"})
    for number in range(4):
        messages += make_call(f"z{number}", output)
    settings = Settings(embedding=Embedding(provider="none"))
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        summary = engine.session("loop").compact(messages, limit=8_000).summary
    assert summary is not None
    found = parse(summary.text)
    assert found["### In Progress"] == ["- not finished: 现在重启邮件服务并观察它。"]
    assert "- Count the errors of service 5. → Service 5 has 5 errors." in found["### Done"]


def make_call(name: str, output: str) -> list[dict[str, Any]]:
    """Return a call of a tool and its result, as Chat Completions has them."""
    call = {"id": name, "type": "function", "function": {"name": "read_log", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": name, "content": output},
    ]


def test_a_corrected_decision_is_no_longer_a_decision() -> None:
    """Neither if the correction is in the same messages, nor if the decision is in the previous summary."""
    first = [
        user("Decision: gold customers get an answer within 4 hours."),
        reply("Noted."),
        user("决定：夜班值班电话是 6120。"),
        reply("已记录。"),
        user("Decision: refunds need approval by Marta."),
        reply("Noted."),
    ]
    corrections = [
        user("Correction: gold customers get an answer within 2 hours, not 4 hours."),
        reply("Corrected."),
        user("更正：夜班值班电话是 6188，不是 6120。"),
        reply("已更正。"),
    ]
    before = make_digest(first, limit=2_000, activity=find_activity(first))
    assert parse(before)["## Key Decisions"] == [
        "- Decision: gold customers get an answer within 4 hours.",
        "- 决定：夜班值班电话是 6120。",
        "- Decision: refunds need approval by Marta.",
    ]
    at_once = make_digest([*first, *corrections], limit=2_000, activity=find_activity(first))
    later = make_digest(corrections, limit=2_000, activity=find_activity(corrections), previous=before)
    for digest in (at_once, later):
        assert parse(digest)["## Key Decisions"] == [
            "- Decision: refunds need approval by Marta.",
            "- Correction: gold customers get an answer within 2 hours, not 4 hours.",
            "- 更正：夜班值班电话是 6188，不是 6120。",
        ]


def test_the_next_step_is_the_last_request_of_all() -> None:
    """Not the last one that is summarised, if a later one is kept."""
    messages = [user("Check the tide tables."), reply("The tables are right.")]
    groups = outline(messages, activity=find_activity(messages), request="Draw the map.", kept=[user("Draw the map.")])
    assert groups["## Next Steps"][0].lines == ("- Finish the last request: Draw the map.",)


def test_decisions_are_whole_sentences() -> None:
    """A sentence continues after an abbreviation and on the next line of wrapped text."""
    text = "We decided to sign the body, e.g. with\na hash, because parsers\nreorder keys. Yes.\n\n决定改用请求体。好。"
    assert parse(made([user("Which way?"), reply(text)]))["## Key Decisions"] == [
        "- We decided to sign the body, e.g. with a hash, because parsers reorder keys.",
        "- 决定改用请求体。",
    ]
