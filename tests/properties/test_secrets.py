"""I8 and I13 on every way out: no secret, and nothing forgotten, is in any file or any answer."""

import io
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.embed import Choice, HashEmbedder
from holdfast.memory import transfer
from holdfast.memory.memory import Memory
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.settings import Settings
from holdfast.store.base import Scope
from holdfast.store.sqlite import SqliteStore
from support.strategies import examples

SCOPE = Scope(session="s")
SECRETS = (
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "AKIAQ3EGRLWM5N7PXJ2K",
    "xoxb-2431764578-2431764579-aBcDeFgHiJkLmNoPqRsTuVwX",
)
words = st.lists(st.sampled_from(["port", "gateway", "端口", "数据库", "항구", "\n", "- "]), min_size=1, max_size=8)
places = st.sampled_from(["user", "assistant", "result", "call", "fact", "name"])


def say(memory: Memory, place: str, text: str) -> None:
    """Put a text into memory in one of its places."""
    match place:
        case "fact":
            memory.remember(text, scope=SCOPE, subject="gateway", slot="port")
        case "result":
            part = ToolResult(call_id="c", content=(Text(text=text),))
            memory.ingest([Message(role="tool", parts=(part,))], scope=SCOPE)
        case "call":
            memory.ingest(
                [Message(role="assistant", parts=(ToolCall(id="c", name="run", arguments={"do": [text]}),))],
                scope=SCOPE,
            )
        case "name":
            memory.ingest([Message(role="user", parts=(Text(text="a port"),), name=text)], scope=SCOPE)
        case role:
            memory.ingest([Message(role=role, parts=(Text(text=text),))], scope=SCOPE)  # type: ignore[arg-type]


def everything(memory: Memory, home: Path) -> bytes:
    """Return every file of a memory, every export of it, and its answers."""
    exports = home / "exports"
    exports.mkdir(exist_ok=True)
    transfer.save_folder(memory.store, [Scope()], Path(tempfile.mkdtemp(dir=exports)), embedder=memory.embedder)
    lines, page = io.StringIO(), io.StringIO()
    transfer.to_jsonl(memory.store, [Scope()], lines)
    transfer.to_markdown(memory.store, [Scope()], page, moment=str)
    found = memory.recall(("port gateway 端口 항구",), scope=SCOPE, cap=4000)
    received = [lines.getvalue(), page.getvalue(), repr(found), repr(memory.search("port", scope=SCOPE))]
    files = [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    return b"\n".join([*files, *(text.encode("utf-8", "replace") for text in received)])


@settings(max_examples=examples(12), deadline=None)
@given(messages=st.lists(st.tuples(places, words, st.sampled_from(SECRETS), words), min_size=1, max_size=4))
def test_no_secret_gets_out(messages: list[tuple[str, list[str], str, list[str]]]) -> None:
    """I8: wherever a secret was said, it is in no file, export, block or search result."""
    with tempfile.TemporaryDirectory() as home:
        choice = Choice(embedder=HashEmbedder(dimension=8), reasons=())
        with Memory(store=SqliteStore(Path(home) / "a.db"), settings=Settings(), choice=choice) as memory:
            for place, before, secret, after in messages:
                say(memory, place, f"{' '.join(before)} {secret} {' '.join(after)}")
            memory.embed()
            held = everything(memory, Path(home))
    assert not any(secret.encode() in held for _, _, secret, _ in messages)


@example(kept=[], gone=["fact", "fact"])
@settings(max_examples=examples(30), deadline=None)
@given(kept=st.lists(st.tuples(places, words), max_size=3), gone=st.lists(places, min_size=1, max_size=3))
def test_what_is_forgotten_is_nowhere(kept: list[tuple[str, list[str]]], gone: list[str]) -> None:
    """I13: forgotten text is in no file of the store, no later export and no answer."""
    canary = "zebracanary"
    with tempfile.TemporaryDirectory() as home:
        choice = Choice(embedder=HashEmbedder(dimension=8), reasons=())
        with Memory(store=SqliteStore(Path(home) / "a.db"), settings=Settings(), choice=choice) as memory:
            for place, text in kept:
                say(memory, place, "kept " + " ".join(text))
            before = {row.id for row in memory.get(range(1, 100), scope=SCOPE)}
            known = {fact.id for fact in memory.facts(scope=SCOPE)}
            for number, place in enumerate(gone):
                say(memory, place, f"{canary} {number} port gateway")
            memory.embed()
            after = {row.id for row in memory.get(range(1, 100), scope=SCOPE)} - before
            facts = {fact.id for fact in memory.facts(scope=SCOPE)} - known
            memory.forget(scope=SCOPE, ids=sorted(after), fact_ids=sorted(facts))
            held = everything(memory, Path(home))
    assert canary.encode() not in held
