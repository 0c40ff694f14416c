"""How many secrets redaction masks, and how much else: measured on a corpus made from public formats.

Nothing in the corpus was ever anybody's secret. `<kind:n>` in a template stands for n random characters of a kind, and
`<kind>` for a generated value; `{}` in a surrounding is where the secret goes. The lines of `secret_lines.txt` and
`harmless_lines.txt` are `kind|text`: the secret stands between « and », and ⏎ is a line break. They were written down
before the rules that mask them.

`secret_kinds.txt` and `look_alikes.txt` have one line for each kind, in the same notation. A kind belongs to one of two
halves, by its name; rules are chosen by the first one alone.
"""

import base64
import json
import random
import re
import string
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from benchmarks import load_lines, load_texts
from holdfast.patterns import load
from holdfast.redaction import find, redact

__all__ = [
    "HARMLESS",
    "NAMED",
    "SHAPED",
    "Cost",
    "Kinds",
    "Measurement",
    "Sample",
    "Score",
    "corpus",
    "dense_texts",
    "fill",
    "measure",
    "measure_cost",
    "measure_kinds",
    "six_patterns",
]

Masker: TypeAlias = Callable[[str], str]

_TEXTS: Final[Mapping[str, list[Any]]] = load_texts("redaction")
SHAPED: Final[list[list[str]]] = _TEXTS["shaped"]
"""Rule and template of every format that identifies itself."""
NAMED: Final[list[list[str]]] = _TEXTS["named"]
"""Rule, template of the secret, and the text that names it. Redaction misses those of the last rules."""
HARMLESS: Final[list[list[str]]] = _TEXTS["harmless"]
"""Kind and template of what must not be masked."""

_VISIBLE: Final = 8
"""So many characters of a secret in a row must not be left to see. (A shorter secret: all of it.)"""

