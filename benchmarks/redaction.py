"""How many secrets redaction masks, and how much else: measured on a corpus made from public formats."""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from benchmarks.redaction_corpus import HARMLESS, NAMED, SHAPED, SURROUNDINGS, fill
from benchmarks.redaction_lines import HARMLESS_LINES, SECRET_LINES
from holdfast.redact import redact

__all__ = ["Measurement", "Sample", "Score", "corpus", "measure", "six_patterns"]

Masker: TypeAlias = Callable[[str], str]

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
    recall: float
    precision: float


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
            yield Sample(rule, rng.choice(SURROUNDINGS).format(secret), _telling(secret))
        for rule, template, surrounding in NAMED:
            secret = fill(template, rng)
            yield Sample(rule, surrounding.format(secret), secret)
        for kind, template in HARMLESS:
            yield Sample(f"{_HARMLESS}{kind}", fill(template, rng))
        for line in SECRET_LINES:
            before, secret, after = re.split("[«»]", fill(line.partition("|")[2].replace("⏎", "\n"), rng))
            yield Sample("lines", f"{before}{secret}{after}", secret)
        for line in HARMLESS_LINES:
            kind, _, template = line.partition("|")
            yield Sample(f"{_HARMLESS}{kind}", fill(template.replace("⏎", "\n"), rng))


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
    return _rated(
        samples=len(outcomes),
        planted=len(secrets),
        masked=sum(sample.is_masked_in(output) for sample, output in secrets),
        damaged=sum(sample.is_damaged_in(output) for sample, output in outcomes),
    )


def _sum(scores: Iterable[Score]) -> Score:
    parts = tuple(scores)
    return _rated(
        samples=sum(score.samples for score in parts),
        planted=sum(score.planted for score in parts),
        masked=sum(score.masked for score in parts),
        damaged=sum(score.damaged for score in parts),
    )


def _rated(*, samples: int, planted: int, masked: int, damaged: int) -> Score:
    return Score(
        samples=samples,
        planted=planted,
        masked=masked,
        damaged=damaged,
        recall=masked / planted if planted else 1.0,
        precision=masked / (masked + damaged) if masked or damaged else 1.0,
    )
