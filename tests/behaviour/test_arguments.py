"""Arguments of the engine: limits, settings and models, and clear errors for everything else."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.errors import FormatError, InputError, SettingsError, WindowTooSmallError
from holdfast.models.scripted import Scripted
from holdfast.settings import Compaction, Embedding, ModelSettings, Recall, Settings, load
from holdfast.store.base import Record
from support.command import run_command
from support.waiting import UNHURRIED

QUIET = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
HELLO = [{"role": "user", "content": "Which port does staging use?"}]
SUMMARY = "## Goal\nMove the staging database.\n\n## Key Decisions\n它监听 6543 端口。\n"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Open an engine over a new memory, by words alone."""
    with Engine.open(tmp_path / "memory", settings=QUIET, background=False) as engine:
        yield engine


def long_talk(turns: int) -> list[dict[str, Any]]:
    """Return a conversation of about 700 tokens a turn."""
    return [
        message
        for turn in range(turns)
        for message in (
            {"role": "user", "content": f"Step {turn}: " + f"detail{turn} " * 120},
            {"role": "assistant", "content": f"Done with {turn}. " + f"change{turn} " * 110},
        )
    ]


class TestLimit:
    def test_a_window_of_32k_is_filled_to_two_thirds(self, engine: Engine) -> None:
        """At most a quarter is reserved, so that a small window is not cut when it is a third full."""
        conversation = long_talk(44)
        top = max(
            engine.session("s").assemble(conversation[:stop], limit=32_000).report.total_tokens
            for stop in range(1, len(conversation), 4)
        )
        assert 0.6 * 32_000 < top <= 24_000

    def test_the_report_has_the_source_of_the_limit_and_the_reserve(self, tmp_path: Path) -> None:
        """It is the call, the settings, the model, or the default."""

        def report(settings: Settings = QUIET, model: Any = None, **named: Any) -> tuple[str, int, int]:
            with Engine.open(tmp_path / "m", settings=settings, model=model, background=False) as engine:
                found = engine.session("s").assemble(HELLO, **named).report
            return found.limit_source, found.raw_max_tokens, found.reserved_tokens

        set_to = Settings(embedding=Embedding(provider="none"), model=ModelSettings(context_tokens=50_000))
        assert report(limit=32_000) == ("argument", 32_000, 8_000)
        assert report(set_to) == ("settings", 50_000, 12_500)
        assert report(model=Scripted(["x"], context_tokens=16_000)) == ("model", 16_000, 4_000)
        assert report() == ("default", 200_000, 20_000)

    def test_a_model_named_in_the_call_is_a_source_too(self, engine: Engine) -> None:
        """A known name gives the window of the model; an unknown one does not."""
        known = engine.session("s").assemble(HELLO, model="openai/gpt-4o").report
        assert (known.limit_source, known.raw_max_tokens) == ("model", 128_000)
        unknown = engine.session("s").assemble(HELLO, model="house/secret").report
        assert (unknown.limit_source, unknown.raw_max_tokens) == ("default", 200_000)

    def test_the_floor_of_the_settings_still_raises_the_reserve(self, tmp_path: Path) -> None:
        """`reserve_tokens_floor` keeps its meaning as long as it leaves room for messages."""
        high = Settings(embedding=Embedding(provider="none"), compaction=Compaction(reserve_tokens_floor=24_000))
        with Engine.open(tmp_path, settings=high, background=False) as engine:
            assert engine.session("s").assemble(HELLO, limit=200_000).report.reserved_tokens == 24_000
            assert engine.session("s").assemble(HELLO, limit=40_000).report.reserved_tokens == 24_000
            refused = engine.session("s").assemble(HELLO, limit=24_000).report
            assert refused.reserved_tokens == 6_000
            assert any("compaction.reserve_tokens_floor = 24,000" in warning for warning in refused.warnings)

    @pytest.mark.parametrize(
        ("name", "value"), [("reserve_tokens", 16_384), ("reserve_tokens_floor", 20_000), ("reserve_tokens", 20_000)]
    )
    @pytest.mark.parametrize("source", ["file", "environment", "openclaw"])
    def test_a_reserve_that_equals_the_default_is_honoured(
        self, tmp_path: Path, source: str, name: str, value: int
    ) -> None:
        """It is more than the quarter of a small window that is reserved by default, but the user asked for it."""
        theirs = {"reserve_tokens": "reserveTokens", "reserve_tokens_floor": "reserveTokensFloor"}
        toml = tmp_path / "holdfast.toml"
        openclaw = tmp_path / "openclaw.json"
        toml.write_text(f"[compaction]\n{name} = {value}\n")
        openclaw.write_text(json.dumps({"agents": {"defaults": {"compaction": {theirs[name]: value}}}}))
        files = {"file": [toml], "openclaw": [openclaw], "environment": []}[source]
        environ = {f"HOLDFAST_COMPACTION__{name.upper()}": str(value)} if source == "environment" else {}
        settings = load(files=files, environ=environ, embedding={"provider": "none"}).settings
        with Engine.open(tmp_path / "memory", settings=settings, background=False) as engine:
            report = engine.session("s").assemble(HELLO, limit=32_000).report
        assert (report.reserved_tokens, report.warnings) == (value, ())

    @pytest.mark.variants(first=True)
    @pytest.mark.parametrize(("reserve", "share"), [(24_000, 0.7), (40_000, 0.5)])
    def test_a_compaction_starts_at_the_threshold_of_openclaw(self, tmp_path: Path, reserve: int, share: float) -> None:
        """`reserveTokens` of openclaw.json: half to two thirds of the window is enough for a compaction."""
        file = tmp_path / "openclaw.json"
        file.write_text(json.dumps({"agents": {"defaults": {"compaction": {"reserveTokens": reserve}}}}))
        quiet: dict[str, Any] = {"embedding": {"provider": "none"}, "recall": {"automatic": False}}
        settings = load(files=[file], environ={}, **quiet).settings
        conversation = long_talk(160)
        with Engine.open(tmp_path / "memory", settings=settings, background=False, model=lambda _: "So far.") as engine:
            sizes = []
            for stop in range(1, len(conversation), 10):
                report = engine.session("s").assemble(conversation[:stop], limit=80_000).report
                if any(change.kind == "compacted" for change in report.changes):
                    break
                sizes.append(report.total_tokens)
            else:
                raise AssertionError("nothing was compacted")
        assert share - 0.1 < sizes[-1] / 80_000 <= share

    def test_what_is_reserved_can_be_given_with_the_call(self, engine: Engine) -> None:
        """Exactly that is kept free, even if it is more than a quarter."""
        conversation = long_talk(40)
        narrow = engine.session("a").assemble(conversation, limit=32_000, reserve=20_000).report
        assert narrow.reserved_tokens == 20_000
        assert narrow.total_tokens <= 12_000
        assert engine.session("b").assemble(conversation, limit=32_000, reserve=0).report.total_tokens > 12_000
        assert (
            engine.session("c").compact(conversation, limit=32_000, reserve=4_000, dry_run=True).plan.outcome == "ready"
        )
        assert engine.session("c").count_tokens(conversation, limit=32_000, reserve=4_000) > 0

    @pytest.mark.parametrize("limit", [0, -1])
    def test_no_limit_at_all_is_an_error(self, engine: Engine, limit: int) -> None:
        """0 does not mean the model's window, and nothing is archived."""
        session = engine.session("s")
        for call in (session.assemble, session.compact, session.count_tokens):
            with pytest.raises(InputError, match=f"limit={limit}"):
                call(HELLO, limit=limit)
        assert engine.stats().messages == 0

    @pytest.mark.parametrize("reserve", [-1, 8_000, 9_000])
    def test_a_reserve_that_leaves_no_room_is_an_error(self, engine: Engine, reserve: int) -> None:
        """It is at least 0 and less than the window."""
        with pytest.raises(InputError, match="reserve"):
            engine.session("s").assemble(HELLO, limit=8_000, reserve=reserve)

    def test_a_window_that_holds_nothing_is_too_small(self, engine: Engine) -> None:
        """A window of one token is valid, but nothing fits into it."""
        with pytest.raises(WindowTooSmallError):
            engine.session("s").assemble(HELLO, limit=1)


