"""An existing openclaw.json: what is ours in it is read, the rest is left alone and named."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import SettingsError
from holdfast.settings import Loaded
from holdfast_agent.settings import CHAT, ChatSettings, QmdPath, load
from support.external_data import DATA
from support.openclaw_paths import DOCUMENTED, FLUSH, LANCE, PLUGIN

# further names that real files hold
REAL: list[tuple[str, object, str, object]] = [
    ("agents.defaults.compaction.customInstructions", "Keep ports.", "compaction.custom_instructions", None),
    ("agents.defaults.compaction.recentTurnsPreserve", 12, "compaction.recent_turns_preserve", 3),
    ("agents.defaults.compaction.identifierPolicy", "custom", "compaction.identifier_policy", "strict"),
    ("agents.defaults.compaction.identifierInstructions", "IBANs", "compaction.identifier_instructions", None),
    ("agents.defaults.compaction.qualityGuard.enabled", False, "compaction.quality_guard.enabled", True),
    ("agents.defaults.compaction.qualityGuard.maxRetries", 3, "compaction.quality_guard.max_retries", 1),
    ("agents.defaults.compaction.model", "x/y", "compaction.model", None),
    ("agents.defaults.compaction.timeoutSeconds", 900, "compaction.timeout_seconds", 180),
    (FLUSH + "model", "x/z", "compaction.memory_flush.model", None),
    (FLUSH + "forceFlushTranscriptBytes", "2mb", "compaction.memory_flush.force_flush_transcript_bytes", 0),
    ("agents.defaults.bootstrapTotalMaxChars", 150000, "agent.workspace.bootstrap_total_max_chars", 60_000),
    ("agents.defaults.model", "x/y", "model.name", None),
    ("agents.defaults.model.primary", "x/y", "model.name", None),
    ("agents.defaults.model.fallbacks", ["x/z"], "model.fallbacks", ()),
    ("agents.defaults.userTimezone", "Europe/Berlin", "agent.timezone", None),
    ("agents.defaults.workspace", "~/clawd", "agent.workspace.path", None),
    ("agents.defaults.memorySearch.query.maxResults", 8, "agent.memory_search.query.max_results", 6),
    ("agents.defaults.memorySearch.query.minScore", 0.5, "agent.memory_search.query.min_score", 0.35),
    (
        "agents.defaults.memorySearch.query.hybrid.mmr.enabled",
        True,
        "agent.memory_search.query.hybrid.mmr.enabled",
        False,
    ),
    (
        "agents.defaults.memorySearch.query.hybrid.mmr.lambda",
        0.5,
        "agent.memory_search.query.hybrid.mmr.relevance_weight",
        0.7,
    ),
    (
        "agents.defaults.memorySearch.query.hybrid.temporalDecay.halfLifeDays",
        7,
        "agent.memory_search.query.hybrid.temporal_decay.half_life_days",
        30,
    ),
    ("agents.defaults.memorySearch.chunking.tokens", 300, "agent.memory_search.chunking.tokens", 400),
    ("agents.defaults.memorySearch.chunking.overlap", 20, "agent.memory_search.chunking.overlap", 80),
    ("agents.defaults.memorySearch.sync.watch", False, "agent.memory_search.sync.watch", True),
    ("agents.defaults.memorySearch.remote.baseUrl", "http://h", "agent.memory_search.remote.base_url", None),
    ("memory.search.provider", "openai-compatible", "agent.memory_search.provider", "auto"),
    ("session.resetTriggers", ["/fresh"], "agent.session.reset_triggers", ("/new", "/reset")),
    ("session.idleMinutes", 60, "agent.session.reset.idle_minutes", None),
    ("plugins.entries.memory-context.enabled", False, "recall.enabled", True),
    (PLUGIN + "embeddingDim", 384, "embedding.dimension", None),
    (PLUGIN + "embeddingModelName", "m", "embedding.model", None),
    (PLUGIN + "storagePath", "~/m", "archive.path", None),
    (PLUGIN + "autoRecall", False, "recall.automatic", True),
    (PLUGIN + "autoRecallMaxTokens", 12000, "recall.hard_cap_tokens", 4_000),
    (PLUGIN + "maxSegments", 1, "archive.max_segments", None),
    (PLUGIN + "search.vectorWeight", 0.5, "search.vector_weight", 0.7),
    (PLUGIN + "search.bm25Weight", 0.5, "search.bm25_weight", 0.3),
    (PLUGIN + "search.timeDecay", 1, "search.time_decay", 0.995),
    (LANCE + "config.dbPath", "~/l", "agent.long_term.db_path", None),
    (LANCE + "config.captureMaxChars", 600, "agent.long_term.capture_max_chars", 500),
    (LANCE + "config.recallMaxChars", 600, "agent.long_term.recall_max_chars", 1_000),
    ("hooks.internal.entries.session-memory.enabled", True, "agent.session.memory_file", False),
    ("memory.qmd.searchMode", "query", "agent.memory_search.qmd.search_mode", "search"),
    ("memory.qmd.update.embedInterval", 30, "agent.memory_search.qmd.update.embed_interval", timedelta(hours=1)),
]


def written(folder: Path, data: object) -> Path:
    """An openclaw.json with this in it: text as it is, anything else as JSON."""
    path = folder / "openclaw.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def read(folder: Path, data: object, **environ: str) -> Loaded[ChatSettings]:
    """The settings that such a file gives."""
    return load(files=[written(folder, data)], environ=environ)


def refused(folder: Path, data: object) -> SettingsError:
    """The error that such a file gets."""
    with pytest.raises(SettingsError) as caught:
        read(folder, data)
    return caught.value


def nested(path: str, value: object) -> dict[str, Any]:
    """The object in which a dotted path leads to a value."""
    first, _, rest = path.partition(".")
    return {first: nested(rest, value) if rest else value}


def at(settings: object, key: str) -> object:
    """The value of a dotted setting."""
    for name in key.split("."):
        settings = getattr(settings, name)
    return settings


@pytest.mark.parametrize(("path", "value", "key", "default"), DOCUMENTED + REAL, ids=lambda each: str(each)[:60])
def test_every_path(tmp_path: Path, path: str, value: object, key: str, default: object) -> None:
    """Each documented path sets the setting that it stands for, which has the documented default."""
    loaded = read(tmp_path, nested(path, value))
    changed = [row.key for row in CHAT.rows if loaded.origins[row.key] != "default"]
    assert changed == [key]
    assert next(row.default for row in CHAT.rows if row.key == key) == default
    assert at(loaded.settings, key) != default
    assert loaded.origins[key].endswith(path)
    assert loaded.ignored == {}


def test_a_whole_file(tmp_path: Path) -> None:
    """A file as people write it, in JSON5 with comments, is read in full."""
    settings = read(
        tmp_path,
        """
        // what a long-running agent needs
        {
          agents: { defaults: {
            compaction: {
              mode: "safeguard",
              reserveTokensFloor: 24e3,
              memoryFlush: { enabled: true, softThresholdTokens: 8000, prompt: 'Write. \\
Reply NO_REPLY when done.' },
            },
            contextPruning: {
              mode: "adaptive", keepLastAssistants: 5,
              softTrim: { maxChars: 6000, headChars: 2500, tailChars: 2500 },
              hardClear: { enabled: true, placeholder: "[已清除]" },
            },
            contextTokens: 200000,
          } },
        }
        """,
    ).settings
    assert settings.compaction.mode == "safeguard"
    assert settings.compaction.reserve_tokens_floor == 24_000
    assert settings.compaction.memory_flush.prompt == "Write. Reply NO_REPLY when done."
    assert settings.pruning.keep_last_assistants == 5
    assert settings.pruning.hard_clear.placeholder == "[已清除]"
    assert settings.model.context_tokens == 200_000


def test_plugin_form(tmp_path: Path) -> None:
    """The least that switches the memory-context plugin on is a file without mistakes."""
    plugins = {"entries": {"memory-context": {"config": {}}}, "slots": {"memory": "memory-context"}}
    loaded = read(tmp_path, {"plugins": plugins})
    assert loaded.settings.recall.enabled
    assert not loaded.settings.agent.long_term.enabled
    assert loaded.ignored == {}


@pytest.mark.parametrize("slots", [{}, {"memory": "holdfast"}, {"contextEngine": "holdfast", "memory": "memory-core"}])
def test_the_section_of_the_plugin_and_the_older_one(tmp_path: Path, slots: dict[str, str]) -> None:
    """Both hold inside OpenClaw; of one setting in both, the plugin's own."""
    older = {"hardCapTokens": 1000, "crossSession": True}
    own = {"hardCapTokens": 2000, "command": "/bin/holdfast", "timeoutMs": 900}
    entries = {"memory-context": {"config": older}, "holdfast": {"enabled": True, "config": own}}
    settings = read(tmp_path, {"plugins": {"slots": slots, "entries": entries}}).settings
    assert (settings.recall.hard_cap_tokens, settings.archive.cross_session) == (2000, True)


def test_transformer(tmp_path: Path) -> None:
    """The older word for a sentence model is understood."""
    loaded = read(tmp_path, nested("agents.defaults.memoryContext.embeddingModel", "transformer"))
    assert loaded.settings.embedding.provider == "onnx"


def test_qmd_paths(tmp_path: Path) -> None:
    """Paths may be text or objects."""
    loaded = read(tmp_path, nested("memory.qmd.paths", ["~/a", {"path": "~/b", "name": "b", "pattern": "**/*.md"}]))
    assert loaded.settings.agent.memory_search.qmd.paths == (
        QmdPath(path="~/a"),
        QmdPath(path="~/b", name="b", pattern="**/*.md"),
    )


def test_hooks_of_others(tmp_path: Path) -> None:
    """Of all hooks one is ours; whatever else stands next to it is passed over and reported by name."""
    entries = {"boot-md": {"enabled": True}, "session-memory": {"enabled": True, "messages": 20, "llmSlug": False}}
    loaded = read(tmp_path, {"hooks": {"enabled": True, "internal": {"enabled": True, "entries": entries}}})
    assert loaded.settings.agent.session.memory_file
    assert set(loaded.ignored) == {
        "hooks.enabled",
        "hooks.internal.enabled",
        "hooks.internal.entries.boot-md",
        "hooks.internal.entries.session-memory.llmSlug",
        "hooks.internal.entries.session-memory.messages",
    }


def test_what_belongs_to_others(tmp_path: Path) -> None:
    """Names of other parts of the file are passed over and reported by name."""
    data: dict[str, Any] = {
        "gateway": {"auth": {"token": "sk-canary"}},
        "channels": {"telegram": {}},
        "somethingNew": 1,
        "agents": {
            "list": [{"id": "main"}],
            "defaults": {
                "models": {},
                "heartbeat": {"every": "1h"},
                "notYetInvented": {},
                "compaction": {"notifyUser": True, "mode": "safeguard"},
                "sandbox": {"mode": "off"},
            },
        },
        "session": {"dmScope": "main"},
        "memory": {"qmd": {"scope": {}}, "search": {"store": {}}},
        "plugins": {
            "enabled": True,
            "slots": {"voice": "x"},
            "entries": {
                "telegram": {"enabled": True},
                "memory-core": {},
                "memory-context": {"config": {"budget": {"maxTokens": 1}}},
            },
        },
    }
    loaded = read(tmp_path, data)
    assert set(loaded.ignored) == {
        "agents.defaults.compaction.notifyUser",
        "agents.defaults.heartbeat",
        "agents.defaults.models",
        "agents.defaults.notYetInvented",
        "agents.defaults.sandbox.mode",
        "agents.list",
        "channels",
        "gateway",
        "memory.qmd.scope",
        "memory.search.store",
        "plugins.enabled",
        "plugins.entries.memory-context.config.budget",
        "plugins.entries.telegram",
        "plugins.slots.voice",
        "session.dmScope",
        "somethingNew",
    }
    assert set(loaded.ignored.values()) == {str(tmp_path / "openclaw.json")}
    assert loaded.settings.compaction.mode == "safeguard"
    assert "sk-canary" not in repr(loaded)


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("agents.defaults.compaction.reserveTokenFloor", "agents.defaults.compaction.reserveTokensFloor"),
        ("agents.defaults.memoryContext.hardCap", "agents.defaults.memoryContext.hardCapTokens"),
        (PLUGIN + "crossSessions", PLUGIN + "crossSession"),
        ("memory.citation", "memory.citations"),
        ("session.reset.hour", "session.reset.atHour"),
        ("agents.defaults.contextPrunning", "agents.defaults.contextPruning"),
        ("agents.default", "agents.defaults"),
        ("plugin", "plugins"),
        ("agents.defaults.memoryFlush", "agents.defaults.compaction.memoryFlush"),
        ("contextPruning", "agents.defaults.contextPruning"),
    ],
)
def test_slips(tmp_path: Path, path: str, nearest: str) -> None:
    """A name that is nearly right, unknown inside our sections, or in the wrong place is told with the right one."""
    error = refused(tmp_path, nested(path, {}))
    assert error.source == str(tmp_path / "openclaw.json")
    assert error.key == path
    assert error.nearest[0] == nearest