_HARMLESS: Final = "harmless: "
_FORMATS: Final = frozenset(rule for rule, _ in SHAPED)
_MASK: Final = re.compile(r"\[REDACTED[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Sample:
    """A text of the corpus: what it is an example of, and the secret in it, if any."""

    group: str
    text: str
    secret: str = ""

    def is_masked_in(self, output: str) -> bool:
        """True if no telling piece of the secret is left; what the rest of the text says too tells nothing."""
        size = min(_VISIBLE, len(self.secret))
        seen = _pieces(self.secret, size) & _pieces(_MASK.sub("", output), size)
        return not seen or seen <= _pieces(self.text.replace(self.secret, ""), size)

    def is_damaged_in(self, output: str) -> bool:
        """True if a letter or a digit beside the secret is lost; without a secret, if anything was changed."""
        if not self.secret:
            return output != self.text
        before, _, after = self.text.partition(self.secret)
        left = _letters(_MASK.sub("", output))
        return not (left.startswith(_letters(before)) and left.endswith(_letters(after)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What became of a group of samples.

    Attributes:
        samples: Texts, with and without a secret.
        planted: Secrets in them.
        masked: Secrets of which nothing telling was left.
        damaged: Texts in which something else was masked.
        recall: The share of the secrets that was masked; 1 if there was none.
        precision: The share of what was masked that was a secret; 1 if nothing was masked.
    """

    samples: int
    planted: int
    masked: int
    damaged: int
    recall: float = field(init=False)
    precision: float = field(init=False)

    def __post_init__(self) -> None:
        found = self.masked + self.damaged
        object.__setattr__(self, "recall", self.masked / self.planted if self.planted else 1.0)
        object.__setattr__(self, "precision", self.masked / found if found else 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Redaction and the baseline on one corpus, over all and by group (a rule, or a kind of harmless text)."""

    seed: int
    overall: Score
    groups: dict[str, Score]
    baseline: Score
    baseline_groups: dict[str, Score]

    def rows(self) -> dict[str, tuple[Score, Score]]:
        """Redaction and the baseline, line by line for a table: all formats in one line, all harmless text in one."""
        lines: dict[str, list[str]] = {"formats": [], "harmless": []}
        for group in self.groups:
            line = "harmless" if group.startswith(_HARMLESS) else "formats" if group in _FORMATS else group
            lines.setdefault(line, []).append(group)
        return {
            line: (_sum(self.groups[group] for group in groups), _sum(self.baseline_groups[group] for group in groups))
            for line, groups in lines.items()
        } | {"all": (self.overall, self.baseline)}


def measure(*, seed: int = 1, samples: int = 40, masker: Masker = redact) -> Measurement:
    """Measure redaction on `samples` texts for every template of the corpus, beside the six patterns of old."""
    texts = tuple(corpus(seed=seed, samples=samples))
    ours, theirs = _groups(texts, masker), _groups(texts, six_patterns)
    return Measurement(
        seed=seed, overall=_sum(ours.values()), groups=ours, baseline=_sum(theirs.values()), baseline_groups=theirs
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """What became of kinds of secrets and of look-alikes; each sample of a kind counts.

    Attributes:
        secrets: Kinds of secrets.
        masked: Those of which no sample was left to see.
        look_alikes: Kinds of texts without a secret.
        kept: Those of which no sample was changed.
        missed: The kinds of secrets that were not masked.
        changed: The look-alikes that were changed.
    """

    secrets: int
    masked: int
    look_alikes: int
    kept: int
    missed: list[str]
    changed: list[str]


def measure_kinds(*, seed: int = 1, samples: int = 10, masker: Masker = redact) -> dict[str, Kinds]:
    """Measure redaction on the list of kinds, for each of its halves."""
    halves: dict[str, Kinds] = {}
    for half, title in enumerate(("chosen by", "held out")):
        rng = random.Random(seed)  # noqa: S311 - as above
        secrets = [line for line in load_lines("secret_kinds") if _half(line) == half]
        look_alikes = [line for line in load_lines("look_alikes") if _half(line) == half]
        missed = [_kind(line) for line in secrets if not _is_masked(line, rng, samples=samples, masker=masker)]
        changed = [_kind(line) for line in look_alikes if not _is_kept(line, rng, samples=samples, masker=masker)]
        halves[title] = Kinds(
            secrets=len(secrets),
            masked=len(secrets) - len(missed),
            look_alikes=len(look_alikes),
            kept=len(look_alikes) - len(changed),
            missed=missed,
            changed=changed,
        )
    return halves


def _kind(line: str) -> str:
    return line.partition("|")[0]


def _half(line: str) -> int:
    return zlib.crc32(_kind(line).encode()) % 2


def _is_masked(line: str, rng: random.Random, *, samples: int, masker: Masker) -> bool:
    for _ in range(samples):
        before, secret, after = re.split("[«»]", fill(line.partition("|")[2].replace("⏎", "\n"), rng))
        sample = Sample(_kind(line), f"{before}{secret}{after}", secret)
        if not sample.is_masked_in(masker(sample.text)):
            return False
    return True


def _is_kept(line: str, rng: random.Random, *, samples: int, masker: Masker) -> bool:
    for _ in range(samples):
        text = fill(line.partition("|")[2].replace("⏎", "\n"), rng)
        if masker(text) != text:
            return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The processor time of a search, in nanoseconds for each character.

    Attributes:
        normal: Of the messages of a coding session.
        dense: Of text that consists of secret words and separators, by its piece, the most costly first.
    """

    normal: float
    dense: dict[str, float]


_SEPARATORS: Final = ("='", "=", ": ", " ", '":"', " is ", "=a1b2 ", ":x;", " for a is ", "\n")
_DENSE_CHARS: Final = 10_000


def dense_texts(*, chars: int = _DENSE_CHARS) -> dict[str, str]:
    """Texts of nothing but secret words, one for each word and separator."""
    names = load("secrets")["names"]
    words = [*names["stems"], *names["capital stems"], *names["other stems"], "password", "credentials", "DB_PASSWORD"]
    pieces = [f"{word}{separator}" for word in words for separator in _SEPARATORS]
    return {piece: piece * (chars // len(piece)) for piece in pieces}


def measure_cost(*, chars: int = _DENSE_CHARS) -> Cost:
    """Measure what a search costs on normal text and on dense texts of so many characters."""
    session = json.dumps(load_texts("coding"), ensure_ascii=False)
    dense = {piece: _time(text) for piece, text in dense_texts(chars=chars).items()}
    return Cost(normal=_time(session), dense=dict(sorted(dense.items(), key=lambda item: item[1], reverse=True)))


def _time(text: str) -> float:
    find(text[:1000])  # loads and compiles what will be needed
    start = time.process_time_ns()
    find(text)
    return (time.process_time_ns() - start) / len(text)


def corpus(*, seed: int, samples: int) -> Iterator[Sample]:
    """Every template `samples` times: the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - a corpus must be the same every time, not unguessable
    for _ in range(samples):
        for rule, template in SHAPED:
            secret = fill(template, rng)
            yield Sample(rule, rng.choice(_TEXTS["surroundings"]).format(secret), _telling(secret))
        for rule, template, surrounding in NAMED:
            secret = fill(template, rng)
            yield Sample(rule, surrounding.format(secret), secret)
        for kind, template in HARMLESS:
            yield Sample(f"{_HARMLESS}{kind}", fill(template, rng))
        for line in load_lines("secret_lines"):
            before, secret, after = re.split("[«»]", fill(line.partition("|")[2].replace("⏎", "\n"), rng))
            yield Sample("lines", f"{before}{secret}{after}", secret)
        for line in load_lines("harmless_lines"):
            kind, _, template = line.partition("|")
            yield Sample(f"{_HARMLESS}{kind}", fill(template.replace("⏎", "\n"), rng))


# --- templates ---------------------------------------------------------------------

_LETTERS: Final = string.ascii_letters
_ALPHABETS: Final[Mapping[str, str]] = {
    "an": _LETTERS + string.digits,
    "b64": _LETTERS + string.digits + "+/",
    "bech": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "hex": "0123456789abcdef",
    "low": string.ascii_lowercase + string.digits,
    "num": string.digits,
    "up": string.ascii_uppercase + string.digits,
    "url": _LETTERS + string.digits + "-_",
}

_WORDS: Final = ("hunter", "dragon", "postgres", "letmein", "qwerty", "sunshine", "monkey", "admin", "summer")


def fill(template: str, rng: random.Random) -> str:
    """The template with every placeholder filled in at random."""
    return re.sub(r"<(\w+)(?::(\d+))?>", lambda slot: _filled(slot, rng), template)


def _filled(slot: re.Match[str], rng: random.Random) -> str:
    kind, length = slot.groups()
    if length:
        return "".join(rng.choices(_ALPHABETS[kind], k=int(length)))
    return _MAKERS[kind](rng) if kind in _MAKERS else slot.group()


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _jwt(rng: random.Random) -> str:
    claims = {"sub": fill("<num:10>", rng), "name": fill("<low:8>", rng), "iat": rng.randrange(10**9, 2 * 10**9)}
    return f"{_encoded({'alg': 'HS256', 'typ': 'JWT'})}.{_encoded(claims)}.{fill('<url:43>', rng)}"


def _pem(rng: random.Random) -> str:
    label = rng.choice(("RSA PRIVATE KEY", "PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY"))
    lines = [fill("<b64:64>", rng) for _ in range(rng.randrange(3, 26))]
    line_end = rng.choice(("\n", "\n", "\\n", "\n    "))
    return line_end.join((f"-----BEGIN {label}-----", *lines, fill("<b64:30>==", rng), f"-----END {label}-----"))


def _password(rng: random.Random) -> str:
    body = rng.choices(_ALPHABETS["an"] + "!#%^*-_+=?", k=rng.randrange(8, 20))
    return "".join((*body, rng.choice(string.digits), rng.choice(_LETTERS)))


def _weak_password(rng: random.Random) -> str:
    return rng.choice(_WORDS) + str(rng.randrange(1, 2030))


def _key(rng: random.Random) -> str:
    return fill(rng.choice(("<an:24>", "<an:32>", "<an:40>", "<hex:32>", "<hex:40>", "<hex:64>", "<url:43>")), rng)


def _uuid(rng: random.Random) -> str:
    return fill("<hex:8>-<hex:4>-4<hex:3>-a<hex:3>-<hex:12>", rng)


_MAKERS: Final[Mapping[str, Callable[[random.Random], str]]] = {
    "jwt": _jwt,
    "key": _key,
    "password": _password,
    "pem": _pem,
    "snowflake": lambda rng: base64.b64encode(fill("1<num:17>", rng).encode()).decode().rstrip("="),
    "uuid": _uuid,
    "word": lambda rng: rng.choice(_WORDS),
    "words": lambda rng: " ".join(rng.sample(_WORDS, k=4)),
    "weak": _weak_password,
}


# --- the baseline ------------------------------------------------------------------


def six_patterns(text: str) -> str:
    """The six patterns of the memory-context plugin, in their order: the baseline."""
    for pattern, mask in _SIX_PATTERNS:
        text = re.sub(pattern, mask, text, flags=re.ASCII)  # as in JavaScript, where they come from
    return text


_SIX_PATTERNS: Final = (
    (r"(?i)\b(Authorization\s*[:=]\s*)(Bearer\s+)\S{20,}", r"\1\2[REDACTED]"),
    (r"\bBearer\s+[A-Za-z0-9_\-.]{20,}", "Bearer [REDACTED]"),
    (r"(?i)\b(api[_-]?key\s*[:=]\s*[\"']?)[A-Za-z0-9_\-./+]{16,}[\"']?", r"\1[REDACTED]"),
    (r"(?i)\b(token\s*[:=]\s*[\"']?)[A-Za-z0-9_\-./+]{20,}[\"']?", r"\1[REDACTED]"),
    (r"(?i)\b[0-9a-f]{32,}\b", "[REDACTED_HEX]"),
    (r"\b[A-Za-z0-9+/]{64,}={0,2}\b", "[REDACTED_B64]"),
)


def _pieces(text: str, size: int) -> set[str]:
    """Every run of so many characters in the text."""
    return set(map("".join, zip(*(text[start:] for start in range(size)), strict=False)))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _telling(secret: str) -> str:
    """The part of an address or a token that must not be seen: a host, an id or a prefix may."""
    return re.sub(r"^(?:https?://\S*?(?:sig=|services/|webhooks/[0-9]+/)|.{5}(?=~)|\$2b\$)", "", secret)


def _groups(texts: Sequence[Sample], masker: Masker) -> dict[str, Score]:
    found: dict[str, list[tuple[Sample, str]]] = {}
    for sample in texts:
        found.setdefault(sample.group, []).append((sample, masker(sample.text)))
    return {group: _score(outcomes) for group, outcomes in found.items()}


def _score(outcomes: Sequence[tuple[Sample, str]]) -> Score:
    secrets = [(sample, output) for sample, output in outcomes if sample.secret]
    masked = sum(sample.is_masked_in(output) for sample, output in secrets)
    damaged = sum(sample.is_damaged_in(output) for sample, output in outcomes)
    return Score(samples=len(outcomes), planted=len(secrets), masked=masked, damaged=damaged)


def _sum(scores: Iterable[Score]) -> Score:
    counts = [(score.samples, score.planted, score.masked, score.damaged) for score in scores]
    samples, planted, masked, damaged = map(sum, zip(*counts, strict=True))
    return Score(samples=samples, planted=planted, masked=masked, damaged=damaged)
