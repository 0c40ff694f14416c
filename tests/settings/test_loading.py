"""Where settings come from, which source counts, and what bad ones get."""

import json
import stat
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import SettingsError
from holdfast.settings import ENGINE, Recall, Settings, SoftTrim, as_dict, default_files
from holdfast.settings import load as load_engine
from holdfast_agent.settings import CHAT, ChatSettings, QmdPath, load


def write(folder: Path, text: str, *, name: str = "holdfast.toml") -> Path:
    """A file with this text."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(
    path: Path | None = None, *, environ: Mapping[str, str] | None = None, said: Mapping[str, Any] | None = None
) -> SettingsError:
    """The error that these settings get."""
    with pytest.raises(SettingsError) as caught:
        load(files=[path] if path else [], environ=environ or {}, **(said or {}))
    return caught.value


class TestSources:
    """Where values come from."""

    def test_defaults(self) -> None:
        """With nothing said, everything is at its default and says so."""
        loaded = load(environ={})
        assert loaded.settings == ChatSettings()
        assert set(loaded.origins) == {row.key for row in CHAT.rows}
        assert set(loaded.origins.values()) == {"default"}
        assert loaded.ignored == {}

    def test_toml(self, tmp_path: Path) -> None:
        """Values of `holdfast.toml` are taken with the file as their origin."""
        path = write(tmp_path, '[recall]\nposition = "head"\n[pruning.soft_trim]\nmax_chars = 9\n')
        loaded = load(files=[path], environ={})
        assert loaded.settings.recall.position == "head"
        assert loaded.settings.pruning.soft_trim == SoftTrim(max_chars=9)
        assert loaded.origins["recall.position"] == f"{path}: recall.position"
        assert loaded.origins["recall.neighbours"] == "default"

    def test_environment(self) -> None:
        """Each kind of value is read from the text of a variable."""
        environ = {
            "HOLDFAST_RECALL__ENABLED": "false",
            "HOLDFAST_RECALL__HARD_CAP_TOKENS": "123",
            "HOLDFAST_SEARCH__TIME_DECAY": "0.5",
            "HOLDFAST_COMPACTION__MODE": "safeguard",
            "HOLDFAST_PRUNING__TTL": "1h30m",
            "HOLDFAST_PRUNING__TOOLS__ALLOW": "exec, read",
            "HOLDFAST_PRUNING__TOOLS__DENY": '["a,b"]',
            "HOLDFAST_AGENT__MEMORY_SEARCH__QMD__PATHS": "~/notes",
            "HOLDFAST_MODEL__CONTEXT_TOKENS": "64000",
            "HOLDFAST_MODEL__NAME": "",
            "HOLDFAST_HOME": "/data",
            "PATH": "/bin",
        }
        loaded = load(environ=environ)
        settings = loaded.settings
        assert not settings.recall.enabled
        assert settings.recall.hard_cap_tokens == 123
        assert settings.search.time_decay == 0.5
        assert settings.compaction.mode == "safeguard"
        assert settings.pruning.ttl == timedelta(hours=1, minutes=30)
        assert settings.pruning.tools.allow == ("exec", "read")
        assert settings.pruning.tools.deny == ("a,b",)
        assert settings.agent.memory_search.qmd.paths == (QmdPath(path="~/notes"),)
        assert settings.model.context_tokens == 64_000
        assert settings.model.name is None
        assert loaded.origins["recall.enabled"] == "environment: HOLDFAST_RECALL__ENABLED"
        assert loaded.ignored == {}

    def test_precedence(self, tmp_path: Path) -> None:
        """Arguments beat the environment, which beats the files in their order, TOML before openclaw.json."""
        project = write(tmp_path, "[recall]\nneighbours = 3\nmax_facts = 3\nquery_messages = 3\n", name="a.toml")
        user = write(tmp_path, "[recall]\nneighbours = 4\nhard_cap_tokens = 4\n", name="b.toml")
        other = write(
            tmp_path,
            '{"agents": {"defaults": {"memoryContext": {"hardCapTokens": 5, "autoRecallMinScore": 0.5}}}}',
            name="openclaw.json",
        )
        recall = load(
            files=[other, project, user],
            environ={"HOLDFAST_RECALL__MAX_FACTS": "2", "HOLDFAST_RECALL__QUERY_MESSAGES": "2"},
            recall={"query_messages": 1},
        ).settings.recall
        assert recall.query_messages == 1
        assert recall.max_facts == 2
        assert recall.neighbours == 3
        assert recall.hard_cap_tokens == 4
        assert recall.min_score == 0.5

    def test_process_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The process's own environment counts where none is handed in."""
        monkeypatch.setenv("HOLDFAST_RECALL__POSITION", "head")
        assert load().settings.recall.position == "head"

    def test_usual_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The usual files are found where they exist, strongest first."""
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.setenv("HOME", str(tmp_path))
        assert default_files(folder=tmp_path, environ={}) == ()
        project = write(tmp_path, "")
        (tmp_path / ".openclaw").mkdir()
        foreign = write(tmp_path / ".openclaw", "{}", name="openclaw.json")
        elsewhere = write(tmp_path, "{}", name="elsewhere.json5")
        assert default_files(folder=tmp_path, environ={}) == (project, foreign)
        assert default_files(folder=tmp_path, environ={"OPENCLAW_CONFIG_PATH": str(elsewhere)}) == (project, elsewhere)

    def test_the_settings_of_pi_are_the_weakest(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of them compaction counts, below `openclaw.json`; the rest is pi's own, and a wrong file is left out."""
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        file = tmp_path / ".pi" / "agent" / "settings.json"
        file.parent.mkdir(parents=True)
        compaction = {"enabled": False, "reserveTokens": 30_000, "keepRecentTokens": 9_000, "modelOverrides": {}}
        file.write_text(json.dumps({"theme": "dark", "compaction": compaction}))
        assert default_files(folder=tmp_path, environ={}) == (file,)
        found = load(files=(file,), environ={})
        wanted = found.settings.compaction
        assert (wanted.enabled, wanted.reserve_tokens, wanted.keep_recent_tokens) == (False, 30_000, 9_000)
        assert found.origins["compaction.reserve_tokens"] == f"{file}: compaction.reserveTokens"
        foreign = tmp_path / "openclaw.json"
        foreign.write_text('{"agents": {"defaults": {"compaction": {"reserveTokens": 40000}}}}')
        both = load(files=(foreign, file), environ={}).settings.compaction
        assert (both.reserve_tokens, both.keep_recent_tokens) == (40_000, 9_000)
        for wrong in ("{", '{"compaction": {"reserveTokens": "many"}}', '{"compaction": 5}', "[]"):
            file.write_text(wrong)
            left = load(files=(file,), environ={})
            assert left.settings == ChatSettings()
            assert str(file) in left.warnings[0]
        elsewhere = tmp_path / "pi"
        elsewhere.mkdir()
        (elsewhere / "settings.json").write_text("{}")
        known = {"PI_CODING_AGENT_DIR": str(elsewhere)}
        assert default_files(folder=tmp_path, environ=known) == (elsewhere / "settings.json",)


