"""Changes in the text of JSON files."""

from __future__ import annotations

import json
from typing import Any

import json5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.hooks import json_text

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=4), inner, max_size=3),
    max_leaves=8,
)
INDENTS = st.sampled_from([None, 2, 4, "\t"])


@given(st.dictionaries(st.text(alphabet="abc中", min_size=1, max_size=3), VALUES, max_size=4), INDENTS, VALUES)
def test_a_value_that_is_added_and_removed_leaves_the_same_text(
    data: dict[str, Any], indent: int | str | None, value: Any
) -> None:
    """Only an empty object is written in another way than before."""
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    added = json_text.set_value(text, "new", value)
    assert json.loads(added) == {**data, "new": value}
    assert json_text.remove(added, "new") == text


@given(st.lists(VALUES, max_size=4), INDENTS, VALUES)
def test_an_item_that_is_added_and_removed_leaves_the_same_text(
    items: list[Any], indent: int | str | None, item: Any
) -> None:
    """As for members of an object."""
    text = json.dumps({"list": items}, indent=indent)
    added = json_text.append(text, "list", {"own": item})
    assert json.loads(added) == {"list": [*items, {"own": item}]}
    assert json_text.remove_items(added, "list", lambda one: isinstance(one, dict) and "own" in one) == text


class TestComments:
    def test_the_comment_of_a_line_stays_with_its_line(self) -> None:
        text = '{\n  "a": 1 // one\n  // end\n}'
        added = json_text.set_value(text, "b", 2)
        assert added == '{\n  "a": 1, // one\n  "b": 2\n  // end\n}'
        assert json_text.remove(added, "b") == text

    def test_a_trailing_comma_is_followed_by_one(self) -> None:
        text = "{\n  a: 1, /* one */\n}\n"
        added = json_text.set_value(text, "b.c", [2])
        assert added == '{\n  a: 1, /* one */\n  "b": {\n    "c": [\n      2\n    ]\n  },\n}\n'
        assert json_text.remove(added, "b") == text

    def test_marks_of_comments_inside_of_strings_are_text(self) -> None:
        text = """{"a": "// x", 'b': '/* y */', "c": "\\"// z"} // real"""
        assert json_text.list_comments(text) == ["// real"]
        assert json5.loads(json_text.set_value(text, "d", 1)) == {"a": "// x", "b": "/* y */", "c": '"// z', "d": 1}

    def test_a_comment_next_to_a_removed_value_stays(self) -> None:
        text = '{\n  "a": 1,\n  // about b\n  "b": 2 // why\n}'
        left = json_text.remove(text, "b")
        assert json5.loads(left) == {"a": 1}
        assert "// about b" in left
        assert "// why" in left

    def test_a_value_on_the_same_line_does_not_become_part_of_a_comment(self) -> None:
        for text in ('{\n  // about\n  "b": 2, "c": 3}', '{\n  "c": 3, // about\n  "b": 2 }'):
            left = json_text.remove(text, "b")
            assert json5.loads(left) == {"c": 3}
            assert json_text.list_comments(left) == ["// about"]


class TestValues:
    def test_the_last_of_two_equal_keys_counts(self) -> None:
        text = '{"a": 1, "a": 2}'
        assert json_text.get(text, "a") == 2
        assert json_text.set_value(text, "a", 3) == '{"a": 1, "a": 3}'
        assert json_text.remove(text, "a") == '{"a": 1}'

    def test_a_value_on_the_way_that_is_not_an_object_is_refused(self) -> None:
        with pytest.raises(InputError, match=r"`a\.b` is not an object"):
            json_text.set_value('{"a": {"b": [1]}}', "a.b.c", 1)
        with pytest.raises(InputError, match="`a` is not a list"):
            json_text.append('{"a": {}}', "a", 1)

    def test_what_is_not_there_is_missing(self) -> None:
        assert json_text.get("{}", "a.b") is json_text.MISSING
        assert json_text.remove('{"a": 1}', "b.c") == '{"a": 1}'
        assert json_text.set_raw('{"a": 1}', "b", "2") == '{"a": 1}'

    def test_the_first_member_is_removed_with_its_comma(self) -> None:
        assert json_text.remove('{\n  "a": 1,\n  "b": 2\n}', "a") == '{\n  "b": 2\n}'
