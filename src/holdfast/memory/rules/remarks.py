"""Remarks: what is worth keeping though it states no property: decisions, preferences, rules, open tasks, fixes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from holdfast.memory.draft import Draft
from holdfast.memory.rules.stance import is_asserted, is_real
from holdfast.store.base import FactType

__all__ = ["remark", "todo"]

_I: Final = r"(?:i|we)(?:['’]ve| have)? (?:just |already |finally |successfully |all )?"
_MONTH: Final = (
    "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:tember)?|oct(?:ober)?"
    "|nov(?:ember)?|dec(?:ember)?"
)


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


# Said by a person, by the first words: asked to be kept, decided, a rule, a preference, what was done.
_OWN: Final[Mapping[FactType, re.Pattern[str]]] = {
    "decision": _any(
        r"(?:please )?(?:remember|keep in mind|don['’]t forget)(?: that\b|:)",
        r"(?:decision|resolved): ",
        rf"(?:ok(?:ay)?,? |so,? |alright,? )?{_I}(?:decided|agreed|settled|opted)\b(?=.{{12}})",
        r"(?:ok(?:ay)?,? |yes,? |alright,? )?let['’]?s (?:go with|stick with|settle on)\b"
        r"(?! (?:that|this|these|those|it|them)\b)",
        r"(?:please )?(?:always|never) (?!here|good|say|saw|give up|been|a|the|had|mind|know|thought|seen|too|so"
        r"|happy|nice"
        r"|great|love|fun)[a-z]+ (?=.{12})",
        r".{8,200}\b(?:is|are) non-negotiable\b",
        r"from now on,? (?=.{12})",
        r"(?:i|we)(?: really| strongly| generally)? prefer\b",
        r"i(?:['’]m| am) (?:allergic|vegetarian|vegan|lactose)\b",
        r"my (?:favou?rite|preference|preferred) ",
        "(?:请)?(?:记住|记得|别忘了)[，,：: ]?(?!要?(?:去|做))",
        "(?:我们|我)(?:最终|最后)?(?:决定|约定|商定)了?(?=.{4})|决定[：:]",
        "(?:请)?(?:务必|一律|永远不要|始终|以后都)(?=.{3})",
        "(?:我|我们)(?:更)?(?:偏好|喜欢|倾向于)|我对.{1,10}过敏",
        ".{4,80}(?:覚えておいて|ことにしました|기억해|하기로 했습니다)",
    ),
    "task_state": _any(
        rf"{_I}(?:completed|finished|implemented|installed|deployed|submitted|published|launched|fixed|finali[sz]ed"
        rf"|merged"
        r"|released|migrated|booked)\b(?=.{12})",
        rf"(?=.{{20,200}}$)(?=.*\b(?:{_MONTH})\.? \d)(?:my|our|the|i|we|he|she|it)\b",
        "(?:我们|我)?(?:已经|已)(?:完成|实现|部署|修复|发布|合并|提交)了?(?=.{3})",
    ),
}
# Said by anybody: what went wrong and why.
_ISSUE: Final = _any(
    r".{0,160}\b(?:fixed (?:it |this |that |the [\w-]+ )?by|(?:was|is) caused by|root cause (?:is|was)"
    r"|the fix (?:is|was) to)\b",
    ".{0,80}(?:根本?原因是|报错的?原因是|修复方法是|解决办法是|是由.{1,40}引起的|原因は|원인은)",
)
_OPEN_ENDS: Final = ("?", "？", ":", "：")
_TODO: Final = re.compile(
    r"(?:[-*+] )?\[(?P<box>[ xX])\] (?P<task>.+)|(?:TODO|FIXME|待办|未完成)(?:\([^)]*\))?\s*[:：]\s*(?P<open>.+)",
    re.DOTALL,
)
_MOST_WORDS: Final = 60


def remark(sentence: str, *, own: bool) -> FactType | None:
    """The kind of knowledge that a sentence is by its first words; `own` says that a person said it."""
    if len(sentence.split()) > _MOST_WORDS or sentence.endswith(_OPEN_ENDS):
        return None
    if _ISSUE.match(sentence) and is_real(sentence):
        return "issue"
    return _own_remark(sentence) if own else None


def _own_remark(sentence: str) -> FactType | None:
    """What a person remarks: a decision, or that something is done."""
    if _OWN["decision"].match(sentence):
        return "decision"
    done = _OWN["task_state"].match(sentence) is not None and is_real(sentence) and is_asserted(sentence)
    return "task_state" if done else None


def todo(sentence: str, *, own: bool) -> Draft | None:
    """An open or finished task: `TODO: …`, `待办：…`; of a person also `- [ ] …` and `- [x] …`."""
    found = _TODO.fullmatch(sentence.strip())
    if found is None or (found["box"] is not None and not own):
        return None
    task = (found["task"] or found["open"]).strip().rstrip(".。")
    done = (found["box"] or " ") != " "
    return Draft(type="task_state", content=sentence, subject=task, slot="status", value="done" if done else "open")