class TestSpellings:
    """What may be spelled in two ways."""

    def test_pruning_mode_alone(self, tmp_path: Path) -> None:
        """A bare mode in place of the pruning section means its mode, in every source."""
        path = write(tmp_path, 'pruning = "aggressive"\n')
        assert load(files=[path], environ={}).settings.pruning.mode == "aggressive"
        assert load(environ={"HOLDFAST_PRUNING": "adaptive"}).settings.pruning.mode == "adaptive"
        assert load(environ={}, pruning="cache-ttl").settings.pruning.mode == "cache-ttl"

    def test_one_setting_given_twice(self) -> None:
        """Of two variables for one setting the full name counts, and the other is reported."""
        loaded = load(environ={"HOLDFAST_PRUNING": "adaptive", "HOLDFAST_PRUNING__MODE": "off"})
        assert loaded.settings.pruning.mode == "off"
        assert loaded.ignored == {"HOLDFAST_PRUNING": "environment: HOLDFAST_PRUNING__MODE is the same setting"}

    def test_rivals(self, tmp_path: Path) -> None:
        """Of two units for one thing the stronger source's counts, and the weaker's is void."""
        path = write(tmp_path, "[compaction.memory_flush]\nsoft_threshold_tokens = 9000\n")
        settings = load(files=[path], environ={}, compaction={"memory_flush": {"soft_threshold": 0.7}}).settings
        flush = settings.compaction.memory_flush
        assert flush.soft_threshold == 0.7
        assert flush.soft_threshold_tokens is None

    def test_rivals_the_other_way(self, tmp_path: Path) -> None:
        """Tokens in a stronger source make a share in a weaker one void."""
        path = write(tmp_path, "[compaction.memory_flush]\nsoft_threshold = 0.7\n")
        environ = {"HOLDFAST_COMPACTION__MEMORY_FLUSH__SOFT_THRESHOLD_TOKENS": "6000"}
        flush = load(files=[path], environ=environ).settings.compaction.memory_flush
        assert flush.soft_threshold is None
        assert flush.soft_threshold_tokens == 6000

    def test_rivals_in_one_source(self) -> None:
        """One source may not say the same thing in two units."""
        error = refused(said={"compaction": {"memory_flush": {"soft_threshold": 0.7, "soft_threshold_tokens": 1}}})
        assert "keep one of them" in str(error)

    def test_older_words(self) -> None:
        """`transformer` is read as the provider that it is called today."""
        assert load(environ={}, embedding={"provider": "transformer"}).settings.embedding.provider == "onnx"

    def test_durations_and_sizes(self) -> None:
        """Durations and sizes may be numbers, text or values of Python's own type."""
        for ttl in (90, "90", "1h30m", timedelta(minutes=90)):
            assert load(environ={}, pruning={"ttl": ttl}).settings.pruning.ttl == timedelta(minutes=90)
        for size in (2048, "2kb", "2048"):
            flush = {"memory_flush": {"force_flush_transcript_bytes": size}}
            settings = load(environ={}, compaction=flush).settings
            assert settings.compaction.memory_flush.force_flush_transcript_bytes == 2048


