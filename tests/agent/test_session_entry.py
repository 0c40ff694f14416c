"""What is known of a conversation, and when it is over."""

import json
from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest

from holdfast.messages import Usage
from holdfast_agent.sessions import SessionEntry, reset_reason
from holdfast_agent.settings import AgentSettings, SessionReset, SessionSettings

NOW = 1_770_732_000_000


def at(text: str, zone: str = "Europe/Berlin") -> int:
    """A moment by a clock in Berlin, in Unix milliseconds."""
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def settings(**reset: object) -> AgentSettings:
    """Settings of a user in Berlin with these rules."""
    session = SessionSettings(reset=msgspec.convert(reset, SessionReset))
    return AgentSettings(timezone="Europe/Berlin", session=session)


class TestJson:
    """The entry as it is written."""

    def test_the_fields_are_those_that_others_write(self) -> None:
        """Names are OpenClaw's, times are milliseconds, and what is not known is left out."""
        entry = SessionEntry(session_id="s", updated_at=NOW, memory_flush_compaction_count=0, total_tokens_fresh=False)
        assert entry.to_json() == {
            "sessionId": "s",
            "updatedAt": NOW,
            "compactionCount": 0,
            "memoryFlushCompactionCount": 0,
            "totalTokensFresh": False,
        }
        assert SessionEntry().to_json() == {"sessionId": "", "updatedAt": 0, "compactionCount": 0}

    def test_what_others_wrote_stays(self) -> None:
        """Unknown fields come back as they were, after a change as well."""
        data = {"sessionId": "s", "updatedAt": 5, "compactionCount": 2, "thinkingLevel": "low", "skills": {"a": [1]}}
        entry = SessionEntry.from_json(json.loads(json.dumps(data)))
        assert entry.to_json() == data
        assert entry.with_input(9).to_json() == data | {"updatedAt": 9, "lastInteractionAt": 9}

    @pytest.mark.parametrize("data", [None, 3, "x", [], {"sessionId": 4, "updatedAt": "now", "inputTokens": True}])
    def test_damage_counts_as_not_known(self, data: object) -> None:
        """A field of the wrong type is no reason to fail."""
        assert SessionEntry.from_json(data) == SessionEntry()


class TestLife:
    """What happens to an entry."""

    def test_replies_add_up(self) -> None:
        """Tokens and cost are summed; the window is that of the last reply."""
        entry = SessionEntry(session_id="s")
        for usage in (Usage(input=10, output=5, cache_read=100), Usage(input=20, output=5, cache_write=7, total=140)):
            entry = entry.with_reply(usage, now=NOW, model="p/m", window=200_000, cost=0.25)
        assert (entry.input_tokens, entry.output_tokens, entry.cache_read, entry.cache_write) == (30, 10, 100, 7)
        assert (entry.total_tokens, entry.total_tokens_fresh, entry.context_tokens) == (140, True, 200_000)
        assert (entry.model, entry.model_provider, entry.estimated_cost_usd) == ("m", "p", 0.5)
        silent = entry.with_reply(None, now=NOW, model="p/m", window=200_000)
        assert (silent.total_tokens, silent.total_tokens_fresh) == (140, False)

    def test_one_flush_for_each_compaction(self) -> None:
        """A flush counts for its cycle; the next compaction opens another."""
        entry = SessionEntry(session_id="s")
        assert not entry.is_flushed
        entry = entry.with_flush(now=NOW, cycle=0)
        assert entry.is_flushed
        entry = entry.with_compaction(21_000, now=NOW)
        assert (entry.compaction_count, entry.total_tokens, entry.total_tokens_fresh) == (1, 21_000, True)
        assert not entry.is_flushed

    def test_a_flush_that_compacts_does_not_skip_the_next_cycle(self) -> None:
        """The count from before the turn is what is noted."""
        entry = SessionEntry(session_id="s").with_compaction(1, now=NOW).with_flush(now=NOW, cycle=0)
        assert not entry.is_flushed

    def test_failures_end_the_cycle_after_a_while(self) -> None:
        """After the third failure in a row the cycle continues without notes; the next one starts to count again."""
        entry = SessionEntry(session_id="s")
        for _ in range(2):
            entry = entry.with_failed_flush("x" * 900, now=NOW, max_failures=3)
        assert not entry.is_flushed
        assert len(entry.memory_flush_last_failure_error) == 200
        entry = entry.with_failed_flush("x", now=NOW, max_failures=3)
        assert entry.is_flushed
        entry = entry.with_compaction(1, now=NOW)
        assert not entry.is_flushed
        assert entry.memory_flush_failure_count == 0

    def test_a_new_conversation_keeps_the_model_only(self) -> None:
        """Counters begin again; what the user chose stays."""
        old = SessionEntry(session_id="a", model="m", compaction_count=3, input_tokens=9, other={"label": "work"})
        new = old.successor(session_id="b", session_file="b.jsonl", now=NOW)
        assert (new.session_id, new.model, new.compaction_count, new.input_tokens) == ("b", "m", 0, 0)
        assert (new.session_started_at, new.other) == (NOW, {"label": "work"})


