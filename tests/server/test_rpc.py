"""Calls for plugins."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from holdfast import Engine
from holdfast.errors import StorageError
from holdfast.server.rpc import MAX_THREADS, Rpc, serve_calls
from holdfast.settings import Archive, Embedding, ServerSettings, Settings
from holdfast.store.opening import STORE_NAME
from holdfast.store.sqlite import SqliteStore
from holdfast.tokens import count_text
from support.failing_stores import FAULTS, open_engine
from support.waiting import PATIENCE, UNHURRIED, until


def call(engine: Engine, method: str, **params: Any) -> dict[str, Any]:
    """Make one call."""
    answer: dict[str, Any] = json.loads(Rpc(engine).answer(json.dumps({"id": 1, "method": method, "params": params})))
    return answer


@pytest.fixture
def engine(tmp_path: Path) -> Any:
    """Open a memory with one message."""
    with Engine.open(tmp_path / "memory", settings=Settings(recall=UNHURRIED), background=False) as engine:
        engine.session("s1").append([{"role": "user", "content": "The port is 5433."}])
        yield engine


class TestForget:
    def test_a_session_is_forgotten_whole_only_where_that_is_asked_for(self, engine: Engine) -> None:
        assert call(engine, "forget", session="s1")["error"]["type"] == "InputError"
        assert call(engine, "forget", session="s1", ids=[])["result"] == {"forgotten": 0}
        assert engine.session("s1").get([1])
        assert call(engine, "forget", session="s1", ids=[1], whole_session=True)["error"]
        assert call(engine, "forget", session="s1", whole_session=True)["result"]["forgotten"]
        assert not engine.session("s1").get([1])


class TestHosts:
    def test_a_session_has_the_host_that_calls_name(self, engine: Engine) -> None:
        """The first one stays: a session has one host."""
        messages = [{"role": "user", "content": "端口是 5433。"}]
        call(engine, "append", session="a", messages=messages, host="OpenClaw")
        call(engine, "assemble", session="a", messages=messages, limit=4000, host="pi")
        call(engine, "assemble", session="b", messages=messages, limit=4000, host="pi")
        assert {one.id: one.host for one in engine.sessions()} == {"a": "OpenClaw", "b": "pi", "s1": ""}


class TestQuestions:
    def test_a_question_after_the_window_is_not_archived_and_gets_its_block(self, engine: Engine) -> None:
        asked = "Which port is it?"
        history = [
            {"role": "user", "content": f"{number}. " + "We looked at the importer. " * 60} for number in range(9)
        ]
        call(engine, "append", session="s2", messages=[{"role": "user", "content": "The port is 5433."}])
        stored = len(engine.session("s2").get(list(range(1, 99)), across=False))
        window = call(engine, "assemble", session="s2", messages=history, limit=4000, reserve=500, question=asked)
        assert "5433" in window["result"]["block"]
        assert "5433" not in json.dumps(window["result"]["messages"])
        assert len(engine.session("s2").get(list(range(1, 99)), across=False)) == stored + len(history)

    def test_a_question_may_be_the_first_message(self, engine: Engine) -> None:
        window = call(engine, "assemble", session="s3", messages=[], question="Which port is it?", limit=4000)
        assert window["result"]["messages"] == []

    def test_messages_of_a_key_are_archived_once(self, engine: Engine) -> None:
        given = [{"role": "user", "content": "Yes, go on with the importer."}]
        answers = [call(engine, "append", session="s4", messages=given, key=key)["result"] for key in ("a", "a", "b")]
        assert [answer["is_duplicate"] for answer in answers] == [False, True, False]
        assert len(engine.session("s4").get(list(range(1, 99)), across=False)) == 2


class TestAMemoryThatFails:
    @pytest.mark.parametrize("fault", sorted(FAULTS))
    def test_assemble_keeps_the_limit_and_reports_the_reason(self, tmp_path: Path, fault: str) -> None:
        """Also for a session whose subagents are asked, which is one more read of the store."""
        settings = Settings(embedding=Embedding(provider="none"))
        history = [
            {"role": role, "content": f"{number}. " + "We looked at the importer. " * 30}
            for number in range(30)
            for role in ("user", "assistant")
        ]
        with open_engine(SqliteStore(tmp_path / STORE_NAME, wait=0), settings) as engine:
            call(engine, "add_subagent", session="s", child="c")
            call(engine, "assemble", session="s", messages=history[:4], limit=4000, question="Which port is it?")
            with FAULTS[fault](tmp_path):
                answer = call(engine, "assemble", session="s", messages=history, limit=4000, question="Which port?")
        assert 1_000 < answer["result"]["report"]["total_tokens"] <= 4_000
        assert answer["result"]["messages"][-1] == history[-1]
        assert any(warning.startswith("archive: ") for warning in answer["result"]["report"]["warnings"])


@dataclass(frozen=True)
class Host:
    """A host that calls a process, and waits for each answer."""

    calls: IO[bytes]
    answers: IO[bytes]

    def append(self, number: int, *texts: str) -> dict[str, Any]:
        """Add messages to a session."""
        messages = [{"role": "user", "content": text} for text in texts]
        call = {"id": number, "method": "append", "params": {"session": "s", "messages": messages}}
        self.calls.write(json.dumps(call).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self.answers.readline())
        assert answer["id"] == number
        return answer


def open_memory(home: Path) -> Engine:
    """Open a memory without an embedder."""
    return Engine.open(home, settings=Settings(embedding=Embedding(provider="none")), background=False)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Answer the calls of a host with the memory in a folder, as `holdfast rpc` does."""
    calls_out, calls_in = os.pipe()
    answers_out, answers_in = os.pipe()

    def serve() -> None:
        with os.fdopen(calls_out, "rb") as stream, os.fdopen(answers_in, "wb") as output:
            serve_calls(lambda: open_memory(tmp_path / "memory"), stream, output)

    process = threading.Thread(target=serve)
    process.start()
    with os.fdopen(calls_in, "wb", buffering=0) as calls, os.fdopen(answers_out, "rb") as answers:
        yield Host(calls, answers)
    process.join(PATIENCE)