class TestUnknown:
    """Names that are no settings."""

    def test_in_a_file(self, tmp_path: Path) -> None:
        """An unknown name is told with its file and the nearest valid one."""
        path = write(tmp_path, "[recall]\nhard_cap_token = 1\n")
        error = refused(path)
        assert error.source == str(path)
        assert error.key == "recall.hard_cap_token"
        assert error.nearest == ("recall.hard_cap_tokens",)
        assert str(error) == f"{path}: recall.hard_cap_token: unknown setting. Did you mean 'recall.hard_cap_tokens'?"

    @pytest.mark.parametrize(
        ("overrides", "nearest"),
        [
            ({"recal": {"position": "head"}}, "recall"),
            ({"recall": {"hardCapTokens": 1}}, "recall.hard_cap_tokens"),
            ({"compaction": {"hard_cap_tokens": 1}}, "recall.hard_cap_tokens"),
            ({"compaction": {"memory_flush": {"enable": True}}}, "compaction.memory_flush.enabled"),
            ({"recall": {"budget_tokens": 1}}, "recall.hard_cap_tokens"),
        ],
    )
    def test_nearest(self, overrides: dict[str, object], nearest: str) -> None:
        """The nearest name is a look-alike next to it, or the same name in its own section."""
        assert refused(said=overrides).nearest[0] == nearest

    def test_nothing_near(self) -> None:
        """A name that looks like nothing gets no advice."""
        error = refused(said={"zzzzzz": 1})
        assert error.nearest == ()
        assert str(error) == "arguments: zzzzzz: unknown setting."

    def test_a_dotted_name_is_no_path(self) -> None:
        """A name with a dot inside it does not reach into a section."""
        assert refused(said={"recall.position": "head"}).key == '"recall.position"'

    def test_in_the_environment(self) -> None:
        """A variable with a section that is unknown, or one that is nearly right, is an error."""
        error = refused(environ={"HOLDFAST_RECALL_POSITION": "head"})
        assert error.nearest == ("HOLDFAST_RECALL__POSITION",)
        assert refused(environ={"HOLDFAST_RECALL__XYZ": "1"}).key == "HOLDFAST_RECALL__XYZ"

    def test_other_variables(self) -> None:
        """A variable that looks like none of the settings is passed over and reported."""
        assert load(environ={"HOLDFAST_TRACE": "1"}).ignored == {"HOLDFAST_TRACE": "environment"}

    def test_long_and_odd_names(self) -> None:
        """A very long or unprintable name is shown in part and escaped."""
        assert len(str(refused(said={"x" * 1_000_000: 1}))) < 200
        assert "\\x1b" in str(refused(said={"\x1b[31m": 1}))