def test_wrong_value(tmp_path: Path) -> None:
    """A value of the wrong kind is told by the file's own path."""
    error = refused(tmp_path, nested("agents.defaults.contextTokens", "many"))
    assert error.key == "agents.defaults.contextTokens"
    assert "expected whole number, 1 to 1,000,000,000, found 'many'" in str(error)


@pytest.mark.parametrize("path", ["agents", "agents.defaults", "agents.defaults.compaction", "plugins.entries"])
def test_a_value_in_place_of_a_section(tmp_path: Path, path: str) -> None:
    """A value where a section belongs is an error, also on the levels that are shared."""
    assert "expected a table of settings" in str(refused(tmp_path, nested(path, 5)))


def test_two_places_for_one_setting(tmp_path: Path) -> None:
    """Where the file says a setting twice, the first documented place counts and the other is reported."""
    data = nested("agents.defaults.memoryContext.maxSegments", 1) | nested(PLUGIN + "maxSegments", 2)
    loaded = read(tmp_path, data)
    assert loaded.settings.archive.max_segments == 1
    assert list(loaded.ignored) == [PLUGIN + "maxSegments"]


def test_model_as_text_or_object(tmp_path: Path) -> None:
    """The model may be a name, or an object with a name and fallbacks."""
    data = {"primary": "x/y", "fallbacks": ["x/z"]}
    model = read(tmp_path, nested("agents.defaults.model", data)).settings.model
    assert (model.name, model.fallbacks) == ("x/y", ("x/z",))


