"""How claims are made in Chinese, and in their plainest form in Japanese and Korean."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from holdfast.memory.claims import Claim, slot_of
from holdfast.memory.values import fits, kind_of, placed, where

__all__ = ["claims"]

Reader = Callable[[re.Match[str]], Iterator[Claim]]

_NOW: Final = "(?:现在|目前|当前|如今|以后|今后|已经?|都|统一|一律|请|仍然?)*"
_S: Final = "(?P<left>[^，。,]{2,40}?)"
_B: Final = "(?P<value>[^，。,]{1,80}?)"
_TO: Final = (
    "(?P<verb>改名|更名|改叫|升级|升|降级|迁移?|移|搬|挪|转移?|推迟|延期|延长|提前|改|换|变更?|调整?|提高|提升|涨"
    "|降低|降|跌|设置?|切换)"
    "(?:到了?|为|成了?|至|(?<=改叫))"
)
_STATUS: Final = (
    "进行中|已?完成|被?阻塞|未开始|评审中|失败|通过|未关闭|已关闭|已上线|已合并|已发布|已解决|已修复"
    "|待处理|待审批|暂停|开发中|测试中"
)
_USE: Final = "(?:改用|采用|选用|使用|(?<![使不费作应信通利引常专适公雇占调])用(?![户于来的到法途例完不过]))"


def _named(found: re.Match[str]) -> Iterator[Claim]:
    """A property that is called by its noun: 支付服务的端口是 8080."""
    key = slot_of(_subject(found["left"]))
    if key is not None:
        slot = placed(key[1], found["value"])
        own = found["left"].startswith("我的")
        yield Claim(subject=key[0], slot=slot, value=found["value"], own=own)


def _change(found: re.Match[str]) -> Iterator[Claim]:
    """Something that was changed: its noun names the property, or else the verb and the value do."""
    left, value, verb = _subject(found["left"]), found["value"], found["verb"]
    port = re.fullmatch("(\\d{2,5})端口上?", value)
    if port is not None:
        yield Claim(subject=left, slot="port", value=port[1])
        return
    old = (found.groupdict().get("old") or "").strip()
    key = slot_of(left)
    if key is not None:
        yield Claim(subject=key[0], slot=placed(key[1], value), value=value, old=old)
        return
    slot = _slot_of_change(verb, value)
    if slot:
        yield Claim(subject=left, slot=slot, value=value, old=old, kin=("deadline",) if slot == "date" else ())


def _slot_of_change(verb: str, value: str) -> str:
    """The property that a verb changes, where no noun says it."""
    if verb in {"改名", "更名", "改叫"}:
        return "name"
    if kind_of(value) == "date":
        return "date"
    if verb in {"升级", "升", "降级"}:
        return "version"
    if verb in {"迁", "迁移", "移", "搬", "挪", "转", "转移"}:
        return where(value)
    return "choice" if verb in {"换", "切换"} else ""


def _slotted(slot: str, *, own: bool = False) -> Reader:
    """A property that the verb names: 项目叫蓝鸟."""

    def read(found: re.Match[str]) -> Iterator[Claim]:
        subject = "user" if "left" not in found.groupdict() else _subject(found["left"])
        old = (found.groupdict().get("old") or "").strip()
        yield Claim(subject=subject, slot=slot, value=found["value"], old=old, own=own)

    return read


def _place(found: re.Match[str]) -> Iterator[Claim]:
    value = re.sub("(?:目录|文件夹)?(?:下面?|里面?|中)?$", "", found["value"]).strip()
    yield Claim(subject=_subject(found["left"]), slot=where(value), value=value)


def _dated(found: re.Match[str]) -> Iterator[Claim]:
    """周会是每周二下午."""
    if kind_of(found["value"]) == "date":
        yield Claim(subject=_subject(found["left"]), slot="date", value=found["value"])


def _subject(words: str) -> str:
    words = re.sub(f"^(?:我们|咱们)?{_NOW}(?:最终|最后)?(?:决定|约定|确定)?(?:把|将)?(?:使?用的)?", "", words.strip())
    return re.sub(f"{_NOW}$", "", words)


_WORD: Final = "[^，。,]{1,30}?"
_OLD: Final = "从(?P<old>[^，。]{1,60}?)"
_PERSON: Final = f"(?P<value>[^，。,的]{{1,12}}?){_NOW}(?:来)?(?:负责|维护|主导|接手)"
_LIKE: Final = f"我{_NOW}(?:喜欢|偏好|习惯|倾向于?)"
_JA_OLD: Final = f"(?:(?P<old>{_WORD})から)?"
_KO_OLD: Final = f"(?:(?P<old>{_WORD})에서 )?"
_KO_DONE: Final = "(?:했습니다|했다|해 ?주세요)"
_PATTERNS: Final[tuple[tuple[str, Reader], ...]] = (
    # about the speaker
    (f"我{_NOW}(?:住在|搬到了?){_B}", _slotted("home", own=True)),
    (f"我{_NOW}在{_B}(?:上班|工作)", _slotted("employer", own=True)),
    (f"我叫{_B}", _slotted("name", own=True)),
    # ports
    (f"{_S}{_NOW}(?:监听|运行在|跑在|使用|用)(?:的是)?(?P<value>\\d{{2,5}})端口上?", _slotted("port")),
    (f"{_S}{_NOW}监听端口(?:是|为)?(?P<value>\\d{{2,5}})", _slotted("port")),
    # owners
    (f"{_S}{_NOW}(?:由|换由?|改由|交给|交由|转给){_PERSON}", _slotted("owner")),
    (f"(?P<value>[^，。,的是]{{2,4}}|[A-Z][a-z]+){_NOW}负责{_S}", _slotted("owner")),
    # choices
    (f"{_S}{_LIKE}(?:使?用)?{_B}", _slotted("choice", own=True)),
    (f"{_LIKE}使?用(?P<value>{_WORD})来?(?:做|写|画|处理)(?P<left>{_WORD})", _slotted("choice", own=True)),
    # changes
    (f"(?:我们|我)?{_NOW}(?:把|将){_S}{_OLD}{_TO}{_B}", _change),
    (f"(?:我们|我)?{_NOW}(?:把|将){_S}{_TO}{_B}", _change),
    (f"{_S}{_NOW}{_OLD}{_TO}{_B}", _change),
    (f"{_S}{_NOW}{_TO}{_B}", _change),
    # where, names, dates
    (f"{_S}{_NOW}(?:部署|存放|保存|存储|托管|放|存)(?:在|于|到){_B}", _place),
    (f"{_S}{_NOW}位于{_B}", _place),
    (f"{_S}{_NOW}(?:名?叫做?){_B}", _slotted("name")),
    (f"{_S}{_NOW}(?:定|安排)(?:在|于){_B}", _slotted("date")),
    # anything with a noun, a date or a status
    (f"{_S}{_NOW}(?:是|为|[：:]){_NOW}{_B}", _named),
    (f"{_S}{_NOW}是{_NOW}{_B}", _dated),
    (f"{_S}{_NOW}(?P<value>{_STATUS})", _slotted("status")),
    (f"{_S}{_NOW}{_USE}{_B}", _slotted("choice")),
    # Japanese
    (f"(?P<left>{_WORD})(?:は|が)(?P<value>{_WORD})(?:です|だ|になりました|に変わりました)", _named),
    (f"(?P<left>{_WORD})を{_JA_OLD}(?P<value>{_WORD})に(?P<verb>変更|設定)(?:しました|した|してください)", _change),
    # Korean
    (f"(?P<left>{_WORD})(?:은|는|이|가) (?P<value>{_WORD})(?:입니다|이다|(?:으)?로 바뀌었습니다)", _named),
    (f"(?P<left>{_WORD})(?:을|를) ?{_KO_OLD}(?P<value>{_WORD})(?:으로|로) ?(?P<verb>변경|설정){_KO_DONE}", _change),
)

_CJK: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_GAP: Final = re.compile("(?<=[\u3040-\u30ff\u3400-\u9fff])\\s+|\\s+(?=[\u3040-\u30ff\u3400-\u9fff：])")
_ANY: Final = re.compile(f"[{_CJK}]")
_END: Final = re.compile("[了啦哦。！!．.\\s；;，,]+$")
_QUALIFIER: Final = re.compile(
    "(在|对于?|针对|关于|到)[^，]{1,20}(?:环境|时|里|上|下|中|期间|用户|客户|区域?|平台|系统)?[，,]"
)
_VAGUE: Final = re.compile("[它他她这那其]|大家|别人|什么|一个|一种|一些|因为|所以|但是|不过")
_LONGEST: Final = 40


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], Reader], ...]:
    """The patterns, when they are needed: most programs that load this never read a fact."""
    return tuple((re.compile(pattern), read) for pattern, read in _PATTERNS)


def claims(clause: str) -> list[Claim]:
    """What a clause claims: at most one thing, by the first pattern that fits."""
    if not _ANY.search(clause):
        return []
    words = _END.sub("", _GAP.sub("", clause.strip()))
    qualifier = _QUALIFIER.match(words)
    words = words[qualifier.end() :] if qualifier else words
    for pattern, read in _compiled():
        found = pattern.fullmatch(words)
        read_out = [claim for claim in read(found) if _is_plain(claim)] if found else []
        if read_out:
            return [_within(claim, qualifier.group() if qualifier else "") for claim in read_out]
    return []


def _within(claim: Claim, qualifier: str) -> Claim:
    """The claim, about the part of its subject that was named before it."""
    return Claim(
        subject=f"{qualifier.strip('，,')}{claim.subject}",
        slot=claim.slot,
        value=claim.value.strip(' “”"「」《》'),
        old=claim.old,
        kin=claim.kin,
        own=claim.own,
    )


def _is_plain(claim: Claim) -> bool:
    """Tell whether a claim names its subject and its value in a few words."""
    if _VAGUE.match(claim.subject) or _VAGUE.match(claim.value) or not fits(claim.slot, claim.value.strip()):
        return False
    return len(claim.subject) <= _LONGEST and (len(claim.value) <= _LONGEST or kind_of(claim.value) != "words")
