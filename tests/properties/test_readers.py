"""Any file is read as it is, or refused with a typed error."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import providers
from holdfast.errors import HoldfastError
from holdfast.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolResult
from holdfast.transcripts import READERS, Transcript, read
from support.agent_files import OWN, name
from support.strategies import examples

words = st.text(min_size=1, max_size=20)
ids = st.text("abc123", min_size=1, max_size=6)
texts = st.builds(Text, text=words)
images = st.builds(Image, media_type=st.just("image/png"), data=st.just("iVBORw0KGgo="))
thoughts = st.builds(Thinking, text=words, signature=st.none() | ids)
calls = st.builds(ToolCall, id=ids, name=ids, arguments=st.dictionaries(ids, words | st.integers(), max_size=2))
results = st.builds(ToolResult, call_id=ids, content=st.tuples(texts) | st.tuples(texts, images))


suffixes = st.sampled_from([".jsonl", ".json", ".gz", ".md"])
scalars = st.none() | st.booleans() | st.integers() | words
json_values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(words, inner))


def spoken(role: str, parts: st.SearchStrategy[Part]) -> st.SearchStrategy[Message]:
    """Draw messages of a role."""
    several = st.lists(parts, min_size=1, max_size=3).map(tuple)
    return st.builds(Message, role=st.just(role), parts=several)


conversations = st.lists(
    spoken("user", texts | images) | spoken("assistant", texts | thoughts | calls) | spoken("tool", results),
    min_size=1,
    max_size=6,
)


def read_text(text: str | bytes, *, suffix: str = ".jsonl", format: str | None = None) -> Transcript:
    """Read a file with this text."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"session{suffix}"
        path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
        return read(path, format=format)


@pytest.mark.parametrize("format_", providers.FORMATS)
@settings(max_examples=examples(40))
@given(conversation=conversations)
def test_a_rendered_conversation_reads_back(format_: str, conversation: list[Message]) -> None:
    """Messages that are rendered for a provider and written one per line are read back unchanged."""
    rendered = providers.render(conversation, format_)
    if not rendered:
        return
    transcript = read_text("".join(json.dumps(wire) + "\n" for wire in rendered))
    again = transcript.messages
    assert [message.digest for message in again] == [m.digest for m in providers.read(rendered, format=format_)]
    assert [message.origin and message.origin.data for message in again] == rendered
    assert transcript.problems == ()


@pytest.mark.parametrize("format_", providers.FORMATS)
@settings(max_examples=examples(40))
@given(conversation=conversations)
def test_lines_and_array_are_the_same(format_: str, conversation: list[Message]) -> None:
    """A message list is the same as an array, under `messages`, and line by line."""
    rendered = providers.render(conversation, format_)
    if not rendered:
        return
    lines = read_text("\n".join(json.dumps(wire) for wire in rendered)).messages
    array = read_text(json.dumps(rendered, indent=1), suffix=".json").messages
    assert [message.digest for message in array] == [message.digest for message in lines]


@settings(max_examples=examples(100))
@given(content=st.binary(max_size=200) | st.text(max_size=200), suffix=suffixes)
def test_any_bytes(content: bytes | str, suffix: str) -> None:
    """A file with any bytes is read, or refused with a typed error."""
    with suppress(HoldfastError):
        read_text(content, suffix=suffix)


@pytest.mark.parametrize("format_", READERS)
@settings(max_examples=examples(40))
@given(value=json_values)
def test_any_json(format_: str, value: Any) -> None:
    """Each reader reads a file with any JSON, or refuses it with a typed error."""
    with suppress(HoldfastError):
        read_text(json.dumps(value), format=format_)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return every place in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return the value with something else in one place."""
    if not path:
        return new
    if isinstance(value, list):
        return [put(inner, path[1:], new) if key == path[0] else inner for key, inner in enumerate(value)]
    return {key: put(inner, path[1:], new) if key == path[0] else inner for key, inner in value.items()}


def records(path: Path) -> list[Any]:
    """Return the JSON values of a file."""
    try:
        return [json.loads(path.read_text())]
    except ValueError:
        return [json.loads(line) for line in path.read_text().splitlines()]


def files(path: Path) -> Iterator[Path]:
    """Return the JSON files of a session."""
    inside = sorted(path.rglob("*.json*")) if path.is_dir() else [path]
    yield from (file for file in inside if file.suffix in {".json", ".jsonl", ".txt"})


DAMAGE: list[Any] = [None, True, 7, -1.5, "x", [], {}, [None], [[]], {"type": 1}, {"role": None}, [{"type": "text"}]]
CASES = [(format_, file) for format_, path in OWN for file in files(path)]


@pytest.mark.parametrize(("format_", "path"), CASES, ids=name)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_damaged_records(format_: str, path: Path, data: st.DataObject) -> None:
    """A record with one value of the wrong type is skipped, and no other record of the file is lost."""
    lines = records(path)
    index = data.draw(st.integers(0, len(lines) - 1))
    place = data.draw(st.sampled_from(list(places(lines[index]))))
    damaged = [*lines[:index], put(lines[index], place, data.draw(st.sampled_from(DAMAGE))), *lines[index + 1 :]]
    text = "".join(json.dumps(line) + "\n" for line in damaged)
    try:
        whole = read_text("".join(json.dumps(line) + "\n" for line in lines), format=format_)
        output = read_text(text, format=format_)
    except HoldfastError:
        assert len(lines) == 1
        return
    if path.suffix == ".jsonl" and format_ != "message_list":
        assert {entry.line for entry in output.entries} | {problem.line for problem in output.problems} >= {
            entry.line for entry in whole.entries
        }
