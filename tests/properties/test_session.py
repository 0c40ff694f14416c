"""Sessions under any sequence of appends, branches and crashes: no whole entry is lost, and no byte is rewritten."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import TranscriptError
from holdfast.transcripts import Entry, stream
from holdfast.transcripts.records import read_entry
from holdfast.transcripts.session import Session, Tree, compaction_region
from support.session_files import begin, branch, calls, compaction, rebuild, reopen, says, user
from support.strategies import examples

Step = Callable[[Session, int, str], object]


def pick(session: Session, choice: int) -> str | None:
    """Return one of the entries, or the place before the first."""
    ids = [None, *(entry.id for entry in session.entries)]
    return ids[choice % len(ids)]


def compact(session: Session, choice: int, text: str) -> object:
    """Replace the path before one of its entries with a summary."""
    path = [None, *(entry.id for entry in session.path())]
    return session.append_compaction(text, first_kept=path[choice % len(path)], tokens_before=choice, durable=False)


def add(session: Session, kind: str, **fields: object) -> object:
    """Append an entry of any kind."""
    return session.append(kind, fields, durable=False)


def come_back(session: Session, choice: int, text: str) -> object:
    """Go back to one of the entries with a summary of what is left behind."""
    target = pick(session, choice)
    return add(session, "branch_summary", parentId=target, fromId=target or "root", summary=text)


STEPS: dict[str, Step] = {
    "say": lambda session, _, text: session.append_message(says(text), durable=False),
    "reply": lambda session, _, text: session.append_message(says(text, "assistant"), durable=False),
    "call": lambda session, _, text: session.append_message(calls("a", text), durable=False),
    "custom": lambda session, choice, text: add(session, "custom", customType=text, data=[choice]),
    "side": lambda session, _, text: add(session, "custom", customType=text, appendMode="side"),
    "unknown": lambda session, _, text: add(session, "x" + text),
    "model": lambda session, _, text: add(session, "model_change", provider="p", modelId=text),
    "branch": lambda session, choice, _: branch(session, pick(session, choice)),
    "return": come_back,
    "compact": compact,
    "label": lambda session, choice, text: add(session, "label", targetId=pick(session, choice), label=text),
}

TEXT = st.text(st.characters(codec=None), max_size=12) | st.sampled_from(
    ["中文", "かな", "한글", "😀", "\ud83d", "\n", ""]
)
STEP = st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 30), TEXT)


@contextmanager
def a_session() -> Iterator[Session]:
    """Open a new session in its own folder."""
    with tempfile.TemporaryDirectory() as folder:
        yield begin(Path(folder))


def play(session: Session, steps: list[tuple[str, int, str]]) -> None:
    """Take the steps, each of which may only append to the file."""
    for name, choice, text in steps:
        before = session.file.read_bytes()
        STEPS[name](session, choice, text)
        assert session.file.read_bytes().startswith(before)


def check(session: Session) -> None:
    """Check that every path ends, the leaf is an entry, and the context can be built."""
    tree = Tree(session.entries)
    for entry in session.entries:
        path = tree.path(entry.id)
        assert all(step.type != "leaf" for step in path)
        assert len({step.id for step in path}) == len(path)
    assert session.leaf is None or session.leaf in tree
    assert session.context().problems == ()


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(STEP, max_size=12))
def test_reopened_session_is_the_same(steps: list[tuple[str, int, str]]) -> None:
    """After any steps, the file read again has the same entries, leaf and context."""
    with a_session() as session:
        play(session, steps)
        check(session)
        again = reopen(session.file)
        assert again.problems == ()
        assert again.entries == session.entries
        assert again.leaf == session.leaf
        assert again.context() == session.context()
        streamed = [item for item in stream(session.file, format="pi") if isinstance(item, Entry)]
        assert rebuild(streamed).messages == session.context().messages


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.tuples(st.lists(STEP, max_size=5), st.floats(0, 1)), min_size=1, max_size=3))
def test_crash_at_any_byte(lives: list[tuple[list[tuple[str, int, str]], float]]) -> None:
    """A file that is cut anywhere loses no whole entry; the torn one is reported, and the session continues."""
    with a_session() as session:
        file = session.file
        for steps, share in lives:
            play(reopen(file), steps)
            content = file.read_bytes()
            left = content[: round(share * len(content))]
            os.truncate(file, len(left))
            check_recovered(reopen(file), left)
        reopen(file).append_message(says("alive"), durable=False)
        assert reopen(file).context().messages[-1].text == "alive"


def check_recovered(session: Session, left: bytes) -> None:
    """Check that the file after a crash is complete, closed and reported, and that nothing is reported without one."""
    after = session.file.read_bytes()
    assert after.startswith(left)
    assert after.endswith(b"\n")
    lines = [line for line in left.split(b"\n") if line]
    ids = [json.loads(line)["id"] for line in lines if is_whole(line)]
    assert [entry.id for entry in session.entries] == ids[1:]
    damaged = not left.endswith(b"\n") or not all(is_whole(line) for line in lines)
    assert bool(session.problems) == damaged
    check(session)


def is_whole(line: bytes) -> bool:
    """Return whether a line holds a record that can be read."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