class TestArguments:
    @pytest.mark.parametrize(
        ("method", "given"),
        [
            ("assemble", (HELLO,)),
            ("append", (HELLO,)),
            ("compact", (HELLO,)),
            ("count_tokens", (HELLO,)),
            ("edits", ()),
            ("learn", ()),
            ("pin", ([1],)),
            ("undo_trim", ()),
            ("forget", ()),
            ("recall", ("port",)),
            ("search", ("port",)),
            ("get", ([1],)),
            ("remember", ("x",)),
            ("facts", ()),
            ("forget_facts", (["x"],)),
            ("timeline", ()),
        ],
    )
    def test_a_misspelt_keyword_is_a_type_error(self, engine: Engine, method: str, given: tuple[Any, ...]) -> None:
        """It is one everywhere in Python; nothing is stored."""
        with pytest.raises(TypeError, match="projcet"):
            getattr(engine.session("s"), method)(*given, projcet="shop")
        with pytest.raises(TypeError, match="projcet"):
            engine.session("s", projcet="shop")  # type: ignore[call-arg]
        assert engine.stats().messages == 0

    def test_tenant_project_and_agent_keep_memories_apart(self, engine: Engine) -> None:
        """The three keywords name the owner of the memory."""
        owners: list[dict[str, Any]] = [{"tenant": "a"}, {"project": "b"}, {"agent": "c"}, {}]
        for owner in owners:
            engine.session("s", **owner).append([{"role": "user", "content": f"The port is 6543 {owner}."}])
        assert [len(engine.session("s", **owner).search("port")) for owner in owners] == [1, 1, 1, 1]

    def test_a_fact_of_no_known_type_is_refused(self, engine: Engine) -> None:
        """The message lists the six types."""
        with pytest.raises(InputError, match=r"foo.*decision.*architecture"):
            engine.session("s").remember("The port is 6543.", type="foo")  # type: ignore[arg-type]  # that is the point
        assert engine.session("s").facts() == []

    @pytest.mark.parametrize("query", ["", "  \n", "　"])
    def test_an_empty_search_is_refused(self, engine: Engine, query: str) -> None:
        """It has no words to search for."""
        with pytest.raises(InputError, match="empty"):
            engine.session("s").search(query)

    @pytest.mark.parametrize("limit", [0, -3])
    def test_a_search_for_nothing_is_refused(self, engine: Engine, limit: int) -> None:
        """`limit` must be at least 1."""
        with pytest.raises(InputError, match=f"limit={limit}"):
            engine.session("s").search("port", limit=limit)


