"""The corpus covers every rule, and the figures of redaction are what the documentation says they are."""

from pathlib import Path

import pytest

from benchmarks.redaction import (
    SHAPED,
    Measurement,
    Sample,
    corpus,
    dense_texts,
    measure,
    measure_cost,
    measure_kinds,
    six_patterns,
)
from holdfast.redaction.formats import load_rules

MISSED = ("unnamed", "words")


@pytest.fixture(scope="module")
def result() -> Measurement:
    """A measurement of all templates, with fewer texts for each than the command has."""
    return measure(samples=2)


def test_every_rule_has_a_format_in_the_corpus() -> None:
    """No rule goes unmeasured, and no format is without a rule."""
    in_lines = {
        "authorization",
        "aws-secret-key",
        "aws-signature",
        "basic-login",
        "chap-secret",
        "client-key",
        "cookie",
        "credential",
        "kubeadm-token",
        "login-code",
        "pgpass",
        "putty-key",
        "salesforce-token",
        "sasl-password",
        "teams-webhook",
        "twilio-auth-token",
        "url-password",
        "url-token",
        "zapier-webhook",
    }
    rules = {rule.name for kind in ("tokens", "around", "anywhere") for rule in load_rules(kind)}
    assert {rule for rule, _ in SHAPED} == rules - in_lines


def test_the_corpus_is_the_same_for_the_same_seed() -> None:
    """A seed names a corpus; another seed another one."""
    assert list(corpus(seed=3, samples=1)) == list(corpus(seed=3, samples=1))
    assert list(corpus(seed=3, samples=1)) != list(corpus(seed=4, samples=1))


def test_redaction_masks_what_can_be_known_and_nothing_else(result: Measurement) -> None:
    """Every format is masked, at least 99.5 % of what is named is, and nothing harmless is touched."""
    known = [score for group, score in result.groups.items() if group not in {*MISSED, "lines"}]
    assert result.groups["lines"].recall >= 0.98
    assert sum(score.masked for score in known) >= 0.995 * sum(score.planted for score in known)
    assert all(result.groups[rule].recall == 1.0 for rule, _ in SHAPED)
    assert result.overall.precision == 1.0
    assert result.overall.samples == sum(score.samples for score in result.groups.values())


def test_kinds_are_masked_and_look_alikes_are_kept() -> None:
    """Of both halves of the list at least 98 % of the kinds are masked, and every look-alike stays as it was."""
    for half, scores in measure_kinds(samples=1).items():
        assert scores.masked >= 0.98 * scores.secrets, (half, scores.missed)
        assert scores.changed == [], half
        assert scores.secrets + scores.look_alikes > 500


def test_a_kind_is_missed_if_one_of_its_samples_is() -> None:
    """A masker that does nothing masks no kind and keeps every look-alike; one that deletes everything does neither."""
    for scores in measure_kinds(samples=1, masker=str).values():
        assert (scores.masked, scores.kept) == (0, scores.look_alikes)
    for scores in measure_kinds(samples=1, masker=lambda _: "").values():
        assert (scores.masked, scores.kept) == (scores.secrets, 0)


@pytest.mark.nightly
def test_cost_is_measured_for_every_word_and_separator() -> None:
    """The cost has a figure for each dense text, the highest first."""
    cost = measure_cost(chars=100)
    assert set(cost.dense) == set(dense_texts())
    assert cost.normal > 0
    assert list(cost.dense.values()) == sorted(cost.dense.values(), reverse=True)


def test_the_baseline_runs_on_the_same_texts(result: Measurement) -> None:
    """The six patterns mask a part of the secrets, and git ids with them."""
    assert result.baseline.planted == result.overall.planted
    assert result.baseline.recall < result.overall.recall
    assert result.baseline_groups["harmless: git id"].damaged > 0
    assert result.groups["harmless: git id"].damaged == 0


def test_the_six_patterns_mask_as_they_did() -> None:
    """The baseline is the seed's own: order, lengths and masks."""
    assert six_patterns("Authorization: Bearer " + "a1" * 12) == "Authorization: Bearer [REDACTED]"
    assert six_patterns('apiKey: "' + "a1" * 8 + '"') == 'apiKey: "[REDACTED]'
    assert six_patterns("commit " + "a1" * 20) == "commit [REDACTED_HEX]"


def test_a_score_without_samples_is_perfect() -> None:
    """A masker that does nothing has no recall, and nothing to be imprecise about."""
    result = measure(seed=1, samples=1, masker=str)
    assert result.overall.recall == 0.0
    assert result.overall.precision == 1.0
    assert result.groups["harmless: uuid"].recall == 1.0


def test_a_masked_secret_leaves_no_telling_piece() -> None:
    """Half a secret is a leak; a mask that shares letters with it is none; a neighbour lost is damage."""
    sample = Sample("x", "see rubygems_0123456789 now", "rubygems_0123456789")
    assert sample.is_masked_in("see [REDACTED:rubygems-key] now")
    assert not sample.is_masked_in("see [REDACTED]0123456789 now")
    assert not sample.is_damaged_in("see [REDACTED] now")
    assert sample.is_damaged_in("see [REDACTED]")


@pytest.mark.nightly
def test_the_documentation_gives_the_figures_that_the_command_makes() -> None:
    """Every row of the table in docs/security.md, and both pairs of figures below it, are measured."""
    result = measure()
    page = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text("utf-8")
    for name, (ours, theirs) in result.rows().items():
        figures = (ours.samples, ours.planted, ours.masked, ours.damaged, theirs.masked, theirs.damaged)
        assert f"| {name} | {' | '.join(f'{figure:,}' for figure in figures)} |" in page
    assert f"Precision {result.overall.precision:.3f}, recall {result.overall.recall:.3f}" in page
    assert f"six patterns: {result.baseline.precision:.3f} and {result.baseline.recall:.3f}" in page
    assert f"tokens of {len({rule for rule, _ in SHAPED})} formats" in page
