"""What a model is told of a tool, and what reaches it."""

from threading import Event
from typing import Annotated, Literal

import pytest
from msgspec import Meta

from holdfast.errors import InputError
from holdfast_agent.toolbox import Answer, Arguments, make_schema, make_tool


class Asked(Arguments, frozen=True):
    """Arguments of every sort."""

    path: Annotated[str, Meta(description="Where.")]
    max_lines: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="How many.")] = None
    kind: Literal["a", "b"] = "a"
    either: int | str | None = None


OFFER = make_tool("look", Asked, lambda asked, _: Answer(text=f"{asked.path} {asked.max_lines} {asked.kind}"))


def test_the_schema_is_plain_json_schema() -> None:
    """Names are camelCase, options lose their null, nothing refers elsewhere."""
    assert make_schema(Asked) == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where."},
            "maxLines": {"type": "integer", "minimum": 1, "description": "How many."},
            "kind": {"enum": ["a", "b"], "default": "a"},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["path"],
    }


def test_the_docstring_is_the_description() -> None:
    """Unless another one is given."""
    assert OFFER.tool.description == "Arguments of every sort."
    assert make_tool("look", Asked, lambda *_: Answer(text=""), description="Looks.").tool.description == "Looks."


def test_arguments_are_read_with_tolerance() -> None:
    """A number written as text is a number, null is "not given", and what no one knows is passed over."""
    given = {"path": "x", "maxLines": "3", "mood": "good"}
    assert OFFER.run(given, Event()).text == "x 3 a"
    assert OFFER.run({"path": "x", "maxLines": None}, Event()).text == "x None a"


@pytest.mark.parametrize(
    "given", [{}, {"path": 3}, {"path": "x", "maxLines": 0}, {"path": "x", "kind": "c"}, "{broken"]
)
def test_wrong_arguments_name_what_is_needed(given: dict[str, object] | str) -> None:
    """The error names what is wrong and every argument, the optional ones marked."""
    with pytest.raises(InputError, match=r"`path`, `maxLines`\?, `kind`\?, `either`\?"):
        OFFER.run(given, Event())
