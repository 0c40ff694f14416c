"""Write the pages of the Python API from the docstrings: docs/api.md and docs/api/*.md.

    python scripts/api_pages.py [--check]

With `--check` nothing is written; the exit code is 1 if a page is not up to date.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import griffe

ROOT: Final = Path(__file__).parents[1]
MAX_LINE: Final = 100
NOTE: Final = "<!-- Written by scripts/api_pages.py from the docstrings: change those, then run `make docs`. -->"
INTRODUCTION: Final = """\
Everything in these pages is imported from `holdfast`. Arguments after the first are keyword-only, and a misspelt
keyword is a `TypeError`. Names that a guide imports from another module, such as `holdfast.settings`, `holdfast.models`
or `holdfast.redaction`, are public too, and so are the rows of a `Store` in `holdfast.store.base`. Everything else is
internal and may change in any version. `holdfast.__version__` is the version as text.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page: its file, its title, what it is about, and the names on it."""

    file: str
    title: str
    about: str
    names: tuple[str, ...]


PAGES: Final = (
    Page(
        file="engine",
        title="Engine and sessions",
        about="Open a memory, make windows, archive replies, recall, forget.",
        names=("Engine", "Session", "AsyncEngine", "AsyncSession", "AutoCompaction", "Incoming"),
    ),
    Page(
        file="windows",
        title="Windows and reports",
        about="What is sent for a request, and the report about it: what was kept, cut and recalled, and why.",
        names=(
            *("Window", "Item", "Block", "ValidWindow", "Repair", "Violation", "ContextReport", "Category", "Change"),
            *(
                "WorkspaceFile",
                "Cut",
                "CutText",
                "CutMessage",
                "AppendResult",
                "Edit",
                "Pruned",
                "Trimmed",
                "Relevance",
            ),
            *("Summarised", "Recalled", "OverviewAdded", "Restored", "Pinned", "Forgotten"),
        ),
    ),
    Page(
        file="memory",
        title="Memory",
        about="What recall, search and the lists of facts and sessions return.",
        names=(
            *("Recall", "Hit", "Missed", "Parts", "Exclusions", "FactHit", "Conflict", "FactRow", "FactType"),
            *("MessageRow", "PassageText", "Stats", "LearningState", "SessionInfo", "SessionLine", "Scope"),
        ),
    ),
    Page(
        file="compaction",
        title="Compaction and hooks",
        about="The plan and the result of a compaction, and hooks around it.",
        names=(
            *("Compaction", "CompactionPlan", "Activity", "FailedCall", "PlanStep", "Summary", "Checklist", "Progress"),
            *("Hooks", "Compacting", "Compacted", "SummaryRequest", "SummaryResult"),
        ),
    ),
    Page(
        file="messages",
        title="Messages",
        about="The canonical form that every [provider's format](../window.md#formats) is read into.",
        names=(
            *("Message", "Part", "Role", "Origin", "Text", "Thinking", "RedactedThinking", "ToolCall", "ToolResult"),
            *("Image", "Opaque", "Usage"),
        ),
    ),
    Page(
        file="settings",
        title="Settings, models and files",
        about="Settings and models that an engine is opened with, transcripts, stores, and functions on text.",
        names=(
            *("Settings", "Loaded", "ProjectSettings", "Model", "Prompt", "Reply", "Tool"),
            *("Transcript", "Entry", "Problem", "Store", "count_text", "count_messages", "redact"),
        ),
    ),
    Page(
        file="errors",
        title="Errors",
        about="[Errors](../errors.md) says when each is raised and what data it carries.",
        names=(
            *("HoldfastError", "InputError", "ClosedError", "FormatError", "TranscriptError", "SettingsError"),
            *(
                "StorageError",
                "EncryptionError",
                "ConflictError",
                "UnavailableError",
                "EmbeddingError",
                "MissingExtraError",
            ),
            *("WindowError", "InvalidWindowError", "WindowTooSmallError", "ModelError", "ModelOverflowError"),
            *("ModelBudgetError", "ModelBusyError", "ModelTimeoutError", "ModelRefusedError", "ModelCancelledError"),
            "CompactionError",
        ),
    ),
)
MEMBERS: Final[dict[str, tuple[str, ...]]] = {
    "Engine": ("open", "close", "settings", "session", "sessions", "search", "stats", "work"),
    "Window": ("messages", "tokens", "overview", "render", "request"),
    "AsyncEngine": ("open", "settings", "session"),
    "AsyncSession": ("id", "compact"),
    "Settings": (),
}
"""The members to describe, if not all."""
WITHOUT_CONSTRUCTOR: Final = {"Engine", "Session", "AsyncEngine", "AsyncSession", "Loaded", "Settings"}
"""Classes that users do not make themselves."""


def make_pages() -> dict[Path, str]:
    """Make every page, by its file."""
    package: Any = griffe.load("holdfast", search_paths=[ROOT / "src"], docstring_parser="google", resolve_aliases=True)
    pages = {ROOT / "docs" / "api" / f"{page.file}.md": _make_page(page, package) for page in PAGES}
    pages[ROOT / "docs" / "api.md"] = _make_index(package)
    return pages


def _make_index(package: Any) -> str:
    lines = ["# Python API", "", NOTE, "", INTRODUCTION]
    for page in PAGES:
        about = page.about.replace("](../", "](")
        lines += [f"## [{page.title}](api/{page.file}.md)", "", about, "", "| name | what it is |", "| --- | --- |"]
        for name in page.names:
            first = _first_sentence(_find(package, name))
            lines.append(f"| [`holdfast.{name}`](api/{page.file}.md#{_slug(name)}) | {first} |")
        lines.append("")
    return "\n".join(lines)


def _make_page(page: Page, package: Any) -> str:
    lines = [f"# {page.title}", "", NOTE, "", page.about, ""]
    for name in page.names:
        lines += _describe(_find(package, name), name, level=2)
    return "\n".join(lines).rstrip() + "\n"


def _find(package: Any, name: str) -> Any:
    member = package[name]
    return member.final_target if member.is_alias else member


def _describe(item: Any, name: str, *, level: int) -> Iterator[str]:
    """Yield the heading, the signature and the docstring of a name, then its public members."""
    yield f"{'#' * level} {name}"
    yield ""
    signature = _signature(item, name)
    if signature:
        yield "```py"
        yield signature if '"' in signature else signature.replace("'", '"')
        yield "```"
        yield ""
    yield from _docstring(item)
    if not item.is_class:
        return
    for member_name, found in item.members.items():
        member = found.final_target if found.is_alias else found
        is_shown = member_name in MEMBERS.get(name, (member_name,))
        is_property = member.is_attribute and "property" in member.labels
        if member_name.startswith("_") or not is_shown or not member.has_docstring:
            continue
        if member.is_function or is_property:
            yield from _describe(member, f"{name}.{member_name}", level=level + 1)


def _signature(item: Any, name: str) -> str:
    if item.is_attribute:
        if "property" in item.labels:
            return f"{name}: {item.annotation}"
        return f"{name} = {item.value}" if item.value is not None else ""
    if item.is_class:
        if name in WITHOUT_CONSTRUCTOR or "Protocol" in {str(base) for base in item.bases}:
            return ""
        parameters = item.parameters
        returns = ""
    else:
        parameters = item.parameters
        returns = f" -> {item.returns}" if item.returns is not None else ""
    words = list(_format_parameters(parameters))
    if item.is_class and not words:
        return ""
    line = f"{name}({', '.join(words)}){returns}"
    if len(line) <= MAX_LINE:
        return line
    inside = "".join(f"    {word},\n" for word in words)
    return f"{name}(\n{inside}){returns}"


def _format_parameters(parameters: Any) -> Iterator[str]:
    """Yield the parameters with types and defaults, with the stars and slashes between them."""
    is_keyword_only = False
    was_positional_only = False
    for parameter in parameters:
        if parameter.name in {"self", "cls"}:
            continue
        kind = parameter.kind.value
        if was_positional_only and kind != "positional-only":
            yield "/"
        was_positional_only = kind == "positional-only"
        if kind == "keyword-only" and not is_keyword_only:
            yield "*"
        is_keyword_only = is_keyword_only or kind in {"keyword-only", "variadic positional"}
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        word = f"{stars}{parameter.name}"
        if parameter.annotation is not None:
            word += f": {parameter.annotation}"
        if parameter.default is not None and not stars:
            word += f" = {parameter.default}" if parameter.annotation is not None else f"={parameter.default}"
        yield word
    if was_positional_only:
        yield "/"


def _docstring(item: Any) -> Iterator[str]:
    if not item.has_docstring:
        return
    for section in item.docstring.parse("google", warnings=False):
        kind = section.kind.value
        if kind == "text":
            yield section.value
            yield ""
        elif kind in {"parameters", "other parameters", "attributes"}:
            yield "Arguments:" if kind != "attributes" else "Attributes:"
            yield ""
            for each in section.value:
                yield f"- `{each.name}`: {_one_line(each.description)}"
            yield ""
        elif kind == "raises":
            yield "Raises:"
            yield ""
            for each in section.value:
                yield f"- `{each.annotation}`: {_one_line(each.description)}"
            yield ""
        elif kind in {"returns", "yields"}:
            for each in section.value:
                yield f"{kind.capitalize()}: {_one_line(each.description)}"
            yield ""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _first_sentence(item: Any) -> str:
    if not item.has_docstring:
        return ""
    first = item.docstring.value.split("\n\n")[0]
    return _one_line(re.split(r"(?<=\.)\s", f"{_one_line(first)} ")[0]).replace("|", "\\|")


def _slug(name: str) -> str:
    return name.lower().replace(".", "")


def main() -> None:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    pages = make_pages()
    stale = [file for file, text in pages.items() if not file.is_file() or file.read_text("utf-8") != text]
    if options.check:
        for file in stale:
            print(f"{file.relative_to(ROOT)} is not up to date: run `make docs`")
        sys.exit(bool(stale))
    for file in stale:
        file.parent.mkdir(exist_ok=True)
        file.write_text(pages[file], "utf-8")


if __name__ == "__main__":
    main()
