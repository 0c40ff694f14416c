"""Words that name a secret: keys, variables, options, and words of sentences in many languages."""

import re
from functools import cache, lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from holdfast.patterns import compile_once, load

__all__ = ["LOOK_BACK", "Kind", "Name", "classify", "compile_name", "find_word"]

Kind: TypeAlias = Literal["password", "token", "weak", "code"]
"""The kind of value that a name has. A `weak` name often names something else: only a random value is a secret."""

LOOK_BACK: Final = 48  # characters of a name


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return compile_once(load("secrets")["keyed"][name])


@cache
def compile_name() -> re.Pattern[str]:
    """Compile the pattern of all words that name a secret; the group is the kind."""
    words, others = load("secrets")["names"]["latin"], load("secrets")["names"]["other"]
    latin = "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in words.items())
    other = "|".join(f"(?P<other_{kind}>{pattern})" for kind, pattern in others.items())
    return re.compile(f"(?i:{latin}){load('secrets')['names']['suffix']}|(?i:{other})")


class Name(NamedTuple):
    """A word that names a secret, and what it stands for."""

    kind: Kind
    word: str
    start: int
    end: int

    @property
    def rule(self) -> str:
        """The rule that a secret of this name is found by."""
        return "token" if self.kind == "weak" else self.kind


def classify(text: str, match: re.Match[str]) -> Name | None:
    """Tell what a word stands for, by the words before it; None if it names no secret."""
    kind = cast("Kind", (match.lastgroup or "").removeprefix("other_"))
    word = match.group().lower()
    name = Name(kind, word, match.start(), match.end())
    if not word.isascii() or kind in {"weak", "code"}:
        return name
    behind = text[max(0, match.start() - LOOK_BACK) : match.start()]
    before = _pattern("word backwards").match(behind.rstrip("_. -0123456789")[::-1])
    last = before.group()[::-1].lower() if before else ""
    if word.startswith("key"):
        if _pattern("key of").fullmatch(last):
            return name
        if _pattern("password key").fullmatch(last):
            return name._replace(kind="password")
        is_other = not last or _pattern("other keys").fullmatch(last)
        is_query = behind.endswith(("?", "&"))
        return name._replace(kind="weak") if is_query or not is_other else None
    if word.startswith("pw"):  # two letters at the end of a random id
        return name if _pattern("plain backwards").match(behind[::-1]) else None
    if word == "pass" and behind[-1:].isalpha():  # `smtp_pass`, `dbPass`, `storepass`, but not `bypass`
        is_hump = behind[-1:].islower() and match.group()[0].isupper()
        is_own = is_hump or _pattern("pass of").fullmatch(last)
        return name._replace(word="passwd") if is_own else None
    if word == "pass" and behind.endswith(("_", ".", "-")):
        return name._replace(word="passwd")
    if word == "passe":  # `mot de passe`, `palavra-passe`; by itself it is a verb
        return name if _pattern("passe backwards").match(behind[::-1].lower()) else None
    if kind == "token" and (_pattern("harmless").fullmatch(last) or (last == "key" and word.startswith("token"))):
        return None
    return name


@lru_cache(maxsize=4096)  # messages repeat the same few keys
def find_word(name: str) -> Name | None:
    """Return the word of a key that names a secret; None if it names none."""
    names = load("secrets")["names"]
    lowered = name.lower()
    stems = (*names["stems"], *names["other stems"]) if not name.isascii() else names["stems"]
    for start in sorted({lowered.rfind(stem) for stem in stems} - {-1}):
        match = compile_name().match(name, start)
        if match is not None and match.end() == len(name):
            return classify(name, match)
    return None
