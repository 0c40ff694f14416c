"""Text of conversations as HTML: Markdown without raw HTML, links that tell nothing, and no pictures from elsewhere."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

from holdfast.memory.query import weigh_terms
from holdfast.text import is_unsegmented, join_spans, term_spans

MAX_MARKDOWN: Final = 40_000
"""Characters from which a text is shown as plain text."""
_CONTROLS: Final = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127), "�")
_DIRECTIONS: Final = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "�")
"""Marks that change the direction of the text around them, and so can hide it."""
_CODE_LINE: Final = re.compile(r"\t| {2,}[^\s*-]|@@ |diff --git |[+-](?! \S)")
"""The beginning of a line that is indented, or of a diff; not that of a list."""


def clean(text: str) -> str:
    """Replace control characters, ANSI escapes among them, and marks that turn the direction of the text."""
    return text.translate(_CONTROLS | _DIRECTIONS)


def breakable(path: str) -> Markup:
    """Let a path break after its separators and hyphens, and not inside a name."""
    return Markup("<wbr>").join(re.split(r"(?<=[/\\_-])(?=[^/\\_-])", clean(path)))


class _Renderer(RendererHTML):
    """Renders images as their text, and links so that the page they lead to learns nothing."""

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]) -> str:  # noqa: ARG002 - the signature of a rule
        return str(escape(f"[image: {tokens[idx].content}]"))

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]) -> str:
        tokens[idx].attrSet("rel", "noopener noreferrer nofollow")
        tokens[idx].attrSet("target", "_blank")
        return self.renderToken(tokens, idx, options, env)


_PARSER: Final = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer).enable("table")


def markdown(text: str) -> Markup:
    """Render Markdown; a very long text is shown as plain text."""
    if len(text) > MAX_MARKDOWN:
        return plain(text)
    return Markup(_PARSER.render(clean(text)))  # noqa: S704 - raw HTML is off


def mark_code(text: str) -> Markup:
    """Show a sentence of ours: what is between backticks is code."""
    parts = clean(text).split("`")
    shown = Markup()
    for place, part in enumerate(parts):
        is_code = place % 2 == 1 and place < len(parts) - 1
        shown += Markup("<code>{}</code>").format(part) if is_code else escape(part)
    return shown


def excerpt(text: str, query: str, *, max_chars: int = 400) -> Markup:
    """Show the part of a text around the first words of a query in it, with these words marked."""
    spans = _find_words(text, query)
    start = 0
    if spans and spans[0][0] > max_chars // 2:
        start = text.rfind(" ", 0, spans[0][0] - max_chars // 4) + 1
        start = max(start, spans[0][0] - max_chars // 2)  # no blank is near, as in Chinese
    stop = min(len(text), start + max_chars)
    shown = escape("… " if start else "")
    done = start
    for first, last in spans:
        if first >= start and last <= stop:
            shown += escape(clean(text[done:first])) + Markup("<mark>{}</mark>").format(clean(text[first:last]))
            done = last
    return shown + escape(clean(text[done:stop])) + ("…" if stop < len(text) else "")


def is_code(text: str) -> bool:
    """Return whether most lines of a text are those of a diff, or indented: then columns matter."""
    lines = [line for line in text.splitlines() if line.strip()]
    return sum(_CODE_LINE.match(line) is not None for line in lines) * 2 > len(lines)


def _find_words(text: str, query: str) -> list[tuple[int, int]]:
    """Return where the words of a query are in a text, in any of their forms."""
    wanted = set(weigh_terms([query]))
    pairs = {term for term in wanted if len(term) > 1 and is_unsegmented(term)}
    if pairs:  # a single character of a Chinese word says little
        wanted = {term for term in wanted if len(term) > 1 or not is_unsegmented(term)}
    return join_spans((start, stop) for start, stop, found in term_spans(text) if not wanted.isdisjoint(found))


def plain(text: str) -> Markup:
    """Show a text as plain text."""
    return Markup('<pre tabindex="0">{}</pre>').format(clean(text))
