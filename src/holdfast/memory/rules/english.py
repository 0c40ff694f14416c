"""How claims are made in English."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Final, TypeAlias

from holdfast.memory.claims import Claim, slot_of
from holdfast.memory.values import fits, kind_of, placed, where

__all__ = ["claims"]

Reader: TypeAlias = Callable[[re.Match[str]], Iterator[Claim]]

_NOW: Final = r"(?:(?:now|currently|still|always|just|recently|already) )?"
_IS: Final = rf"(?:is|are) {_NOW}"
_WAS: Final = rf"(?:has |have |was |were |got |is |are )?(?:been )?{_NOW}"
_WE: Final = rf"(?P<who>we|i)(?: have|['’]ve|['’]re| are|['’]m| am)? {_NOW}"
_LEFT: Final = r"(?P<left>.+?)"
_RIGHT: Final = r"(?P<right>.+)"
_VALUE: Final = r"(?P<value>.+)"
_FROM: Final = r"(?:from (?:port |version )?(?P<old>.+?) )?"
_INSTEAD: Final = r"(?: (?:instead of|over|rather than) (?P<old>.+?))?"
_CHANGED: Final = (
    r"(?P<verb>(?!added|compared|related|referred|listened|talked|attached|assigned)[a-z]+ed|cut|set|put|went|fell"
    r"|rose)"
    r"(?: up| down| back| over| out)?"
)
_CHANGE: Final = r"(?P<verb>set|change|raise|lower|increase|reduce|bump)"
_IN: Final = r"(?:in|on|at|under|inside)"
_WHERE: Final = r"(?:stored|kept|saved|located|hosted|deployed|based|archived|running)"
_NAME: Final = r"(?P<value>(?-i:[A-Z][\w'’-]*(?: [A-Z][\w'’-]*){0,2}))"
_LEADS: Final = (
    rf"(?:owns|maintains|leads|took over|takes over|{_IS}"
    r"(?:responsible for|in charge of|the (?:owner|lead|maintainer) of))"
)
_KEY: Final = r"(?P<left>(?-i:[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)|[a-z]\w*(?:\.\w+)+)"
_RESULT: Final = r"done|finished|completed?|closed|merged|deployed|released|cancel+ed|fixed|resolved|approved"
_STATE: Final = (
    rf"{_RESULT}|in progress|in review|blocked|not started|open|failing|passing|broken|on hold|paused|ready|pending"
    rf"|live"
    r"|green|red|deprecated|running|stopped|stable|unstable|down|disabled|enabled"
)
_CHOSE: Final = (
    r"(?:use|using|used|chose|chosen|picked|selected|prefer|like|decided (?:to use|to go with|on|for)"
    r"|agreed (?:to use|on)"
    r"|settled (?:on|for)|going with|went with|opted for)"
)
_DO: Final = r"(?P<left>deploy|build|test|lint|package|release|document|monitor|log|format)"


# --- readers: what a pattern found, as a claim ----------------------------------


def _named(found: re.Match[str]) -> Iterator[Claim]:
    """A property that is called by its noun: `the port of the API is 8080`."""
    key = slot_of(found["left"])
    if key is not None:
        value, extra = _cut(found["right"])
        slot = placed(key[1], value)
        own = re.match(r"my\b", found["left"], re.IGNORECASE) is not None
        yield Claim(subject=f"{key[0]} {extra}", slot=slot, value=value, own=own)


def _labelled(found: re.Match[str]) -> Iterator[Claim]:
    """`Python version: 3.12`; a label alone, such as `name:`, is a line of somebody's file."""
    yield from (claim for claim in _named(found) if claim.subject.strip())


def _place(found: re.Match[str]) -> Iterator[Claim]:
    """Where something is; a port, a version and a time count as places in English."""
    value, extra, slot = _numbered(found["right"])
    kind = kind_of(value)
    if not slot and kind == "date":
        slot = "date"
    if not slot and (found["how"] or kind in {"url", "path"}):
        slot = where(value)
    if slot:
        yield Claim(subject=f"{found['left']} {extra}", slot=slot, value=value)


def _numbered(right: str) -> tuple[str, str, str]:
    """A value, what stands behind it, and its slot where it is named: `port 8080`, `version 3.1`."""
    named = re.match(r"(?:the )?(port|version) (.+)", right, re.IGNORECASE)
    value, extra = _cut(named[2] if named else right)
    return value, extra, named[1].lower() if named else ""


def _slotted(slot: str) -> Reader:
    """A property that the verb names: `the project is called X`."""

    def read(found: re.Match[str]) -> Iterator[Claim]:
        value, extra = _cut(found["value"])
        yield Claim(subject=f"{found['left']} {extra}", slot=slot, value=value, old=found.groupdict().get("old") or "")

    return read