class TestAMemoryThatIsDeleted:
    def test_the_next_call_gets_a_new_one(self, host: Host, tmp_path: Path) -> None:
        """Nothing that a call has brought to either is refused, and no call is left without an answer."""
        first = "The port is 5433."
        then = "The mirror is on port 7391."
        assert len(host.append(0, first)["result"]["ids"]) == 1
        for file in (tmp_path / "memory").iterdir():
            file.unlink()
        assert len(host.append(1, first, then)["result"]["ids"]) == 2
        host.calls.close()
        with open_memory(tmp_path / "memory") as engine:
            stored = [row.message.text for row in engine.session("s").messages()]
        assert stored == [first, then]

    def test_what_cannot_be_opened_is_the_answer_to_each_call_until_it_can(self, host: Host, tmp_path: Path) -> None:
        """A host waits for an answer to every call."""
        home = tmp_path / "memory"
        host.append(0, "The port is 5433.")
        for file in home.iterdir():
            file.unlink()
        home.rmdir()
        home.write_text("no memory")
        for number in (1, 2):
            error = host.append(number, "The mirror is on port 7391.")["error"]
            assert error["type"] == "StorageError"
            assert "is a file, and no memory" in error["message"]
        home.unlink()
        assert host.append(3, "The mirror is on port 7391.")["result"]["ids"] == [1]


class TestAProcessThatIsStartedEarly:
    """Hosts start the process before the first prompt, and the prompt waits for the first answer."""

    @pytest.fixture
    def opened(self, engine: Engine) -> Iterator[tuple[Engine, Host]]:
        """Answer the calls of a host with a memory whose background work has not begun."""
        calls_out, calls_in = os.pipe()
        answers_out, answers_in = os.pipe()

        def serve() -> None:
            with os.fdopen(calls_out, "rb") as stream, os.fdopen(answers_in, "wb") as output:
                Rpc(engine).serve(stream, output)

        process = threading.Thread(target=serve)
        process.start()
        with os.fdopen(calls_in, "wb", buffering=0) as calls, os.fdopen(answers_out, "rb") as answers:
            yield engine, Host(calls, answers)
        process.join(PATIENCE)

    def test_loads_what_the_first_call_needs_while_none_has_come(self, opened: tuple[Engine, Host]) -> None:
        """A `ping` is none: some hosts start the process with one."""
        engine, host = opened
        host.calls.write(b'{"id": 1, "method": "ping"}\n')
        assert json.loads(host.answers.readline())["result"]
        until(lambda: engine._memory._is_warm)
        until(lambda: engine._worker is not None)

    def test_begins_with_the_background_work_after_the_first_answer(self, opened: tuple[Engine, Host]) -> None:
        engine, host = opened
        assert engine._worker is None
        host.append(1, "The port is 5433.")
        until(lambda: engine._worker is not None)


def test_a_memory_that_cannot_be_opened_at_first_is_an_error(tmp_path: Path) -> None:
    """The command says why, and ends."""
    (tmp_path / "memory").write_text("no memory")
    calls = io.BytesIO(b'{"id": 1, "method": "ping"}\n')
    with pytest.raises(StorageError, match="is a file, and no memory"):
        serve_calls(lambda: open_memory(tmp_path / "memory"), calls, io.BytesIO())


