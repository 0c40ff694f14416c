"""How many secrets redaction masks, and how much else: measured on a corpus made from public formats.

Nothing in the corpus was ever anybody's secret. `<kind:n>` in a template stands for n random characters of a kind, and
`<kind>` for a generated value; `{}` in a surrounding is where the secret goes. The lines of `secret_lines.txt` and
`harmless_lines.txt` are `kind|text`: the secret stands between « and », and ⏎ is a line break. They were written down
before the rules that mask them.
"""

import base64
import json
import random
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from benchmarks import load_lines, load_texts
from holdfast.redact import redact

__all__ = ["HARMLESS", "NAMED", "SHAPED", "Measurement", "Sample", "Score", "corpus", "fill", "measure", "six_patterns"]

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
    return re.sub(
        r"^(?:https?://\S*?(?:sig=|services/|webhooks/[0-9]+/)|[^.]{14}\.atlasv1\.|.{5}(?=~)|\$2b\$)", "", secret
    )


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
