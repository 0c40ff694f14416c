"""`llm` with memory, as a command and in Python, against a real server."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from holdfast import Engine
from holdfast.errors import ModelBusyError
from holdfast.testing.provider import Mute, ScriptedProvider, overflow
from support.adapter_conversations import LIMIT, TURNS, Librarian, archived, check_talk, lookup, question
from support.lazy import Lazy, skip_without
from support.waiting import until

skip_without("llm", install="pip install llm")
if TYPE_CHECKING:
    import llm
    import openai
    from llm import cli as command_line
    from llm.default_plugins import openai_models as models

    from holdfast.adapters import llm as adapter
else:
    llm = Lazy("llm")
    openai = Lazy("openai")
    command_line = Lazy("llm.cli")
    models = Lazy("llm.default_plugins.openai_models")
    adapter = Lazy("holdfast.adapters.llm")

pytestmark = [
    pytest.mark.nightly,  # most of the time goes into importing the framework
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
MODELS = """
- model_id: gpt-x
  model_name: gpt-x
  api_base: {url}/v1
  supports_tools: true
"""


@pytest.fixture(autouse=True)
def close_what_llm_leaves_open() -> Iterator[None]:
    """`llm` closes neither its clients nor its databases; they are reported in the test that opened them."""
    yield
    gc.collect()


@pytest.fixture
def command(model_server: ScriptedProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real command, with the scripted server as a model and an empty memory."""
    (tmp_path / "extra-openai-models.yaml").write_text(MODELS.format(url=model_server.url), "utf-8")
    for name in ("LLM_USER_PATH", "HOLDFAST_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    def run(*args: str, input: str = "") -> str:
        done = CliRunner().invoke(command_line.cli, args, input=input, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def texts(body: dict[str, Any]) -> list[Any]:
    """The texts of a request."""
    return [message["content"] for message in body["messages"]]


@pytest.mark.untraced
def test_the_command_continues_a_session(command: Any, model_server: ScriptedProvider, tmp_path: Path) -> None:
    """`llm -m MODEL --holdfast s1`: several calls, one conversation; without the option nothing changes."""
    model_server.set_script(["I noted it.", "In vault 7.", "Yes.", "bare"])
    assert command("-m", "gpt-x", "--holdfast", "s1", "The deploy key is in vault 7.") == "I noted it.\n"
    assert command("-m", "gpt-x", "--holdfast", "s1", "--no-stream", "Where is it?") == "In vault 7.\n"
    assert "Yes." in command("chat", "-m", "gpt-x", "--holdfast", "s1", input="Sure?\nquit\n")
    assert command("-m", "gpt-x", "hello") == "bare\n"
    messages = ["The deploy key is in vault 7.", "I noted it.", "Where is it?", "In vault 7.", "Sure?"]
    assert [texts(body) for body in model_server.bodies] == [messages[:1], messages[:3], messages, ["hello"]]
    with Engine.open(tmp_path, background=False) as engine:
        assert [message.text for message in archived(engine.session("s1"))] == [*messages, "Yes."]
    assert "--holdfast SESSION" in command("prompt", "--help")


@pytest.mark.untraced
def test_a_memory_that_cannot_be_opened_is_reported(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ends with the words of the error, before it asks the model."""
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "nonsense")
    with pytest.raises(AssertionError, match="HOLDFAST_EMBEDDING__PROVIDER: expected"):
        command("-m", "gpt-x", "--holdfast", "s1", "hello")


@pytest.fixture
def model(model_server: ScriptedProvider) -> models.Chat:
    """A model of `llm` on the scripted server."""
    make: Any = models.Chat
    return make(  # type: ignore[no-any-return]
        "gpt-x", model_name="gpt-x", key="k", api_base=f"{model_server.url}/v1", supports_tools=True
    )


@pytest.mark.untraced
def test_a_long_conversation_stays_in_its_window(
    model_server: ScriptedProvider, engine: Engine, model: models.Chat
) -> None:
    """Many turns with tools, streamed and not: always valid, never over, nothing lost, recalled at the end."""
    librarian = Librarian("openai_chat")
    model_server.set_script(librarian)
    conversation = adapter.HoldfastMemory(engine, session="s1", limit=LIMIT).wrap(model).conversation(tools=[lookup])
    for turn in range(TURNS):
        conversation.chain(question(turn), stream=turn % 2 == 1).text()
    check_talk(model_server, engine.session("s1"), librarian)


def test_without_edits_the_model_gets_what_it_would_get(
    model_server: ScriptedProvider, engine: Engine, model: models.Chat
) -> None:
    """A prompt that needs no edit is passed on itself; the response keeps the prompt of the caller."""
    model_server.set_script(["one", "one", "two", "two"])
    picture = llm.Attachment(type="image/png", content=b"\x89PNG\r\n\x1a\n")
    model.attachment_types = {"image/png"}
    bare, conversation = (
        model.conversation(),
        adapter.HoldfastMemory(engine, session="s1", tenant="anna").wrap(model).conversation(),
    )
    for text in ("hello", "and?"):
        for one in (bare, conversation):
            response = one.prompt(text, system="Be brief.", attachments=[picture], stream=False)
            response.text()
    bodies = model_server.bodies
    assert bodies[0] == bodies[1]
    assert bodies[2] == bodies[3]
    assert [message.text for message in archived(engine.session("s1", tenant="anna"))] == [
        "Be brief.",
        "hello",
        "one",
        "and?",
        "two",
    ]


def test_llm_can_continue_its_own_conversation(
    model_server: ScriptedProvider, engine: Engine, model: models.Chat
) -> None:
    """Where the prompt has a history, that of the archive is not added."""
    model_server.set_script(["ok", "ok"])
    adapter.HoldfastMemory(engine, session="s1").wrap(model).prompt("The archive has this.", stream=False).text()
    own = [llm.user("one"), llm.assistant("two"), llm.user("three")]
    adapter.HoldfastMemory(engine, session="s1").wrap(model).prompt(messages=own, stream=False).text()
    assert texts(model_server.bodies[-1])[:2] == ["one", "two"]


def test_a_window_that_is_refused_is_sent_smaller(
    model_server: ScriptedProvider, engine: Engine, model: models.Chat
) -> None:
    """An overflow is compacted and sent again; the caller sees only the reply."""
    librarian, is_refused = Librarian("openai_chat"), [True]
    model_server.set_script(librarian)
    conversation = adapter.HoldfastMemory(engine, session="s1", limit=100_000).wrap(model).conversation(tools=[lookup])
    for turn in range(3, 6):
        conversation.chain(question(turn), stream=False).text()

    def refuse_once(body: dict[str, Any]) -> Any:
        return overflow(4_000, 3_000) if is_refused and is_refused.pop() else librarian(body)

    model_server.set_script(refuse_once)
    conversation.chain(question(7)).text()
    first, *_, last = [body for body in model_server.bodies if body.get("tools")]
    assert len(str(last)) < len(str(first))
    assert librarian.summaries
    assert model_server.check() == []


def test_errors_retries_and_asynchronous_models(
    model_server: ScriptedProvider, engine: Engine, model: models.Chat
) -> None:
    """A retry archives once, a refusal is the SDK's own error, async works, a cancelled prompt can be repeated."""
    model_server.set_script([ModelBusyError("busy", retry_after=0.01), "done"])
    assert adapter.HoldfastMemory(engine, session="s1").wrap(model).prompt("hello").text() == "done"
    assert [message.text for message in archived(engine.session("s1"))] == ["hello", "done"]
    model_server.set_script(lambda _: overflow())
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        adapter.HoldfastMemory(engine, session="s2").wrap(model).prompt("hello").text()

    async def run() -> None:
        make: Any = models.AsyncChat
        bare: models.AsyncChat = make(
            "gpt-x", model_name="gpt-x", key="k", api_base=f"{model_server.url}/v1", supports_tools=True
        )
        conversation = adapter.HoldfastMemory(engine, session="s3", limit=5_000).wrap(bare).conversation(tools=[lookup])
        librarian = Librarian("openai_chat")
        model_server.set_script(librarian)
        for turn in range(8):
            await conversation.chain(question(turn), stream=turn % 2 == 1).text()
        assert librarian.summaries
        assert model_server.check() == []
        model_server.set_script([Mute(), "late"])
        slow: Any = conversation.prompt("slow", tools=[lookup], stream=False)
        task = asyncio.create_task(slow.text())
        await asyncio.to_thread(until, lambda: len(model_server.bodies) > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await conversation.prompt("slow", tools=[lookup], stream=False).text() == "late"

    asyncio.run(run())
    messages = [message.text for message in archived(engine.session("s3")) if message.role == "user"]
    assert messages == [*map(question, range(8)), "slow"]


def test_attachments_and_thinking_survive_the_archive(
    model_server: ScriptedProvider, engine: Engine, model: models.Chat
) -> None:
    """What an earlier process sent is sent again: pictures, tool calls and results."""
    librarian = Librarian("openai_chat")
    model.attachment_types = {"image/png"}
    model_server.set_script(librarian)
    picture = llm.Attachment(type="image/png", content=b"\x89PNG\r\n\x1a\n")
    first = adapter.HoldfastMemory(engine, session="s1").wrap(model).conversation(tools=[lookup])
    first.chain(question(5), attachments=[picture], stream=False).text()
    before = archived(engine.session("s1"))
    again = adapter.HoldfastMemory(engine, session="s1").wrap(model).conversation(tools=[lookup])
    again.chain("Thanks.", stream=False).text()
    *earlier, thanks = model_server.bodies[-1]["messages"]
    assert earlier[:3] == model_server.bodies[1]["messages"]
    assert thanks["content"] == "Thanks."
    assert archived(engine.session("s1"))[: len(before)] == before
    assert len(archived(engine.session("s1"))) == len(before) + 2
    assert model_server.check() == []