HISTORY = [{"role": "user", "content": "The berth is 7."}]


class TestWrongTypes:
    @pytest.mark.parametrize(
        ("method", "given", "named"),
        [
            ("assemble", (None,), {}),
            ("assemble", (5,), {}),
            ("assemble", (iter(HISTORY),), {}),
            ("assemble", (HISTORY,), {"tools": None}),
            ("assemble", (HISTORY,), {"tools": [5]}),
            ("assemble", (HISTORY,), {"facts": [5]}),
            ("assemble", (HISTORY,), {"question": 5}),
            ("assemble", (HISTORY,), {"model": 5}),
            ("assemble", (HISTORY,), {"overhead": "5"}),
            ("append", (None,), {}),
            ("count_tokens", (5,), {}),
            ("compact", (5,), {}),
            ("compact", (HISTORY,), {"instructions": 5}),
            ("preview", (None,), {"provider": "openai_chat"}),
            ("window", ("1",), {}),
            ("recall", (5,), {}),
            ("recall", (None,), {}),
            ("search", (5,), {}),
            ("search", ("berth",), {"limit": "5"}),
            ("remember", (5,), {}),
            ("remember", ("The berth is 7.",), {"subject": 5}),
            ("remember", ("The berth is 7.",), {"questions": "Which one?"}),
            ("get", (None,), {}),
            ("get", ([1],), {"around": "1"}),
            ("pin", (None,), {}),
            ("exclude", (None,), {}),
            ("exclude", ([1],), {"facts": "abc"}),
            ("forget", ("1",), {}),
            ("forget_facts", (5,), {}),
            ("forget_facts", ("abc",), {}),
        ],
    )
    def test_a_value_of_the_wrong_type_is_an_input_error(
        self, engine: Engine, method: str, given: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        """It is raised before anything is stored."""
        with pytest.raises(InputError):
            getattr(engine.session("s"), method)(*given, **named)
        assert engine.stats().messages == 0
        assert engine.session("s").facts() == []

    @pytest.mark.parametrize(
        ("method", "given", "named"),
        [
            ("search", (5,), {}),
            ("search", ("berth",), {"limit": "5"}),
            ("sessions", (), {"limit": "5"}),
            ("sessions", (), {"limit": -1}),
            ("sessions", (), {"tenant": 5}),
        ],
    )
    def test_so_it_is_in_the_engine(
        self, engine: Engine, method: str, given: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        """The engine checks the arguments of its own methods too."""
        with pytest.raises(InputError):
            getattr(engine, method)(*given, **named)

    @pytest.mark.parametrize("cap", [0, -1, "500", True])
    def test_a_cap_is_at_least_one_token(self, engine: Engine, cap: Any) -> None:
        """A block of 0 tokens would look like no match."""
        with pytest.raises(InputError, match=r"cap=.*: give a whole number, at least 1"):
            engine.session("s").recall("Which berth?", cap=cap)

    @pytest.mark.parametrize("path", [5, b"memory", ""])
    def test_a_path_that_is_none_creates_no_folder(
        self, tmp_path: Path, path: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A number is not the name of a folder."""
        monkeypatch.chdir(tmp_path)
        with pytest.raises(InputError, match="path"):
            Engine.open(path, settings=QUIET)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        "named",
        [{"hooks": 5}, {"auto": "often"}, {"clock": 5}, {"model": 5}, {"model": ""}, {"personal": "yes"}, {"hosts": 1}],
        ids=str,
    )
    def test_other_arguments_of_open_are_checked(self, tmp_path: Path, named: dict[str, Any]) -> None:
        """They are checked before the memory is opened."""
        with pytest.raises(InputError, match=next(iter(named))):
            Engine.open(tmp_path / "memory", settings=QUIET, **named)

    def test_a_clock_of_seconds_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="milliseconds"):
            Engine.open(tmp_path / "memory", settings=QUIET, clock=time.time)  # type: ignore[arg-type]


class TestCommands:
    @pytest.mark.parametrize(
        ("arguments", "code", "words"),
        [
            (("search", ""), 1, "empty"),
            (("search", "port", "--limit", "0"), 2, "--limit"),
            (("remember", "The port is 6543.", "--type", "foo"), 2, "foo"),
            (("import", "nothing"), 1, "no transcript"),
            (("import", "missing"), 1, "missing"),
            (("replay", "nothing"), 1, "no transcript"),
            (("sessions", "nothing"), 1, "no transcript"),
            (("show", "nothing"), 1, "folder"),
            (("compact", "missing.jsonl"), 1, "no such file"),
        ],
    )
    def test_bad_arguments_have_an_exit_code_and_a_line(
        self, tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
    ) -> None:
        """It is 1 after a failure and 2 for wrong arguments; there is no traceback."""
        (tmp_path / "nothing").mkdir()
        (tmp_path / "nothing" / "readme.txt").write_text("no session")
        environ = {**os.environ, "HOME": str(tmp_path), "HOLDFAST_HOME": str(tmp_path / "memory")}
        Engine.open(tmp_path / "memory", settings=Settings(), background=False).close()
        done = run_command(*arguments, folder=tmp_path, environ=environ)
        assert done.returncode == code, done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr


class TestOpen:
    @pytest.fixture(autouse=True)
    def elsewhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make a machine without any settings."""
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        monkeypatch.delenv("HOLDFAST_HOME", raising=False)
        monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
        monkeypatch.chdir(tmp_path)

    def test_the_environment_counts_as_on_the_command_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`HOLDFAST_*` and `HOLDFAST_HOME` are read."""
        monkeypatch.setenv("HOLDFAST_MODEL__CONTEXT_TOKENS", "24000")
        monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "here"))
        with Engine.open(background=False) as engine:
            assert engine.session("s").assemble(HELLO).report.raw_max_tokens == 24_000
            assert Path(engine.stats().path).parent == tmp_path / "here"

    def test_the_files_count_too(self, tmp_path: Path) -> None:
        """The files of the user and of the project are read; settings that are passed are used exactly as they are."""
        (tmp_path / "config" / "holdfast").mkdir(parents=True)
        (tmp_path / "config" / "holdfast" / "holdfast.toml").write_text("[model]\ncontext_tokens = 30000\n")
        (tmp_path / "holdfast.toml").write_text("[recall]\nhard_cap_tokens = 77\n")
        with Engine.open(tmp_path / "m", background=False) as engine:
            assert engine.settings.model.context_tokens == 30_000
            assert engine.settings.recall.hard_cap_tokens == 77
        with Engine.open(tmp_path / "m", settings=QUIET, background=False) as engine:
            assert engine.settings is QUIET

    def test_a_wrong_setting_is_reported(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is reported as the commands report it."""
        monkeypatch.setenv("HOLDFAST_RECALL__HARD_CAP_TOKENS", "many")
        with pytest.raises(SettingsError, match="HARD_CAP_TOKENS"):
            Engine.open(tmp_path / "m")

    def test_one_setting_is_given_as_loaded_settings(self, tmp_path: Path) -> None:
        """Both the result of `load` and the settings in it are accepted."""
        loaded = load(recall={"eagerness": "shy"})
        for given in (loaded, loaded.settings):
            with Engine.open(tmp_path / "m", settings=given, background=False) as engine:
                assert engine.settings.recall.eagerness == "shy"

    def test_unchecked_settings_are_refused(self, tmp_path: Path) -> None:
        """A section that is a dict is refused at once, a value of the wrong type when the memory is opened."""
        with pytest.raises(SettingsError, match=r"Settings: recall: use load\(recall=\{\.\.\.\}\)\.settings"):
            Settings(recall={"eagernes": "shy"})  # type: ignore[arg-type]  # that is the point
        wrong: list[tuple[Any, str]] = [
            (Settings(recall=Recall(eagerness="bold")), r'recall\.eagerness: expected "generous"'),  # type: ignore[arg-type]
            (Settings(recall=Recall(hard_cap_tokens=-1)), r"recall\.hard_cap_tokens: expected whole number"),
            (Settings(compaction=Compaction(memory_flush={})), r"compaction\.memory_flush: .* dict"),  # type: ignore[arg-type]
            (Settings(embedding=Embedding(api_key="sk-1")), r"embedding\.api_key: expected Secret"),  # type: ignore[arg-type]
            ({"recall": {"eagerness": "shy"}}, r"^settings: expected load\(\.\.\.\).*found a dict"),
        ]
        for settings, words in wrong:
            with pytest.raises(InputError, match=words):
                Engine.open(tmp_path / "m", settings=settings)
        assert not (tmp_path / "m").exists()

    def test_a_model_by_its_name(self, tmp_path: Path) -> None:
        """The name has the form that the command line accepts."""
        (tmp_path / "script.jsonl").write_text('{"text": "## Goal\\nMove it.", "repeat": true}\n')
        with Engine.open(tmp_path / "m", model=f"scripted:{tmp_path / 'script.jsonl'}", background=False) as engine:
            done = engine.session("s").compact(long_talk(30), limit=32_000)
        assert done.summary is not None
        assert done.summary.calls > 0
        with pytest.raises(SettingsError, match="no model is called that"):
            Engine.open(tmp_path / "m", model="nobody")

    def test_the_model_of_the_settings_summarises(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """`compaction.model` is opened if no other model is given."""
        (tmp_path / "script.jsonl").write_text('{"text": "## Goal\\nMove it.", "repeat": true}\n')
        monkeypatch.setenv("HOLDFAST_COMPACTION__MODEL", f"scripted:{tmp_path / 'script.jsonl'}")
        with Engine.open(tmp_path / "m", background=False) as engine:
            done = engine.session("s").compact(long_talk(30), limit=32_000)
        assert done.summary is not None
        assert done.summary.calls > 0

    def test_a_model_that_is_a_function(self, tmp_path: Path) -> None:
        """It is called with messages in the form of Chat Completions, and returns the text of the reply."""
        seen: list[list[dict[str, Any]]] = []

        def summarise(messages: list[dict[str, Any]]) -> str:
            seen.append(messages)
            return SUMMARY

        with Engine.open(tmp_path / "m", model=summarise, background=False) as engine:
            done = engine.session("s").compact(long_talk(30), limit=32_000)
        assert done.summary is not None
        assert "6543 端口" in done.summary.text
        assert [message["role"] for message in seen[0]] == ["system", "user"]
        assert all(isinstance(message["content"], str) for message in seen[0])

    @pytest.mark.variants(first=True)
    @pytest.mark.parametrize("fault", [ValueError("no network"), 42])
    def test_a_function_that_fails_harms_nothing(self, tmp_path: Path, fault: Any) -> None:
        """The summary is made by rule, and the warnings give the reason."""

        def fail(_: object) -> Any:
            if isinstance(fault, Exception):
                raise fault
            return fault

        settings = Settings(embedding=Embedding(provider="none"), compaction=Compaction(timeout_seconds=3))
        with Engine.open(tmp_path / "m", settings=settings, model=fail, background=False) as engine:
            done = engine.session("s").compact(long_talk(30), limit=32_000)
        assert done.summary is not None
        assert done.summary.rung == "digest"
        assert any("no network" in warning or "int" in warning for warning in done.warnings)

    def test_a_model_that_is_none_of_these(self, tmp_path: Path) -> None:
        """It is refused at once."""
        with pytest.raises(InputError, match="model"):
            Engine.open(tmp_path / "m", model=3)  # type: ignore[arg-type]  # that is the point


class TestNewcomers:
    """What a user tries who has only read the documentation."""

    @pytest.mark.parametrize("ids", [["3"], "1", 1, [True], [1.0]])
    def test_ids_that_are_no_numbers_change_nothing(self, engine: Engine, ids: Any) -> None:
        """The session works as before, and nothing is recorded."""
        session = engine.session("s")
        session.assemble(HELLO)
        for method in (session.pin, session.forget, session.get):
            with pytest.raises(InputError, match="message numbers"):
                method(ids)
        assert session.edits() == ()
        assert not session.assemble(HELLO).report.warnings

    def test_an_edit_that_cannot_be_read_is_ignored_and_reported(self, engine: Engine) -> None:
        """Windows keep their limit; the next report names the record."""
        session = engine.session("s")
        conversation = [{"role": "user", "content": f"{number} " + "word " * 400} for number in range(40)]
        session.assemble(conversation, limit=8_000)
        bad = {"change": {"kind": "pinned", "on": True}, "ids": ["3"], "reason": "", "tokens_before": 0}
        engine._memory.store.add_records([Record(scope=session.scope, kind="edit", key="00000077", data=bad, time=1)])
        window = session.assemble([*conversation, *HELLO], limit=8_000)
        assert window.report.total_tokens <= 8_000
        assert any("edit 00000077" in warning for warning in window.report.warnings)
        assert session.undo_trim() >= 0

    def test_pinned_messages_that_take_the_reserve_are_reported(self, engine: Engine) -> None:
        """The window stays under the limit, and the report says how much of the reserve is used."""
        session = engine.session("s")
        conversation = [{"role": "user", "content": f"{number} " + "word " * 150} for number in range(40)]
        assert not session.assemble(conversation, limit=8_000, reserve=2_000).report.warnings
        session.pin(list(range(1, 32)))
        report = session.assemble(conversation, limit=8_000, reserve=2_000).report
        assert 5_714 < report.total_tokens <= 7_000
        assert any("reserve" in warning and "unpin" in warning for warning in report.warnings)

    @pytest.mark.parametrize("limit", ["16k", True, 1.5])
    def test_a_limit_of_another_type_is_an_input_error(self, engine: Engine, limit: Any) -> None:
        """So is a number that is out of range."""
        with pytest.raises(InputError, match="limit="):
            engine.session("s").assemble(HELLO, limit=limit)

    @pytest.mark.parametrize("name", [5, None, "", " "])
    def test_a_session_has_a_name(self, engine: Engine, name: Any) -> None:
        """Anything else is refused at once."""
        with pytest.raises(InputError, match="session"):
            engine.session(name)

    def test_a_misspelt_role_is_named_with_the_others(self, engine: Engine) -> None:
        """The error lists the valid roles, including that of tool results."""
        with pytest.raises(FormatError, match=r"'tol' is not one of .*, tool"):
            engine.session("s").append([{"role": "tol", "content": "hi"}])

    def test_settings_are_settings(self, tmp_path: Path) -> None:
        """A plain dict is refused, and the error says how to pass settings."""
        with pytest.raises(InputError, match="Settings"):
            Engine.open(tmp_path, settings={"recall": {}})  # type: ignore[arg-type]

    def test_a_claude_model_has_anthropics_requests(self, engine: Engine) -> None:
        """Before any message shows a format, the name of the model decides."""
        plain = [{"role": "system", "content": "Be brief."}, *HELLO]
        window = engine.session("s").assemble(plain, model="claude-sonnet-4-5")
        assert window.request()["system"] == "Be brief."
        assert engine.session("t").assemble(plain, model="gpt-5").provider == "openai_chat"

    def test_a_stored_session_is_compacted_by_another_process(self, engine: Engine) -> None:
        """Even after something was forgotten, nothing is archived again, and the next window has the summary."""
        conversation = [
            message
            for number in range(30)
            for message in (
                {"role": "user", "content": f"Question {number}: " + "words " * 900},
                {"role": "assistant", "content": f"Answer {number}. " + "more " * 900},
            )
        ]
        session = engine.session("s")
        session.append(conversation)
        session.forget([2])
        with Engine.open(engine._memory.home, settings=engine.settings, background=False) as other:
            assert other.session("s").compact(limit=16_000).summary is not None
            assert other.stats().messages == len(conversation) - 1
        left = [conversation[0], *conversation[2:]]
        window = engine.session("s").assemble([*left, {"role": "user", "content": "Go on."}], limit=16_000)
        assert any(item.kind == "summary" for item in window.items)
        assert engine.stats().messages == len(conversation)

    @pytest.mark.parametrize(
        ("fact", "question"),
        [
            ("The API listens on port 8443", "Which port does the API use?"),
            ("The staging database listens on port 6543", "Which port does the staging database use?"),
            ("预发数据库的端口是6543", "预发数据库用哪个端口?"),
        ],
    )
    def test_the_first_fact_is_found_in_other_words(self, engine: Engine, fact: str, question: str) -> None:
        """If memory has one fact, a word that it lacks does not outweigh the others."""
        engine.session("s").remember(fact)
        assert [hit.fact.content for hit in engine.session("t").recall(question).facts] == [fact]
        assert not engine.session("t").recall("How do whales breathe? 鲸鱼如何呼吸?").block
        assert not engine.session("t").recall("ok").block