class TestLines:
    @pytest.mark.parametrize(
        "line",
        [
            b"[" * 200_000,
            b'{"id": 1, "params": ' + b'{"a":' * 100_000,
            b"\xff\xfe",
            b"5",
            b"null",
            b'{"id": {"a": []}, "method": ["x"], "params": [1]}',
            b'{"method": "ping", "params": "x"}',
            b'{"method": "search", "params": {"session": 5, "query": null}}',
        ],
    )
    def test_a_hostile_line_gets_an_error_and_the_next_one_its_answer(self, engine: Engine, line: bytes) -> None:
        output = io.BytesIO()
        Rpc(engine).serve(io.BytesIO(line + b'\n{"id": 2, "method": "ping"}\n'), output)
        answers = [json.loads(one) for one in output.getvalue().splitlines()]
        assert sorted("error" in answer for answer in answers) == [False, True]

    def test_a_line_that_is_too_long_gets_an_error_and_the_next_one_its_answer(self, tmp_path: Path) -> None:
        settings = Settings(embedding=Embedding(provider="none"), server=ServerSettings(max_request_bytes=1_000))
        output = io.BytesIO()
        for size in (1_000, 5_000_000):
            line = b'"' + b"x" * size + b'"\n{"id": 2, "method": "ping"}\n'
            with Engine.open(tmp_path, settings=settings, background=False) as engine:
                Rpc(engine).serve(io.BytesIO(line), output)
        answers = [json.loads(one) for one in output.getvalue().splitlines()]
        refused = [answer["error"]["message"] for answer in answers if "error" in answer]
        assert len(answers) == 4
        assert ["server.max_request_bytes" in one for one in refused] == [True, True]

    def test_half_a_surrogate_pair_comes_back_as_valid_json(self, engine: Engine) -> None:
        text = "\ud83d half"
        call(engine, "append", session="s2", messages=[{"role": "user", "content": text}])
        line = Rpc(engine).answer('{"method": "get", "params": {"session": "s2", "ids": [2]}}')
        assert json.loads(line)["result"]
        line.decode()

    def test_calls_about_one_session_do_not_hold_up_another(self, engine: Engine) -> None:
        """Also where more of them wait than there are threads."""
        session = engine.session("s1")
        output, answered = io.BytesIO(), threading.Event()

        reading, writing = os.pipe()
        lines = [
            {
                "id": number,
                "method": "append",
                "params": {"session": "s1", "messages": [{"role": "user", "content": f"Call {number}."}]},
            }
            for number in range(MAX_THREADS + 2)
        ]
        lines.append({"id": "other", "method": "ping"})
        os.write(writing, b"".join(json.dumps(line).encode() + b"\n" for line in lines))

        class Output(io.BytesIO):
            def write(self, data: Any, /) -> int:
                if json.loads(data)["id"] == "other":
                    answered.set()
                return output.write(data)

        with os.fdopen(reading, "rb") as stream:
            thread = threading.Thread(target=Rpc(engine).serve, args=(stream, Output()))
            with session._lock:
                thread.start()
                is_answered = answered.wait(PATIENCE)
                os.close(writing)
            thread.join()
        assert is_answered
        ids = [json.loads(one)["id"] for one in output.getvalue().splitlines()]
        assert ids[0] == "other"
        assert ids[1:] == list(range(MAX_THREADS + 2))


def test_a_block_that_the_host_places_is_in_the_timeline(tmp_path: Path) -> None:
    """With its tokens, though it is no edit of the window: OpenClaw sends the question after it."""
    settings = Settings(archive=Archive(cross_session=True), recall=UNHURRIED)
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        history = [
            {"role": "user", "content": "Have a look at the notes of the importer."},
            {"role": "assistant", "content": "There are three of them."},
            {"role": "user", "content": "The billing replica listens on port 5433, by the way."},
            {"role": "assistant", "content": "The notes of the importer are complete now."},
        ]
        engine.session("earlier").assemble(history, limit=32_000)
        engine.work()
        asked = {"session": "now", "messages": [], "format": "pi", "provider": "pi", "limit": 32_000}
        answer = Rpc(engine).call("assemble", {**asked, "question": "On which port does the billing replica listen?"})
        assert "5433" in answer["block"]
        (report,) = engine.session("now").timeline()
        (placed,) = [change for change in report.changes if change.kind == "recalled"]
        assert placed.tokens_after == count_text(answer["block"])


def test_the_first_call_of_the_plugin_of_openclaw(tmp_path: Path) -> None:
    """It loads what a request needs, and works in an empty memory."""
    with Engine.open(tmp_path, settings=Settings(recall=UNHURRIED), background=False) as engine:
        answer = Rpc(engine).call("recall", {"session": "start", "query": "Which embedding model is in use?"})
        assert answer["block"] == ""
        assert answer["reason"]
        assert engine.sessions() == []
