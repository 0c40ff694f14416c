r"""Find secrets that have a known format.

A rule is a name, the marks and a pattern. Every match of the pattern starts with one of the marks, so that most
texts are ruled out before any pattern is compiled. Group 1 of a pattern is the secret, where it has one; else
the whole match is.

A pattern may repeat without bound only at its end, where nothing after it can fail: what it has matched is never
read again. With bounds everywhere else, a scan is linear.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from holdfast.redact.looks import compile_once, is_genuine, is_password

__all__ = ["ANYWHERE", "TOKENS", "Rule", "Secret", "find_by_format"]

# Secrets that are named by their key need no name in the mask; hexadecimal and base64 have their own masks.
_MASKS: Final = {
    "authorization": "[REDACTED]",
    "base64": "[REDACTED_B64]",
    "cookie": "[REDACTED]",
    "hex": "[REDACTED_HEX]",
    "password": "[REDACTED]",
    "token": "[REDACTED]",
    "url-password": "[REDACTED]",
    "url-token": "[REDACTED]",
}


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret in a text: the rule that found it, and its span."""

    rule: str
    start: int
    end: int

    @property
    def mask(self) -> str:
        """The text that replaces it."""
        return _MASKS.get(self.rule, f"[REDACTED:{self.rule}]")


@dataclass(frozen=True, slots=True)
class Rule:
    """One format: its name, the marks that every match starts with, and the exact pattern."""

    name: str
    marks: tuple[str, ...]
    pattern: str
    accepts: Callable[[str], bool] = is_genuine

    @property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern; compiled once, when first needed."""
        return compile_once(self.pattern)


def _token(name: str, marks: str, pattern: str) -> Rule:
    """Make a rule for a token that starts at a word boundary; CJK characters count as boundaries."""
    return Rule(name, tuple(marks.split()), rf"(?<![A-Za-z0-9]){pattern}")


TOKENS: Final = (
    _token(
        "jwt",
        "eyJ",
        r"(?<![_-])eyJ[A-Za-z0-9_-]{10,4000}+\.(?:eyJ[A-Za-z0-9_-]{6,20000}+|[A-Za-z0-9_-]{0,2000}+\.[A-Za-z0-9_-]{10,40}+"
        r"\.[A-Za-z0-9_-]{6,20000}+)\.[A-Za-z0-9_-]{10,}+",
    ),
    # --- models
    _token("anthropic-key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,}+"),
    _token("openrouter-key", "sk-or-", r"sk-or-(?:v1-)?[A-Za-z0-9]{32,}+"),
    _token("langfuse-key", "sk-lf-", r"sk-lf-[0-9a-f-]{32,}+"),
    _token("openai-key", "sk-proj- sk-svcacct- sk-admin-", r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}+"),
    _token("openai-key", "sk-", r"sk-(?=[a-z]{0,60}[A-Z0-9])[A-Za-z0-9]{20,}+"),
    _token("groq-key", "gsk_", r"gsk_[A-Za-z0-9]{40,}+"),
    _token("xai-key", "xai-", r"xai-[A-Za-z0-9_-]{60,}+"),
    _token("perplexity-key", "pplx-", r"pplx-[A-Za-z0-9]{40,}+"),
    _token("cerebras-key", "csk-", r"csk-[A-Za-z0-9]{40,}+"),
    _token("replicate-key", "r8_", r"r8_[A-Za-z0-9]{36,}+"),
    _token("huggingface-token", "hf_ api_org_", r"(?:hf|api_org)_[A-Za-z0-9]{30,}+"),
    _token("together-key", "tgp_v1_", r"tgp_v1_[A-Za-z0-9_-]{40,}+"),
    _token("fireworks-key", "fw_", r"fw_[A-Za-z0-9]{22,}+"),
    _token("nvidia-key", "nvapi-", r"nvapi-[A-Za-z0-9_-]{60,}+"),
    _token("elevenlabs-key", "sk_", r"sk_[0-9a-f]{48,}+"),
    _token("tavily-key", "tvly-", r"tvly-(?:dev-|prod-)?[A-Za-z0-9]{20,}+"),
    _token("firecrawl-key", "fc-", r"fc-[0-9a-f]{32,}+"),
    _token("jina-key", "jina_", r"jina_[0-9a-f]{32}[A-Za-z0-9_-]{20,}+"),
    _token("pinecone-key", "pcsk_", r"pcsk_[A-Za-z0-9_]{50,}+"),
    _token("langsmith-key", "lsv2_", r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10,}+"),
    _token("wandb-key", "wandb_v1_", r"wandb_v1_[A-Za-z0-9_]{40,}+"),
    _token("e2b-key", "e2b_", r"e2b_[0-9a-f]{40,}+"),
    # --- clouds
    _token("aws-access-key", "AKIA ASIA ABIA ACCA", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _token("aws-bedrock-key", "ABSK", r"ABSK[A-Za-z0-9+/]{100,}+={0,2}"),
    _token("google-api-key", "AIza", r"AIza[A-Za-z0-9_-]{35,}+"),
    _token("google-api-key", "AQ.", r"AQ\.[A-Za-z0-9_-]{40,}+"),
    _token("google-oauth-token", "ya29.", r"ya29\.[A-Za-z0-9_-]{20,}+"),
    _token("google-refresh-token", "1//0", r"1//0[A-Za-z0-9_-]{40,}+"),
    _token("google-client-secret", "GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{24,}+"),
    Rule("azure-client-secret", ("~",), r"(?<=[A-Za-z0-9_~.-]{3}[0-9]Q)~[A-Za-z0-9_~.-]{31,}+"),
    _token("alibaba-access-key", "LTAI", r"LTAI[A-Za-z0-9]{16,}+"),
    _token("tencent-secret-id", "AKID", r"AKID[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    _token("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"do[por]_v1_[0-9a-f]{64,}+"),
    _token("databricks-token", "dapi", r"dapi[0-9a-f]{32,}+(?:-[0-9])?"),
    _token("vault-token", "hvs. hvb. hvr.", r"hv[sbr]\.[A-Za-z0-9_-]{24,}+"),
    Rule("terraform-token", (".atlasv1.",), r"\.atlasv1\.([A-Za-z0-9_-]{50,}+)"),
    _token("pulumi-token", "pul-", r"pul-[0-9a-f]{40,}+"),
    _token("heroku-key", "HRKU-", r"HRKU-[A-Za-z0-9_-]{36,}+"),
    _token("vercel-token", "vcp_ vci_ vca_ vcr_ vck_", r"vc[piark]_[A-Za-z0-9_-]{50,}+"),
    _token("neon-key", "napi_", r"napi_[A-Za-z0-9]{50,}+"),
    _token("render-key", "rnd_", r"rnd_[A-Za-z0-9]{28,}+"),
    _token("netlify-token", "nfp_", r"nfp_[A-Za-z0-9]{36,}+"),
    _token("fly-token", "fo1_", r"fo1_[A-Za-z0-9_-]{40,}+"),
    _token("fly-token", "fm2_", r"fm2_[A-Za-z0-9+/=_-]{40,}+"),
    _token("supabase-key", "sbp_ sb_secret_", r"(?:sbp_[0-9a-f]{40,}+|sb_secret_[A-Za-z0-9_-]{30,}+)"),
    _token("planetscale-key", "pscale_", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,}+"),
    _token("tailscale-key", "tskey-", r"tskey-[a-z]{2,12}-[A-Za-z0-9_-]{16,}+"),
    _token("doppler-token", "dp.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[A-Za-z0-9_-]{2,40}\.)?[A-Za-z0-9]{40,}+"),
    # --- code and packages
    _token("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9_]{36,}+"),
    _token("github-token", "github_pat_", r"github_pat_[A-Za-z0-9_]{40,}+"),
    _token(
        "gitlab-token",
        "glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glagent- gloas- glimt- glffct- GR1348941",
        r"(?:gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|oas|imt|ffct)-|GR1348941)[A-Za-z0-9_-]{20,}+"
        r"(?:\.[0-9a-z]{2}\.[0-9a-z]{9,}+)?",
    ),
    _token("npm-token", "npm_", r"npm_[A-Za-z0-9]{36,}+"),
    _token("pypi-token", "pypi-", r"pypi-[A-Za-z0-9_-]{50,}+"),
    _token("rubygems-key", "rubygems_", r"rubygems_[0-9a-f]{48,}+"),
    _token("docker-token", "dckr_pat_ dckr_oat_", r"dckr_[po]at_[A-Za-z0-9_-]{20,}+"),
    _token("atlassian-token", "ATATT3 ATCTT3", r"AT[AC]TT3[A-Za-z0-9_=-]{50,}+"),
    _token("docker-swarm-token", "SWMTKN-", r"SWMTKN-[0-9]-[A-Za-z0-9]{40,}+(?:-[A-Za-z0-9]{20,}+)?"),
    _token("circleci-token", "CCIPAT_", r"CCIPAT_[A-Za-z0-9]{16,32}_[A-Za-z0-9]{40,}+"),
    _token("buildkite-token", "bkua_", r"bkua_[A-Za-z0-9]{40,}+"),
    # --- people, money, mail, data
    _token("slack-token", "xox", r"xox[abceoprs]-(?=(?:[A-Za-z-]{0,40}[0-9]){3})[A-Za-z0-9-]{16,}+"),
    _token("slack-token", "xoxd-", r"xoxd-[A-Za-z0-9%/+=_-]{20,}+"),
    _token("slack-token", "xapp-", r"xapp-[0-9]-[A-Za-z0-9-]{20,}+"),
    _token(
        "slack-webhook",
        "hooks.slack.com/",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9+/_-]{20,}+)",
    ),
    _token("discord-webhook", "discord", r"discord(?:app)?\.com/api/webhooks/[0-9]{15,20}/([A-Za-z0-9_-]{40,}+)"),
    # A bot token opens with its numeric id in base64, and digits in base64 have a narrow alphabet.
    _token(
        "discord-token",
        "MD MT Mj Mz ND NT Nj Nz OD OT Oj Oz",
        r"(?:[MNO][DTjz][AEIMQUYcgk][wxyz0-5]){4,6}[A-Za-z0-9_-]{0,6}+\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}+",
    ),
    _token("stripe-key", "sk_live_ rk_live_ sk_test_ rk_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}+"),
    _token("twilio-key", "SK AC", r"(?:SK|AC)[0-9a-f]{32}(?![A-Za-z0-9])"),
    _token("sendgrid-key", "SG.", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,}+"),
    _token("mailgun-key", "key-", r"key-[0-9a-f]{32,}+"),
    _token("brevo-key", "xkeysib-", r"xkeysib-[0-9a-f]{64}-[A-Za-z0-9]{16,}+"),
    _token("resend-key", "re_", r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24,}+"),
    _token("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32,}+"),
    _token("square-token", "sq0atp- sq0csp-", r"sq0(?:atp|csp)-[A-Za-z0-9_-]{22,}+"),
    _token("square-token", "EAAA", r"EAAA[A-Za-z0-9_-]{55,61}(?![A-Za-z0-9+/=_-])"),
    _token("linear-key", "lin_api_ lin_oauth_", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}+"),
    _token("notion-token", "ntn_ secret_", r"(?:ntn|secret)_[A-Za-z0-9]{40,}+"),
    _token("airtable-token", "pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64,}+"),
    _token("figma-token", "figd_", r"figd_[A-Za-z0-9_-]{36,}+"),
    _token("postman-key", "PMAK-", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34,}+"),
    _token("posthog-key", "phx_", r"phx_[A-Za-z0-9_-]{40,}+"),
    _token("grafana-token", "glsa_ glc_eyJ", r"(?:glsa_[A-Za-z0-9]{32}_[0-9a-f]{8,}+|glc_eyJ[A-Za-z0-9+/=]{32,}+)"),
    _token("newrelic-key", "NRAK-", r"NRAK-[A-Z0-9]{27,}+"),
    _token("sentry-token", "sntrys_ sntryu_", r"(?:sntryu_[0-9a-f]{64,}+|sntrys_[A-Za-z0-9+/=_]{40,}+)"),
    _token("1password-token", "ops_eyJ", r"ops_eyJ[A-Za-z0-9+/=_-]{100,}+"),
    _token("artifactory-key", "AKCp", r"AKCp[A-Za-z0-9]{69,}+"),
    _token("readme-key", "rdme_", r"rdme_[a-z0-9]{60,}+"),
    _token("age-key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-(?:PQ-)?1[A-Z0-9]{58,}+"),
)
"""Tokens with at least 20 plain characters in a row; they are searched only in such runs."""

_PEM_GAP: Final = r"(?:\\{1,2}[nr]|[\s\"'+,;>#|:\\→]|[0-9]{1,6}[→\t:|]){1,32}+"
_PEM_HEADER: Final = r"(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|X-[A-Za-z-]{1,40}): ?[^\r\n\\\"']{1,200}+"
_PEM_LABEL: Final = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"

ANYWHERE: Final = (
    # A whole block, also unterminated, with escaped line ends, quoted, indented or with line numbers.
    Rule(
        "private-key",
        ("PRIVATE KEY",),
        rf"-----BEGIN {_PEM_LABEL}(?=(?:{_PEM_GAP})?(?:{_PEM_HEADER}|[A-Za-z0-9+/=]{{16}}))"
        rf"(?:{_PEM_GAP}{_PEM_HEADER}){{0,8}}+(?:[A-Za-z0-9+/=]{{24,100000}}+)?"
        rf"(?:{_PEM_GAP}[A-Za-z0-9+/=]{{24,100000}}+){{0,4000}}+"
        rf"(?:(?:{_PEM_GAP}[A-Za-z0-9+/=]{{1,100}}+){{0,2}}+(?:{_PEM_GAP})?-----END {_PEM_LABEL})?",
    ),
    Rule("webhook-secret", ("whsec_",), r"whsec_[A-Za-z0-9+/=_-]{24,}+"),
    Rule("azure-sas", ("sig=",), r"sig=(?<=[?&]sig=)([A-Za-z0-9%/+=_-]{40,}+)"),
    Rule("telegram-token", (":AA",), r"(?<![0-9])[0-9]{8,12}:AA[A-Za-z0-9_-]{32,}+"),
    Rule(
        "password-hash",
        ("$",),
        r"\$(?:apr1|[156y]|2[abxy]|argon2[a-z]{1,2}|pbkdf2[a-z0-9-]{0,20})\$([./A-Za-z0-9$=,+-]{22,}+)",
    ),
    Rule("twilio-auth-token", ("AC",), r"AC[0-9a-f]{32}[\"'],[ \t]{0,4}[\"']([0-9a-f]{32})(?=[\"'])"),
    Rule(
        "credential",
        ("redential", "getConnection("),
        r"(?:[Cc]redentials?|getConnection)\([^()\n]{1,160}?,[ \t]{0,4}[\"']([^\s\"'\\]{4,128}+)(?=[\"'][ \t]{0,4}\))",
        accepts=partial(is_password, literal=False),
    ),
    Rule("mailchimp-key", ("-us",), r"(?<![0-9a-f])[0-9a-f]{32}-us[0-9]{1,2}(?![0-9])"),
    Rule("aws-signature", ("ignature=",), r"(?<=[?&, ])(?:X-Amz-)?Signature=([0-9a-f]{64})(?![0-9A-Za-z])"),
    Rule(
        "putty-key",
        ("Private-Lines:",),
        r"Private-Lines: ?[0-9]{1,4}\s{1,2}([A-Za-z0-9+/=]{1,76}+(?:\s{1,2}[A-Za-z0-9+/=]{20,76}+){0,200}+)",
    ),
    Rule(
        "pgpass",
        (":5432:", ":*:"),
        r"(?m:^)[^\s:\"'/]{1,100}+:(?:5432|\*):[^\s:]{1,64}+:[^\s:]{1,64}+:([^\s:\"']{4,128}+)(?m:$)",
        accepts=is_password,
    ),
    # Up to the last `@` before the path: people do write an unescaped one inside a password.
    Rule(
        "url-password",
        ("@",),
        r"://[^\s/:@\"'`<>\\]{0,128}+:([^\s/\"'`<>\\]{1,256})@(?!sha256:)(?=[A-Za-z0-9\[{$%<.-])",
        accepts=is_password,
    ),
    Rule(
        "url-token",
        ("@",),
        r"://(?:(?<=https://)|(?<=http://))([A-Za-z0-9_-]{24,256}+)(?::x-oauth-basic)?@(?=[A-Za-z0-9])",
    ),
)
"""Secrets with other characters in them; they are searched in the whole text."""


# --- the search ------------------------------------------------------------------


# A text as three kinds of characters: those of all tokens, those of some tokens, all others.
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.~")
_KINDS: Final = bytes(ord("a" if code in _PLAIN else "+" if code in b"+/=%" else " ") for code in range(256))
_LONG: Final = b"a" * 20

# The letters of an escape are not part of a token: of a line end in a string, of a colour, of an encoded `=`.
_ESCAPE: Final = r"\\(?:u[0-9A-Fa-f]{4}|[nrtbf])|[\[;][0-9]{1,3}m"
_ENCODED: Final = r"%(?:3D|20|26|22|0A|3A|2C)"


def find_by_format(text: str, plain: bytes) -> Iterator[Secret]:
    """Yield the secrets in a known format. `plain` is the text with one byte per character."""
    for rule in ANYWHERE:
        if any(mark in text for mark in rule.marks):
            for match in rule.regex.finditer(text):
                yield from _make_secret(rule, match)
    starts, runs = _find_runs(text, plain.translate(_KINDS))
    if _compile_marks().search("\n".join(runs)):
        for start, run in zip(starts, runs, strict=True):
            yield from _tokens(run, at=start)


def _find_runs(text: str, kinds: bytes) -> tuple[list[int], list[str]]:
    """Return the pieces with enough plain characters in a row for a token, and where they start."""
    starts, runs, end, long = [], [], 0, kinds.find(_LONG)
    while long >= 0:
        start = max(end, kinds.rfind(b" ", end, long) + 1)
        end = kinds.find(b" ", long)
        end = end if end >= 0 else len(kinds)
        if start and text[start - 1] in "\\[;" and (escape := compile_once(_ESCAPE).match(text, start - 1)):
            start = escape.end()
        run = text[start:end]
        starts.append(start)
        runs.append(compile_once(_ENCODED).sub("   ", run) if "%" in run else run)
        long = kinds.find(_LONG, end)
    return starts, runs


@cache
def _compile_marks() -> re.Pattern[str]:
    """Any mark that starts where a word does, or with a sign. By initials: `re` tries branches one by one."""
    tails = defaultdict(list)
    for mark in sorted({mark for rule in TOKENS for mark in rule.marks}, key=len, reverse=True):
        tails[mark[0]].append(re.escape(mark[1:]))
    branches = {initial: f"{re.escape(initial)}(?:{'|'.join(rest)})" for initial, rest in tails.items()}
    words = "|".join(branch for initial, branch in branches.items() if initial.isalnum())
    signs = "|".join(branch for initial, branch in branches.items() if not initial.isalnum())
    return re.compile(f"(?<![A-Za-z0-9])(?:{words})|{signs}")


@cache
def _rules_with(mark: str) -> tuple[Rule, ...]:
    """The rules that a mark points at: by itself, or by a shorter one that it starts with."""
    return tuple(rule for rule in TOKENS if mark.startswith(rule.marks))


def _tokens(run: str, *, at: int) -> Iterator[Secret]:
    """The tokens in a run. What a match has read is not read again: a token of marks only stays one token."""
    mark = _compile_marks().search(run)
    while mark:
        end = mark.end()
        for rule in _rules_with(mark.group()):
            if match := rule.regex.match(run, mark.start()):
                end = max(end, match.end())
                yield from _make_secret(rule, match, at=at)
        mark = _compile_marks().search(run, end)


def _make_secret(rule: Rule, match: re.Match[str], *, at: int = 0) -> Iterator[Secret]:
    group = rule.regex.groups and 1
    if rule.accepts(match[group]):
        yield Secret(rule.name, at + match.start(group), at + match.end(group))