def _change(found: re.Match[str]) -> Iterator[Claim]:
    """Something that was changed: its noun names the property, or else the verb and the value do."""
    value, extra, named = _numbered(found["right"])
    verb, left = found["verb"].lower(), found["left"]
    claim = Claim(subject=f"{left} {extra}", slot=named, value=value, old=found["old"] or "")
    key = slot_of(left)
    if key is not None and (verb != "renamed" or key[1] == "name"):
        yield replace(claim, subject=f"{key[0]} {extra}", slot=placed(key[1], value))
    elif named:
        yield claim
    elif re.fullmatch(_KEY, left):
        yield replace(claim, slot="value")
    else:
        slot = _slot_of_change(verb, value)
        if slot:
            yield replace(claim, slot=slot, kin=("deadline",) if slot == "date" else ())


def _slot_of_change(verb: str, value: str) -> str:
    """The property that a verb changes, where no noun says it."""
    if verb == "renamed":
        return "name"
    if kind_of(value) in {"date", "version"}:
        return kind_of(value)
    if verb in {"moved", "migrated", "relocated", "transferred"}:
        return where(value)
    return "choice" if verb == "switched" else ""


def _chosen(found: re.Match[str]) -> Iterator[Claim]:
    """What is used for something, or as something."""
    groups = found.groupdict()
    value, subject = _cut(found["value"])[0], _cut(found["left"], keep=True)[0]
    claim = Claim(
        subject=subject, slot="choice", value=value, old=groups.get("old") or "", own=(groups.get("who") or "") in "iI"
    )
    if groups.get("role") != "as":
        yield claim
    elif (key := slot_of(found["left"])) is not None:
        yield replace(claim, subject=key[0], slot=key[1])


def _liked(found: re.Match[str]) -> Iterator[Claim]:
    yield Claim(subject=found["left"], slot="choice", value=_cut(found["value"])[0], own=True)


def _mine(slot: str) -> Reader:
    """Something about the speaker."""

    def read(found: re.Match[str]) -> Iterator[Claim]:
        yield Claim(subject="user", slot=slot, value=_cut(found["value"])[0], own=True)

    return read


def _setting(found: re.Match[str]) -> Iterator[Claim]:
    yield Claim(subject=found["left"], slot="value", value=found["right"].split()[0].strip("\"'`,;."))


# --- patterns, the most telling first ---------------------------------------------

_PATTERNS: Final[tuple[tuple[str, Reader], ...]] = (
    # settings by their own name
    (rf"(?:{_WE})?(?:set |changed )?{_KEY}(?:\s?=\s?| (?:is(?: now)?(?: set to)?|to) )(?P<right>\S.*)", _setting),
    # about the speaker
    (r"i(?:['’]m| am)? (?:now )?(?:live|reside|living|based) in (?P<value>(?-i:[A-Z]).+)", _mine("home")),
    (r"i(?: have|['’]ve)? (?:moved|relocated) to (?P<value>(?-i:[A-Z]).+)", _mine("home")),
    (r"i (?:now )?work (?:at|for) (?P<value>(?-i:[A-Z]).+)", _mine("employer")),
    (r"(?:my name is|call me) (?P<value>(?-i:[A-Z])\w+(?: (?-i:[A-Z])\w+)?)", _mine("name")),
    # owners
    (rf"{_NAME} {_NOW}{_LEADS} (?P<left>.+?)(?: from (?P<old>\w+))?", _slotted("owner")),
    (rf"{_LEFT} {_IS}(?:owned|maintained|led|managed) by {_NAME}", _slotted("owner")),
    (rf"(?:{_WE})?(?:handed|passed|gave|assigned) {_LEFT} (?:over )?to {_NAME}", _slotted("owner")),
    (rf"{_LEFT} {_WAS}(?:handed|passed|assigned) (?:over )?to {_NAME}", _slotted("owner")),
    # choices
    (rf"i {_NOW}(?:prefer|like|want) (?P<left>my .+?|our .+?|the .+?) as {_VALUE}", _liked),
    (rf"{_WE}{_CHOSE} (?P<value>.+?){_INSTEAD} (?P<role>for|as) (?P<left>.+)", _chosen),
    (rf"{_WE}switched (?:from (?P<old>.+?) )?to (?P<value>.+?) for (?P<left>.+)", _chosen),
    (rf"{_WE}replaced (?P<old>.+?) (?:with|by) (?P<value>.+?) for (?P<left>.+)", _chosen),
    (rf"let['’]?s (?:use|go with|pick|stick with) (?P<value>.+?){_INSTEAD} for (?P<left>.+)", _chosen),
    (rf"(?:please )?(?:always )?use (?P<value>.+?){_INSTEAD} for (?P<left>.+)", _chosen),
    (rf"for (?P<left>.+?),? {_WE}{_CHOSE} {_VALUE}", _chosen),
    (rf"we {_NOW}{_DO} with {_VALUE}", _slotted("choice")),
    (rf"{_LEFT} {_NOW}(?:goes|go|runs|run) (?:through|via) {_VALUE}", _slotted("choice")),
    # changes
    (rf"{_WE}{_CHANGED} {_LEFT} {_FROM}to {_RIGHT}", _change),
    (rf"{_LEFT} {_WAS}{_CHANGED} {_FROM}to {_RIGHT}", _change),
    (rf"(?:please )?{_CHANGE} {_LEFT} {_FROM}to {_RIGHT}", _change),
    # where
    (rf"{_LEFT} (?P<how>{_IS}{_WHERE}|{_NOW}(?:lives?|sits?|resides?|runs?)) {_IN} {_RIGHT}", _place),
    (rf"we {_NOW}(?P<how>store|keep|host|deploy|run) {_LEFT} (?:in|on|at|under|to) {_RIGHT}", _place),
    (rf"{_LEFT} {_IS}(?P<how>)(?:[a-z]+ed |available |reachable |listening )?{_IN} {_RIGHT}", _place),
    (rf"{_LEFT} {_NOW}(?P<how>)(?:listens?|uses?|binds?)(?: on| to)? (?P<right>(?:the )?port \d+.*)", _place),
    (rf"{_LEFT} {_NOW}(?P<how>)(?:goes?|go|gets? [a-z]+|points?) (?:to|into) {_RIGHT}", _place),
    (rf"you(?: can|['’]ll)? find {_LEFT} (?P<how>)(?:at|under|in) {_RIGHT}", _place),
    # names, dates, versions
    (rf"{_LEFT} {_IS}(?:called|named) {_VALUE}", _slotted("name")),
    (rf"{_LEFT} {_IS}due(?: on| by| at)? {_VALUE}", _slotted("deadline")),
    (rf"{_LEFT} (?:{_IS}(?:scheduled|planned|set) (?:for|on|at)|takes place (?:on|at)) {_VALUE}", _slotted("date")),
    (rf"{_LEFT} {_NOW}(?:starts|begins) (?:on|at) {_VALUE}", _slotted("start")),
    (rf"{_LEFT} {_NOW}(?:ends|expires) (?:on|at) {_VALUE}", _slotted("end")),
    (
        rf"we(?: are|['’]re)? {_NOW}(?:run|on|use) {_LEFT} (?:version )?(?P<value>v?\d+(?:\.\d+)+)",
        _slotted("version"),
    ),
    # anything with a noun, and statuses
    (rf"{_LEFT} {_IS}(?:set to |at )?{_RIGHT}", _named),
    (rf"{_LEFT} {_IS}(?P<value>{_STATE})", _slotted("status")),
    (rf"{_LEFT} (?:was|were|got|has been|have been) {_NOW}(?P<value>{_RESULT})", _slotted("status")),
    (r"(?P<left>[^:=]{3,60})(?::| =) (?P<right>.+)", _labelled),
)

