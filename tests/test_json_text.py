"""JSON is decoded as `json.loads` does it, whichever decoder reads it."""

import json

import pytest

from holdfast.json_text import decode_json


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, -0.0, 1e5, true, null], "b": "é 日本語 😀"}',
        '{"a": 1, "a": 2}',
        '"\\ud800"',
        '"\ud800"',
        "123456789012345678901234567890",
        "1e400",
        "[NaN, Infinity]",
    ],
)
def test_values_are_those_of_the_standard_library(text: str) -> None:
    """Also those that the faster decoder refuses."""
    encoded = text.encode("utf-8", "surrogatepass")
    assert repr(decode_json(text)) == repr(json.loads(text))
    assert repr(decode_json(encoded)) == repr(json.loads(encoded))
    assert repr(decode_json(bytearray(encoded))) == repr(json.loads(encoded))


def test_a_byte_order_mark_is_no_value() -> None:
    """Before bytes it is skipped."""
    assert decode_json(b"\xef\xbb\xbf[1]") == [1]


@pytest.mark.parametrize("text", ["", "{", "[1,]", '"\t"', b'"\xff"'])
def test_what_is_not_json_is_an_error(text: str | bytes) -> None:
    """It is the error of the standard library."""
    with pytest.raises(ValueError, match=r"."):
        decode_json(text)


def test_a_value_that_is_nested_too_deeply() -> None:
    """It is an error that callers handle."""
    with pytest.raises(RecursionError):
        decode_json("[" * 200_000)