class TestWrongValues:
    """Values that a setting cannot take."""

    @pytest.mark.parametrize(
        ("section", "field", "value", "expected"),
        [
            ("recall", "enabled", "yes", "true or false"),
            ("recall", "hard_cap_tokens", "lots", "whole number, 0 to 1,000,000,000"),
            ("recall", "hard_cap_tokens", 1.5, "whole number"),
            ("recall", "hard_cap_tokens", True, "whole number"),
            ("recall", "hard_cap_tokens", -1, "whole number"),
            pytest.param("recall", "hard_cap_tokens", 16**9999, "whole number", id="huge"),
            ("recall", "min_score", 1.1, "number, 0 to 1"),
            ("recall", "min_score", float("nan"), "number, 0 to 1"),
            ("recall", "position", "middle", '"head" or "tail"'),
            ("recall", "position", {"a": 1}, '"head" or "tail"'),
            ("compaction", "max_history_share", 0.95, "number, 0.1 to 0.9"),
            ("pruning", "ttl", "soon", "duration such as"),
            ("pruning", "ttl", -5, "duration such as"),
            ("pruning", "ttl", True, "duration such as"),
            ("pruning", "ttl", float("inf"), "duration such as"),
            ("agent.session", "reset_triggers", "/new", "list of text"),
            ("agent.session", "reset_triggers", [1], "list of text"),
            ("agent.memory_search", "sources", ["web"], 'list of "memory" or "sessions"'),
            ("model", "name", object(), "text"),
            ("agent.memory_search", "qmd", {"paths": "~/notes"}, "list of paths"),
        ],
    )
    def test_expected_and_found(self, section: str, field: str, value: object, expected: str) -> None:
        """The error names the setting, what was expected and what was found."""
        message: dict[str, object] = {field: value}
        for name in reversed(section.split(".")):
            message = {name: message}
        error = refused(said=message)
        assert error.key.startswith(f"{section}.{field}")
        assert f"expected {expected}" in str(error)
        assert ", found " in str(error)

    @pytest.mark.parametrize("value", [5, "off", None, [1]])
    def test_a_section_that_is_none(self, value: object) -> None:
        """A value in place of a whole section is an error."""
        assert "expected a table of settings, found" in str(refused(said={"recall": value}))

    def test_in_the_environment(self) -> None:
        """A variable that cannot be read as its kind is an error, lists included."""
        assert "true or false" in str(refused(environ={"HOLDFAST_RECALL__ENABLED": "on"}))
        assert "JSON" in str(refused(environ={"HOLDFAST_PRUNING__TOOLS__ALLOW": "[1"}))
        assert "list of text" in str(refused(environ={"HOLDFAST_PRUNING__TOOLS__ALLOW": "[[]]"}))

    def test_an_overridden_value_is_checked_too(self, tmp_path: Path) -> None:
        """A wrong value is an error even where a stronger source overrides it."""
        path = write(tmp_path, '[recall]\nposition = "middle"\n')
        assert refused(path, said={"recall": {"position": "head"}}).source == str(path)

    @pytest.mark.parametrize(
        ("overrides", "key"),
        [
            ({"search": {"vector_weight": 0, "bm25_weight": 0}}, "search"),
            ({"agent": {"memory_search": {"chunking": {"overlap": 400}}}}, "agent.memory_search.chunking"),
            (
                {"agent": {"memory_search": {"query": {"hybrid": {"vector_weight": 0, "text_weight": 0}}}}},
                "agent.memory_search.query.hybrid",
            ),
        ],
    )
    def test_values_that_do_not_go_together(self, overrides: dict[str, object], key: str) -> None:
        """Values that exclude each other are an error that names their section and where they came from."""
        error = refused(said=overrides)
        assert error.key == key
        assert error.source.startswith(f"arguments: {key}")


class TestBadFiles:
    """Files that cannot be read."""

    def test_bad_toml(self, tmp_path: Path) -> None:
        """Text that is not TOML is an error with its line, also when the file just ends."""
        assert "line 3 is not valid TOML" in str(refused(write(tmp_path, "[recall]\n\nposition head\n")))
        assert "line 2 is not valid TOML" in str(refused(write(tmp_path, "[recall]\nposition = 'head")))

    def test_bombs(self, tmp_path: Path) -> None:
        """Nesting without end and numbers without end are errors like any other."""
        assert "not valid TOML" in str(refused(write(tmp_path, "a = " + "[" * 100_000)))
        assert "not valid TOML" in str(refused(write(tmp_path, "a = " + "9" * 5_000)))
        assert "not valid JSON5" in str(refused(write(tmp_path, "[" * 100_000, name="a.json")))

    def test_missing(self, tmp_path: Path) -> None:
        """A file that was named but is not there is an error."""
        assert "cannot be read: No such file" in str(refused(tmp_path / "none.toml"))

    def test_directory(self, tmp_path: Path) -> None:
        """A folder is no settings file."""
        (tmp_path / "x.toml").mkdir()
        assert "cannot be read" in str(refused(tmp_path / "x.toml"))

    def test_no_permission(self, tmp_path: Path) -> None:
        """A file that may not be read is an error."""
        path = write(tmp_path, "")
        path.chmod(0)
        try:
            path.read_bytes()
        except PermissionError:
            assert "cannot be read: Permission denied" in str(refused(path))
        else:
            pytest.skip("this user may read everything")
        finally:
            path.chmod(stat.S_IRUSR | stat.S_IWUSR)

    def test_not_text(self, tmp_path: Path) -> None:
        """Bytes that are not UTF-8 are an error with their line."""
        path = tmp_path / "holdfast.toml"
        path.write_bytes(b"[recall]\n# caf\xe9\n")
        assert "line 2 is not UTF-8 text" in str(refused(path))

    def test_byte_order_mark(self, tmp_path: Path) -> None:
        """A byte order mark does not matter."""
        path = tmp_path / "holdfast.toml"
        path.write_bytes(b"\xef\xbb\xbf[recall]\nneighbours = 1\n")
        assert load(files=[path], environ={}).settings.recall.neighbours == 1

    def test_too_large(self, tmp_path: Path) -> None:
        """A file far beyond the size of settings is refused unread."""
        assert "too large" in str(refused(write(tmp_path, "#" * 600_000)))

    def test_unknown_kind_of_file(self, tmp_path: Path) -> None:
        """A file that is neither TOML nor JSON is refused."""
        assert "expected a .toml file" in str(refused(write(tmp_path, "", name="holdfast.yaml")))