_TAIL: Final = re.compile(
    r"(?:,? (?:now|from now on|these days|as of today|today|again|instead|please|by the way|right now|at the moment"
    r"|for now"
    r"|currently|already|yesterday|this (?:morning|week|afternoon)|last week|since (?:this|last|yesterday|today"
    r"|\w+day)\b.*)"
    r"|[.!;,])+$",
    re.IGNORECASE,
)
_MORE: Final = re.compile(r"(?:,| and| but| which| because| since| so| as) (?=\w)", re.IGNORECASE)
_OVER: Final = re.compile(r",? (?:instead of|rather than) .+$", re.IGNORECASE)
_EXTRA: Final = re.compile(r"\s+(?=(?:for|in|on|during|when|under|with|inside|within|only|at|by) )", re.IGNORECASE)
_VAGUE: Final = re.compile(
    r"(?:it|this|that|these|those|they|he|she|there|here|what|which|who|something|anything|everything|one|you|i|we"
    r"|her|his"
    r"|their|its|your|today|an?|exactly|really|definitely|very|so|too|quite|all|absolutely|extremely)\b",
    re.IGNORECASE,
)
_MOST_WORDS: Final = 7


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], Reader], ...]:
    """The patterns, when they are needed: most programs that load this never read a fact."""
    return tuple((re.compile(pattern, re.IGNORECASE), read) for pattern, read in _PATTERNS)


def claims(clause: str) -> list[Claim]:
    """What a clause claims: at most one thing, by the first pattern that fits."""
    clause = _TAIL.sub("", clause.strip())
    for pattern, read in _compiled():
        found = pattern.fullmatch(clause)
        plain = [claim for claim in read(found) if _is_plain(claim)] if found else []
        if plain:
            return plain
    return []


def _is_plain(claim: Claim) -> bool:
    """Tell whether a claim names its subject and a value that it can have in a few words."""
    subject, value = claim.subject.strip(), claim.value
    if not value or _VAGUE.match(value) or _VAGUE.match(subject) or not fits(claim.slot, value):
        return False
    return len(subject.split()) <= _MOST_WORDS + 3 and len(value.split()) <= _MOST_WORDS


def _cut(words: str, *, keep: bool = False) -> tuple[str, str]:
    """A value, and what else stands behind it and belongs to the subject (`in staging`, `for the EU`)."""
    value = _TAIL.sub("", _OVER.sub("", _TAIL.sub("", words.strip())))
    value, *_ = _MORE.split(value, maxsplit=1)
    if keep:
        return value.strip(), ""
    value, _, extra = _EXTRA.sub("\0", value, count=1).partition("\0")
    return value.strip(" \"'“”‘’"), extra