class TestBadFiles:
    """Files that are no openclaw.json."""

    @pytest.mark.parametrize(
        ("text", "output"),
        [
            ("{\n agents: {},\n !\n}", "line 3 is not valid JSON5"),
            ('{"agents":', "line 1 is not valid JSON5"),
            ("", "not valid JSON5"),
            ("[]", "expected an object with settings"),
            ("null", "expected an object with settings"),
            ("{agents: {defaults: {contextTokens: " + "9" * 5000 + "}}}", "not valid JSON5"),
            ("{a:" * 5000, "not valid JSON5"),
        ],
        ids=range(7),
    )
    def test_not_json5(self, tmp_path: Path, text: str, output: str) -> None:
        """Text that is not JSON5, or not an object, is an error with its line where there is one."""
        assert output in str(refused(tmp_path, text))

    def test_same_name_twice(self, tmp_path: Path) -> None:
        """Of a name that stands twice in one object the last counts, as in JSON5 everywhere."""
        text = '{"agents": {"defaults": {"contextTokens": 1, "contextTokens": 2}}}'
        assert read(tmp_path, text).settings.model.context_tokens == 2


SEEDS = DATA.parent / "seeds"
needs_seeds = pytest.mark.skipif(not SEEDS.is_dir(), reason=f"the documents are not at {SEEDS}")


def seeds() -> str:
    """The documents that this project began with."""
    return "\n".join(file.read_text("utf-8") for file in sorted(SEEDS.glob("*.txt")))


@needs_seeds
def test_every_path_of_the_documents_is_listed() -> None:
    """The reference of paths in the documents is covered; `memory.qmd.paths` and the slot have tests of their own."""
    named = set(re.findall(r"^((?:agents|memory|plugins|session)\.[\w.]+)", seeds(), re.MULTILINE))
    known = {path for path, *_ in DOCUMENTED}
    assert len(named) > 40
    assert {path for path in named if not any(one == path or one.startswith(f"{path}.") for one in known)} == {
        "memory.qmd.paths",
        "plugins.slots.memory",
    }


@needs_seeds
def test_every_example_of_the_documents_is_accepted(tmp_path: Path) -> None:
    """Each whole settings file that the documents show is read, and nothing in it is ignored."""
    blocks = re.findall(r"^```json5?\n(\{\n.*?\n\})\n```", seeds(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 4
    for block in blocks:
        loaded = read(tmp_path, block)
        assert loaded.ignored == {}
        assert any(origin != "default" for origin in loaded.origins.values())
