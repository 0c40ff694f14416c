"""Every call of a model is answered once and in order; an edit changes only its passage."""

import tempfile
from pathlib import Path
from threading import Event
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.messages import ToolCall
from holdfast_agent.paths import Bounds
from holdfast_agent.toolbox import Toolbox
from holdfast_agent.tools import file_tools, flush_tools
from support.strategies import examples

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["read", "write", "edit", "bash", "", "READ"])
ARGUMENTS = st.text(max_size=20) | st.dictionaries(
    st.sampled_from(["path", "content", "offset", "limit", "oldText", "newText", "x"]), JSON, max_size=5
)
CALLS = st.lists(st.tuples(NAMES, ARGUMENTS), max_size=8)
WORDS = st.text(alphabet="ab\n字\r", max_size=12)


@settings(max_examples=examples(40))
@given(calls=CALLS, stop=st.booleans())
def test_every_call_has_one_answer(calls: list[tuple[str, Any]], stop: bool) -> None:  # noqa: FBT001 - drawn
    """With unknown tools, arguments of any shape and a user who interrupts, the results match the calls, in order."""
    cancel = Event()
    if stop:
        cancel.set()
    asked = [ToolCall(id=f"c{n}", name=name, arguments=given) for n, (name, given) in enumerate(calls)]
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "ws").mkdir()
        box = Toolbox(functions=file_tools(Bounds(root=Path(place) / "ws"), confirm=lambda _: True))
        results = box.run_all(asked, cancel=cancel)
        assert [(result.call_id, result.name) for result in results] == [(call.id, call.name) for call in asked]
        assert all(result.text for result in results)
        assert [found.name for found in Path(place).iterdir()] == ["ws"]


@settings(max_examples=examples(60))
@given(text=WORDS, old=WORDS, new=WORDS)
def test_an_edit_changes_one_passage_or_nothing(text: str, old: str, new: str) -> None:
    """A passage that occurs once is replaced; otherwise the file stays as it is and the answer is an error."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "a"
        file.write_bytes(text.encode())
        call = ToolCall(id="c", name="edit", arguments={"path": "a", "oldText": old, "newText": new})
        result = Toolbox(functions=file_tools(Bounds(root=Path(place)), confirm=lambda _: True)).run(call)
        after = file.read_bytes().decode()
        once = [start for start in range(len(text)) if old and text.startswith(old, start)]
        if result.is_error:
            assert after == text
        elif len(once) == 1 and "\r\n" not in text:
            assert after == text[: once[0]] + new + text[once[0] + len(old) :]
        assert result.is_error or old != new


@settings(max_examples=examples(30))
@given(st.lists(st.text(alphabet="ab\n# 字", max_size=20), max_size=6))
def test_a_note_only_grows(texts: list[str]) -> None:
    """Whatever is written in the silent turn, a note begins with its earlier content."""
    with tempfile.TemporaryDirectory() as place:
        box = flush_tools(Bounds(root=Path(place)), note="memory/n.md")
        file, before = Path(place) / "memory" / "n.md", b""
        for text in texts:
            box.run(ToolCall(id="c", name="write", arguments={"path": "memory/n.md", "content": text}))
            after = file.read_bytes()
            assert after.startswith(before)
            assert text.rstrip().encode() in after
            before = after