def test_settings_cannot_change() -> None:
    """Settings are frozen all the way down."""
    settings = Settings()
    with pytest.raises(AttributeError):
        settings.recall.position = "head"  # type: ignore[misc]
    assert isinstance(hash(settings), int)


def test_as_dict_holds_what_toml_can() -> None:
    """The plain form spells durations and paths as a file would, and leaves out what is unset or secret."""
    settings = load(
        environ={}, agent={"memory_search": {"qmd": {"paths": ["a"]}}}, embedding={"api_key": "$${A}"}
    ).settings
    plain = as_dict(settings, schema=CHAT)
    assert plain["pruning"]["ttl"] == "5m"
    assert plain["agent"]["memory_search"]["qmd"]["paths"] == [{"path": "a"}]
    assert "api_key" not in plain["embedding"]
    assert "model" not in plain["agent"]
    assert "soft_threshold_tokens" not in plain["compaction"]["memory_flush"]
    assert as_dict(settings, reveal=True)["embedding"]["api_key"] == "$${A}"


class TestEngine:
    """The engine leaves the settings of the agent to the agent."""

    def test_it_has_none_of_them(self) -> None:
        """No setting of the engine is one of the agent, and the agent has all settings of the engine."""
        assert not any(row.key.startswith("agent.") for row in ENGINE.rows)
        assert {row.key for row in CHAT.rows if not row.key.startswith("agent.")} == {row.key for row in ENGINE.rows}
        assert not hasattr(Settings(), "agent")

    def test_the_table_of_the_agent_is_not_read(self, tmp_path: Path) -> None:
        """The engine ignores it, even a wrong one; the agent reports what is wrong."""
        path = write(tmp_path, "[recall]\nneighbours = 1\n[agent.workspce]\npath = 5\n")
        loaded = load_engine(files=[path], environ={"HOLDFAST_AGENT__WORKSPCE": "1"})
        assert loaded.settings == Settings(recall=Recall(neighbours=1))
        assert loaded.ignored == {"agent": str(path), "HOLDFAST_AGENT__WORKSPCE": "environment"}
        assert refused(path).nearest == ("agent.workspace",)
        assert refused(environ={"HOLDFAST_AGENT__WORKSPCE": "1"}).key == "HOLDFAST_AGENT__WORKSPCE"

    def test_an_argument_of_the_agent_is_an_error(self) -> None:
        """A program that sets the agent's settings through the engine is told so."""
        with pytest.raises(SettingsError, match="agent: unknown setting"):
            load_engine(environ={}, agent={"timezone": "UTC"})

    def test_an_openclaw_json_with_settings_of_the_agent(self, tmp_path: Path) -> None:
        """The engine takes its own settings from it, and ignores those of the agent by name."""
        defaults = {"contextTokens": 64_000, "workspace": "~/work", "memorySearch": {"enabled": False}}
        data = {"agents": {"defaults": defaults}, "session": {"idleMinutes": 5}, "memory": {"backend": "qmd"}}
        path = write(tmp_path, json.dumps(data), name="openclaw.json")
        loaded = load_engine(files=[path], environ={})
        assert loaded.settings.model.context_tokens == 64_000
        assert set(loaded.ignored) == {"agents.defaults.workspace", "agents.defaults.memorySearch", "session", "memory"}
        assert load(files=[path], environ={}).ignored == {}