class TestDue:
    """When the next message starts afresh."""

    @pytest.mark.parametrize(
        ("last", "now", "due"),
        [
            ("2026-02-10T03:59", "2026-02-10T04:00", True),
            ("2026-02-10T04:00", "2026-02-11T03:59", False),
            ("2026-02-10T04:00", "2026-02-11T04:00", True),
            ("2026-02-09T23:00", "2026-02-10T01:00", False),
            ("2026-03-28T12:00", "2026-03-29T03:59", False),  # the night in which an hour is missing
            ("2026-03-28T12:00", "2026-03-29T04:01", True),
            ("2026-10-24T12:00", "2026-10-25T03:30", False),  # the night in which an hour comes twice
        ],
    )
    def test_daily(self, last: str, now: str, due: bool) -> None:  # noqa: FBT001 - a table
        """A day ends at four by the user's clock, whatever the night."""
        entry = SessionEntry(session_id="s", updated_at=at(last))
        assert reset_reason(entry, at(now), settings(mode="daily")) == ("daily" if due else "")

    def test_an_hour_without_a_mode_means_daily(self) -> None:
        """A mode that is named counts before the hour."""
        entry = SessionEntry(session_id="s", updated_at=at("2026-02-10T04:59"))
        assert reset_reason(entry, at("2026-02-10T05:00"), settings(at_hour=5)) == "daily"
        assert reset_reason(entry, at("2026-02-10T05:00"), settings(at_hour=6)) == ""
        for mode in ("never", "idle"):
            assert not reset_reason(entry, at("2026-02-10T05:00"), settings(mode=mode, at_hour=5))

    def test_idle(self) -> None:
        """A pause longer than the limit ends it; the limit itself does not; unset, it is an hour."""
        entry = SessionEntry(session_id="s", updated_at=NOW)
        for rules, minutes in (({"mode": "idle", "idle_minutes": 480}, 480), ({"mode": "idle"}, 60)):
            assert not reset_reason(entry, NOW + minutes * 60_000, settings(**rules))
            assert reset_reason(entry, NOW + minutes * 60_000 + 1, settings(**rules))

    def test_whichever_comes_first(self) -> None:
        """A pause that is set counts in every mode."""
        entry = SessionEntry(session_id="s", updated_at=at("2026-02-10T10:00"))
        assert reset_reason(entry, at("2026-02-10T12:01"), settings(idle_minutes=120)) == "idle"
        assert reset_reason(entry, at("2026-02-10T12:01"), settings(mode="daily", idle_minutes=120)) == "idle"
        assert not reset_reason(entry, at("2026-02-10T12:01"), settings(mode="daily"))

    def test_never(self) -> None:
        """A conversation may continue for years, and one that never began is not over."""
        assert not reset_reason(SessionEntry(session_id="s", updated_at=1), NOW, settings())
        assert not reset_reason(SessionEntry(), NOW, settings(mode="daily"))

    def test_heartbeats_do_not_keep_it_awake(self) -> None:
        """What counts is when the user last said something."""
        entry = SessionEntry(session_id="s", updated_at=NOW, last_interaction_at=NOW - 7_200_000)
        assert reset_reason(entry, NOW, settings(mode="idle", idle_minutes=60))