# --- anything in a file ------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "d", "s"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | NAMES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
TYPES = st.sampled_from(
    ["message", "custom_message", "compaction", "branch_summary", "model_change", "label", "leaf", "session", "other"]
)
ROLES = st.sampled_from(["user", "assistant", "toolResult", "bashExecution", "custom", "martian"])
MESSAGES = st.fixed_dictionaries(
    {"role": ROLES | VALUES},
    optional=dict.fromkeys(("content", "timestamp", "usage", "model", "provider", "toolCallId", "summary"), VALUES),
)
RECORDS = st.fixed_dictionaries(
    {"type": TYPES | VALUES},
    optional={
        "id": NAMES | VALUES,
        "parentId": NAMES | VALUES,
        "message": MESSAGES | VALUES,
        "targetId": NAMES | VALUES,
        "appendParentId": NAMES | VALUES,
        "appendMode": st.sampled_from(["side", "x"]),
        "firstKeptEntryId": NAMES | VALUES,
        "summary": VALUES,
        "content": VALUES,
        "timestamp": st.sampled_from(["2026-02-10T14:00:00.000Z", "2026-02-10", "x"]) | VALUES,
        "label": VALUES,
        "version": VALUES,
    },
)
LINES = RECORDS.map(lambda record: json.dumps(record).encode()) | st.binary(max_size=20).map(
    lambda raw: raw.replace(b"\n", b"")
)


@settings(max_examples=examples(250), deadline=None)
@given(st.booleans(), st.lists(LINES, max_size=8))
def test_any_lines_are_read_or_refused(headed: bool, lines: list[bytes]) -> None:  # noqa: FBT001 - hypothesis names it
    """Any file is opened with what can be used, or refused unchanged; there is never another error."""
    header = b'{"type":"session","version":3,"id":"s"}'
    content = b"\n".join([header, *lines] if headed else lines)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "s.jsonl"
        file.write_bytes(content)
        try:
            session = reopen(file)
        except TranscriptError:
            assert file.read_bytes() == content
            return
        assert any(kept.read_bytes().startswith(content) for kept in Path(folder).iterdir())
        session.context()
        for entry in session.entries:
            rebuild(session.entries, entry.id)
        session.append_message(says("on"), durable=False)
        assert session.context().messages[-1].text == "on"
        if headed:
            assert file.read_bytes().startswith(content)


@given(st.lists(RECORDS, max_size=12))
def test_rebuild_never_fails(raw: list[dict[str, Any]]) -> None:
    """The context and the region of any records are built, and the region is on the path."""
    entries = [read_entry(record, number) for number, record in enumerate(raw, start=1)]
    rebuild(entries)
    tree = Tree(entries)
    path = tree.path(tree.leaf)
    assert len({entry.id for entry in path}) == len(path)
    assert all(entry in path and entry.type != "compaction" for entry in compaction_region(path))


# --- compactions -------------------------------------------------------------


@given(st.lists(st.integers(0, 9) | st.none(), max_size=30))
def test_nothing_falls_between_two_compactions(steps: list[int | None]) -> None:
    """Every message is in the context or in a summary, after any number of compactions."""
    path: list[Entry] = []
    summarised: set[str | None] = set()
    for number, cut in enumerate(steps, start=1):
        last = path[-1].id if path else None
        region = compaction_region(path)
        if cut is None or not region:
            path.append(user(f"m{number}", last))
            continue
        kept = min(cut, len(region) - 1)
        summarised |= {entry.id for entry in region[:kept]}
        path.append(compaction(f"c{number}", last, region[kept].id))
    seen = {message.id for message in rebuild(path).messages}
    assert {entry.id for entry in path if entry.type == "message"} == (seen | summarised) - {
        entry.id for entry in path if entry.type == "compaction"
    }
