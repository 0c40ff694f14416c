"""What redaction masks, what it leaves alone, and that hostile text cannot slow it down."""

import importlib
import random
import subprocess
import sys
from types import FrameType
from typing import Any

import pytest

from benchmarks.redaction import dense_texts, fill
from holdfast.patterns import load
from holdfast.redaction import JSON, Secret, find, redact, redact_value
from support.cases import each
from support.external_data import DATA, needs_data

# Canaries are made here and not written down, lest a scanner of this repository takes them for leaks.
RNG = random.Random(7)  # noqa: S311 - the same canaries every time
GITHUB = fill("ghp_<an:36>", RNG)
ANTHROPIC = fill("sk-ant-api03-<url:93>AA", RNG)
KEY = fill("<an:32>", RNG)
HEX = fill("<hex:64>", RNG)
PASSWORD = "hunter2"


@each(
    ("text", "expected"),
    [
        (f"export GITHUB_TOKEN={GITHUB}", "export GITHUB_TOKEN=[REDACTED:github-token]"),
        (f"令牌{GITHUB}在这里", "令牌[REDACTED:github-token]在这里"),
        (f'{{"a": "x\\n{GITHUB}\\ny"}}', '{"a": "x\\n[REDACTED:github-token]\\ny"}'),
        (f"x%3D{GITHUB}", "x%3D[REDACTED:github-token]"),
        (f"\\u003d{GITHUB}", "\\u003d[REDACTED:github-token]"),
        (f"\x1b[1;31m{GITHUB}\x1b[0m", "\x1b[1;31m[REDACTED:github-token]\x1b[0m"),
        (
            f"https://x-access-token:{GITHUB}@github.com/a/b",
            "https://x-access-token:[REDACTED:github-token]@github.com/a/b",
        ),
        (f"{ANTHROPIC},{GITHUB}", "[REDACTED:anthropic-key],[REDACTED:github-token]"),
        (f"Authorization: Bearer {KEY}", "Authorization: Bearer [REDACTED]"),
        (f"as Bearer {KEY} please", "as Bearer [REDACTED] please"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [REDACTED]"),
        (f"req.setHeader('Authorization', 'Bearer {KEY}')", "req.setHeader('Authorization', 'Bearer [REDACTED]')"),
        (f"Cookie: session={KEY}; theme=dark", "Cookie: [REDACTED]; theme=dark"),
        (f"Cookie: a=1; session={KEY}; theme=dark", "Cookie: a=1; [REDACTED]; theme=dark"),
        (f"-----BEGIN PRIVATE KEY-----{KEY}{KEY}-----END PRIVATE KEY-----", "[REDACTED:private-key]"),
        (f"mysql -uroot -p{PASSWORD} shop", "mysql -uroot -p[REDACTED] shop"),
        (f"sshpass -p {PASSWORD} ssh a@b", "sshpass -p [REDACTED] ssh a@b"),
        (f"docker login -u ci -p {PASSWORD} ghcr.io", "docker login -u ci -p [REDACTED] ghcr.io"),
        (f"redis-cli -h c -a {PASSWORD} ping", "redis-cli -h c -a [REDACTED] ping"),
        (f"aws configure set aws_secret_access_key {KEY}", "aws configure set aws_secret_access_key [REDACTED]"),
        (f"jdbc:oracle:thin:scott/{PASSWORD}@//db:1521/X", "jdbc:oracle:thin:scott/[REDACTED]@//db:1521/X"),
        (f"/bot1234567890:AA{KEY}_/getMe", "/bot[REDACTED:telegram-token]/getMe"),
        (f"smtp_pass = {PASSWORD}", "smtp_pass = [REDACTED]"),
        (f"echo {PASSWORD} | sudo -S true", "echo [REDACTED] | sudo -S true"),
        (f"CREATE USER a IDENTIFIED BY '{PASSWORD}';", "CREATE USER a IDENTIFIED BY '[REDACTED]';"),
        (f"пароль: {PASSWORD}", "пароль: [REDACTED]"),
        (f"apiKey: {KEY}", "apiKey: [REDACTED]"),
        (f'\\"api_key\\": \\"{KEY}\\"', '\\"api_key\\": \\"[REDACTED]\\"'),
        (f"token = {KEY}", "token = [REDACTED]"),
        (f'var apiToken string = "{KEY}"', 'var apiToken string = "[REDACTED]"'),
        (f"const token: string = '{KEY}'", "const token: string = '[REDACTED]'"),
        (f'getenv("API_TOKEN", "{KEY}")', 'getenv("API_TOKEN", "[REDACTED]")'),
        (f'"auth": "{KEY}="', '"auth": "[REDACTED]"'),
        ("X-Auth-Token: Sk94HG7f6KB", "X-Auth-Token: [REDACTED]"),
        (f"Authorization: Api-Token {KEY}", "Authorization: Api-Token [REDACTED]"),
        (f"aws_secret_access_key={fill('<b64:40>', RNG)}", "aws_secret_access_key=[REDACTED]"),
        (f"client_secret={HEX}", "client_secret=[REDACTED]"),
        (f"the signing secret for staging: {HEX}", "the signing secret for staging: [REDACTED_HEX]"),
        (f"private key of the host {fill('<b64:86>', RNG)}==", "private key of the host [REDACTED_B64]"),
        ('password = "hunter2"', 'password = "[REDACTED]"'),
        ("password: hunter2", "password: [REDACTED]"),
        ("DB_PASSWORD=p@ss(w)0rd!", "DB_PASSWORD=[REDACTED]"),
        ("(set DB_PASSWORD=hunter2)", "(set DB_PASSWORD=[REDACTED])"),
        ("mysql --password=hunter2 --host db", "mysql --password=[REDACTED] --host db"),
        ("mysql --password hunter2 --host db", "mysql --password [REDACTED] --host db"),
        ("The password is hunter2.", "The password is [REDACTED]."),
        ("密码是hunter2，请记住", "密码是[REDACTED]，请记住"),
        ("パスワード：hunter2です", "パスワード：[REDACTED]です"),
        ("비밀번호: hunter2", "비밀번호: [REDACTED]"),
        ("<password>hunter2</password>", "<password>[REDACTED]</password>"),
        ("- name: DB_PASSWORD\n  value: hunter2", "- name: DB_PASSWORD\n  value: [REDACTED]"),
        ("machine h login me password hunter2", "machine h login me password [REDACTED]"),
        ("curl -u me:hunter2 https://example.org", "curl -u me:[REDACTED] https://example.org"),
        ("curl https://example.org \\\n  --user 'me:hunter2'", "curl https://example.org \\\n  --user 'me:[REDACTED]'"),
        ("postgres://app:p@ss9@host/db", "postgres://app:[REDACTED]@host/db"),
        ("redis://:hunter2@localhost:6379", "redis://:[REDACTED]@localhost:6379"),
        (f"TWITTER_API_KEY_SECRET={KEY}", "TWITTER_API_KEY_SECRET=[REDACTED]"),
        (f"B2_APPLICATION_KEY={KEY}", "B2_APPLICATION_KEY=[REDACTED]"),
        (f"AZURE_DEVOPS_PAT={KEY}", "AZURE_DEVOPS_PAT=[REDACTED]"),
        (f"MAPS_KEY = '{KEY}'", "MAPS_KEY = '[REDACTED]'"),
        (f'cohere = "{KEY}"', 'cohere = "[REDACTED]"'),
        ("passcode: 771-04-2", "passcode: [REDACTED]"),
        ("Das Passwort ist Regen!Wolke7.", "Das Passwort ist [REDACTED]."),
        ("mot de passe : ch4taigne!", "mot de passe : [REDACTED]"),
        ("La contraseña del servidor es Monte_alto8.", "La contraseña del servidor es [REDACTED]."),
        ("A senha é Mar!azul9.", "A senha é [REDACTED]."),
        ("Пароль от сервера: Most_dom3", "Пароль от сервера: [REDACTED]"),
        ("パスワードを oki-Na99k に変更", "パスワードを [REDACTED] に変更"),
        ("Use hunt3r-Moss as the password.", "Use [REDACTED] as the password."),
        ("The password for the staging box is Qu0kka-99.", "The password for the staging box is [REDACTED]."),
        ("credentials: admin / Sn0wdrop!", "credentials: admin / [REDACTED]"),
        ("Your verification code is 481 207", "Your verification code is [REDACTED]"),
        (f"API key created: {KEY} (shown once)", "API key created: [REDACTED] (shown once)"),
        ("Password\n  S4ndpiper!\n", "Password\n  [REDACTED]\n"),
        (
            "| user | password |\n| --- | --- |\n| ana | Qu1nce-tree |",
            "| user | password |\n| --- | --- |\n| ana | [REDACTED] |",
        ),
        ("user,password\nana,G1nger-tea\nbob,Cl0ve-tea", "user,password\nana,[REDACTED]\nbob,[REDACTED]"),
        (
            "INSERT INTO users (name, password) VALUES ('ana', 'Lark-spur6');",
            "INSERT INTO users (name, password) VALUES ('ana', '[REDACTED]');",
        ),
        ("kind: Secret\ndata:\n  user: c2hvcC1hZG1pbg==\n", "kind: Secret\ndata:\n  user: [REDACTED_B64]\n"),
        (f"https://ci.example.org/webhook/{KEY}", "https://ci.example.org/webhook/[REDACTED]"),
        (
            f"https://discord.com/api/v10/webhooks/1234567890/{KEY}",
            "https://discord.com/api/v10/webhooks/1234567890/[REDACTED]",
        ),
        ("requests.get(url, auth=('admin', 'Fl1nt-Rook'))", "requests.get(url, auth=('admin', '[REDACTED]'))"),
        (
            'seed phrase: "velvet orbit cactus rabbit galaxy hinge"',
            'seed phrase: "[REDACTED]"',
        ),
    ],
)
def test_a_secret_is_masked_and_nothing_next_to_it(text: str, expected: str) -> None:
    """The mask takes the place of the secret; keys, quotes, schemes and neighbours stay."""
    assert redact(text) == expected


@each(
    "text",
    [
        f"commit {HEX[:40]}",
        f"{HEX[:7]}..{HEX[7:14]} main -> main",
        f'hash = "sha256:{HEX}"',
        f"secret.txt sha256 {HEX}",
        "3f2a8c1e-77f0-4b1a-a0c5-0f9b6f0d2b11",
        "token_count: 12345678901234567890",
        "--max-tokens 4096 --token <TOKEN>",
        "password: string; token: Uint8Array",
        'label = { password: "Password", secret: "密码" }',
        'api_key = os.environ["OPENAI_API_KEY"]',
        "token=$TOKEN password=${PASSWORD} secret={{ secret }}",
        "apiKey: process.env.API_KEY || getApiKey()",
        "AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE",
        "postgres://user:password@localhost/db",
        "docker run -u 1000:1000 image",
        "curl -u <user:password> https://example.org",
        'fields = ["username", "password", "email2"]',
        'clientId = "73082700-1f09-405b-80d0-3131bfd6272d"',
        'public_key = "9Cnzj4p4WGeKLs1Pt8QuKUpRKfFLfRYC9AIKjbJTWit"',
        "password: {{ .Values.password }}",
        "xoxb-my-slack-bot-token-goes-here",
        "docker://alpine:3@sha256:" + HEX,
        "PWD=/home/me/work",
        "if '-----BEGIN PRIVATE KEY-----' in text: more and more text",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        fill("pk_live_<an:24>", RNG),
        fill("toolu_01<an:22> call_<an:24>", RNG),
        "data:image/png;base64," + fill("<b64:400>", RNG),
        "密码必须至少包含八个字符",
        "密码：password，令牌：string",
        "password: user.password, pwd = args.pwd2, pass = 12/15, password: 8192",
        "[REDACTED] [REDACTED:github-token] [REDACTED_HEX] password=[REDACTED]",
        "private_key: ed25519.Ed25519PrivateKey, RegEnumKey = win32api.RegEnumKey",
        "I use 1Password as my password manager.",
        "The bypass: cache-v2, minipass ^7.1.3",
        'primary_key="' + HEX + '"',
        "keyring.set_password('service1', 'user2', password)",
        "the confirmation code for the flight is 3RK2T9",
        "Das Passwort ist im Tresor gespeichert. Le mot de passe est incorrect. A senha é inválida.",
        "密码长度为 8 到 32 位，パスワードは8文字以上，비밀번호는 8자 이상",
        "| field | type |\n| --- | --- |\n| password | string |",
        "https://github.com/acme/shop/settings/hooks/471829301",
        "gpg: using RSA key 3AA5C34371567BD23AA5C34371567BD2AB12CD34",
    ],
)
def test_what_is_no_secret_comes_back_as_it_was(text: str) -> None:
    """Ids, digests, numbers, placeholders, code and prose come back as the same object."""
    assert redact(text) is text
    assert find(text) == []


def test_find_names_the_rule_and_the_span() -> None:
    """`find` gives the rules and spans that `redact` masks, in order."""
    text = f"a {GITHUB} b password=hunter2x c"
    secrets = find(text)
    assert [(secret.rule, text[secret.start : secret.end]) for secret in secrets] == [
        ("github-token", GITHUB),
        ("password", "hunter2x"),
    ]
    assert [secret.mask for secret in secrets] == ["[REDACTED:github-token]", "[REDACTED]"]


def test_secrets_that_overlap_are_masked_as_one() -> None:
    """A token inside a longer password is masked with all of it, under the more telling name."""
    assert redact(f'password="x9:{GITHUB}!"') == 'password="[REDACTED:github-token]"'


def _pem(*, line_end: str = "\n", label: str = "RSA PRIVATE KEY") -> str:
    lines = [fill("<b64:64>", RNG) for _ in range(12)]
    return line_end.join((f"-----BEGIN {label}-----", *lines, fill("<b64:22>==", RNG), f"-----END {label}-----"))


@each(
    "block",
    [
        _pem(),
        _pem(line_end="\\n"),
        _pem(line_end="\\\\n"),
        _pem(line_end="\n    "),
        _pem(line_end="\r\n> "),
        _pem(line_end=" "),
        _pem(label="OPENSSH PRIVATE KEY"),
        _pem().replace("-----\n", "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB12\n\n", 1),
    ],
)
def test_a_private_key_is_masked_as_a_block(block: str) -> None:
    """However its lines are broken, quoted or escaped, a PEM block goes as a whole."""
    assert redact(f"before\n{block}\nafter") == "before\n[REDACTED:private-key]\nafter"


def test_a_private_key_without_an_end_is_masked_as_far_as_it_goes() -> None:
    """Of a truncated PEM block every line of the key is masked, and not the text after it."""
    lines = _pem().splitlines()[:-2]
    assert redact("\n".join((*lines, "and so on"))) == "[REDACTED:private-key]\nand so on"


def test_a_private_key_with_line_numbers_is_masked() -> None:
    """A PEM block that a tool printed with line numbers leaves none of its lines."""
    block = _pem()
    output = redact("\n".join(f"{number:6}→{line}" for number, line in enumerate(block.splitlines(), 1)))
    assert not any(line in output for line in block.splitlines())


def test_a_long_value_is_masked_to_its_end() -> None:
    """A key's value that is longer than what is read to judge it leaves no tail behind."""
    value = fill("<b64:5000>", RNG)
    assert redact(f"client-key-data: {value}\nnext: 1") == "client-key-data: [REDACTED]\nnext: 1"
    assert redact(f'"private_token": "{value}"') == '"private_token": "[REDACTED]"'


class TestValues:
    def test_a_value_without_secrets_is_the_same_object(self) -> None:
        """Nothing is copied where nothing is masked."""
        value: JSON = {"a": [1, None, True, {"b": "text"}], "token": "the", "tokens": 3}
        assert redact_value(value) is value

    def test_a_string_under_a_secret_key_is_masked(self) -> None:
        """A key that names a secret is enough: apiKey, password, token, secret, in any spelling and depth."""
        value: JSON = {
            "config": {"apiKey": KEY, "db_password": PASSWORD, "clientSecret": HEX, "密码": PASSWORD, "user": "me"},
            "tokens": [{"accessToken": KEY}, {"refresh_token": [KEY]}],
        }
        assert redact_value(value) == {
            "config": {
                "apiKey": "[REDACTED]",
                "db_password": "[REDACTED]",
                "clientSecret": "[REDACTED]",
                "密码": "[REDACTED]",
                "user": "me",
            },
            "tokens": [{"accessToken": "[REDACTED]"}, {"refresh_token": ["[REDACTED]"]}],
        }

    def test_headers_and_name_value_pairs_are_keys_too(self) -> None:
        """An Authorization header keeps its scheme; the value next to a telling name is masked."""
        value: JSON = {
            "headers": {"Authorization": f"Bearer {KEY}"},
            "env": [{"name": "DB_PASSWORD", "value": PASSWORD}, {"name": "DB_USER", "value": "me"}],
        }
        assert redact_value(value) == {
            "headers": {"Authorization": "Bearer [REDACTED]"},
            "env": [{"name": "DB_PASSWORD", "value": "[REDACTED]"}, {"name": "DB_USER", "value": "me"}],
        }

    def test_text_inside_is_redacted_and_the_input_is_not_touched(self) -> None:
        """Strings anywhere are redacted as text, in a copy; a known format keeps its name under any key."""
        value: JSON = ["x", {"command": f"echo {GITHUB}", "api_key": ANTHROPIC}]
        assert redact_value(value) == [
            "x",
            {"command": "echo [REDACTED:github-token]", "api_key": "[REDACTED:anthropic-key]"},
        ]
        assert value == ["x", {"command": f"echo {GITHUB}", "api_key": ANTHROPIC}]

    def test_placeholders_and_schemas_are_left_alone(self) -> None:
        """What only describes a secret, or stands for one, stays."""
        value: JSON = {
            "password": {"type": "string", "description": "The password of the user"},
            "apiKey": "${API_KEY}",
            "token": "string",
            "next_page_token": KEY,
            "key": "Enter",
        }
        assert redact_value(value) is value

    def test_secret_keys_do_not_swallow_each_other(self) -> None:
        """Secrets used as keys are masked, and entries that become alike are kept apart."""
        output = redact_value({GITHUB: 1, fill("ghp_<an:36>", RNG): 2})
        assert isinstance(output, dict)
        assert sorted(output.values(), key=str) == [1, 2]
        assert all(key.startswith("[REDACTED:github-token]") for key in output)

    def test_nesting_deeper_than_the_stack_is_no_trouble(self) -> None:
        """A hundred thousand levels are walked without recursion."""
        value: JSON = f"password={PASSWORD}!"
        for _ in range(100_000):
            value = [value]
        output = redact_value(value)
        for _ in range(100_000):
            assert isinstance(output, list)
            output = output[0]
        assert output == "password=[REDACTED]"

    @pytest.mark.parametrize("value", [None, True, 3, 2.5, "plain", [], {}])
    def test_any_json_is_taken(self, value: JSON) -> None:
        """Scalars and empty containers come back as they are."""
        assert redact_value(value) is value


def _patterns() -> list[tuple[str, str]]:
    tables = load("secrets")
    formats = [(name, pattern) for rules in tables["formats"].values() for name, _, pattern, *_ in rules]
    keyed = [tables[name] for name in ("keyed", "near", "structures")]
    items = [item for table in (*keyed, *tables["commands"].values()) for item in table.items()]
    return formats + [(name, pattern) for name, pattern in items if isinstance(pattern, str)]


@each(("name", "pattern"), _patterns())
def test_no_pattern_can_read_a_text_twice(name: str, pattern: str) -> None:
    """Every repeat is bounded, or else possessive, flat, and with nothing behind it that could fail."""
    parser: Any = importlib.import_module("re._parser")
    assert _is_linear(list(parser.parse(pattern)), parser, at_end=True), name


def _is_linear(items: list[Any], parser: Any, *, at_end: bool) -> bool:
    """True if no unbounded repeat of the tree can be read and then given up."""
    for index, (op, argument) in enumerate(items):
        last = at_end and all(_is_optional(item, parser) for item in items[index + 1 :])
        if op in (parser.MAX_REPEAT, parser.MIN_REPEAT, parser.POSSESSIVE_REPEAT):
            _, most, body = argument
            if most == parser.MAXREPEAT and not (
                last and op == parser.POSSESSIVE_REPEAT and _is_flat(list(body), parser)
            ):
                return False
        if not all(_is_linear(list(branch), parser, at_end=last) for branch in _branches(op, argument, parser)):
            return False
    return True


def _is_optional(item: tuple[Any, Any], parser: Any) -> bool:
    return item[0] in (parser.MAX_REPEAT, parser.POSSESSIVE_REPEAT) and item[1][0] == 0


def _is_flat(body: list[Any], parser: Any) -> bool:
    return len(body) == 1 and body[0][0] in (parser.IN, parser.LITERAL, parser.NOT_LITERAL, parser.ANY)


def _branches(op: Any, argument: Any, parser: Any) -> list[Any]:
    if op == parser.BRANCH:
        return list(argument[1])
    if op == parser.SUBPATTERN:
        return [argument[3]]
    if op in (parser.MAX_REPEAT, parser.MIN_REPEAT, parser.POSSESSIVE_REPEAT):
        return [argument[2]]
    return [argument[1]] if op in (parser.ASSERT, parser.ASSERT_NOT) else []


# Traps for the patterns, and traps for the words, by how many characters of each are tried at once.
HOSTILE = {
    640_000: [
        "sk-ant-",
        "ghp_" + "a" * 30 + "-",
        "eyJ" + "a" * 40 + ".",
        "eyJaaaaaaaaaa.eyJaaaaaaaaa.",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\n" + "A" * 64 + "\n",
        "://a:" + "b" * 200,
        "x" * 600 + "=token",
    ],
    20_000: [
        "AA~",
        "http://a:b",
        "token=",
        "apikey:",
        'secret="',
        "pwd='" + '"',
        "password=a1",
        "pass\\",
        "Authorization: token ",
        "authorization:",
        "cookie: a=bbbbbbbbbbbbbb; ",
        "curl -u a ",
        "token " + "f" * 31 + " ",
        "密码：a",
    ],
}


MAX_CALLS_PER_CHARACTER = 18
MAX_CALLS_PER_TEXT = 1000  # whatever the text is: each word and each mark is searched once


@pytest.mark.variants
@pytest.mark.parametrize("piece", [piece for pieces in HOSTILE.values() for piece in pieces])
def test_twice_the_text_is_twice_the_work(piece: str) -> None:
    """On hostile text the number of calls grows with its length, not faster."""
    size = max(10, 6_000 // len(piece))
    redact(piece * size)  # loads and compiles what will be needed
    assert _calls(piece * 2 * size) <= 2.2 * _calls(piece * size) + 200


def _calls(text: str) -> int:
    count = 0

    def see(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        redact(text)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.variants
@pytest.mark.parametrize("stem", [*load("secrets")["names"]["stems"], *load("secrets")["names"]["other stems"]])
def test_dense_secret_words_take_a_bounded_number_of_steps(stem: str) -> None:
    """Text of nothing but secret words takes a bounded number of calls for each character, whatever separates them."""
    texts = {piece: text for piece, text in dense_texts(chars=500).items() if piece.startswith(stem)}
    for piece, text in texts.items():
        redact(text)  # loads and compiles what will be needed
        assert _calls(text) <= MAX_CALLS_PER_CHARACTER * len(text) + MAX_CALLS_PER_TEXT, piece


def test_masks_that_bring_others_into_reach_take_a_bounded_number_of_passes() -> None:
    """Each password is out of reach of its command until the one before it is masked: that is not one pass for each."""
    value = fill("<an:295>", RNG)
    link = f"-p{value} mysql -a {value} redis-cli "
    redact(f"mysql redis-cli {link}")  # loads and compiles what will be needed
    short, long = (f"mysql redis-cli {link * count}" for count in (12, 24))
    assert _calls(long) <= 2.2 * _calls(short) + 200


@pytest.mark.nightly
def test_five_hostile_megabytes_are_got_through() -> None:
    """A text of every trap at once is searched to its end."""
    text = "\n".join(piece * (size // len(piece)) for size, pieces in HOSTILE.items() for piece in pieces)
    assert len(text) > 5_000_000
    assert "password" in {secret.rule for secret in find(text)}


@pytest.mark.nightly
@needs_data("transcripts/pi")
def test_real_transcripts_come_through_untouched() -> None:
    """The public transcripts hold placeholders, ids, digests and signatures, and no secret: nothing is masked."""
    found: list[tuple[str, Secret]] = []
    for path in sorted((DATA / "transcripts").rglob("*")):
        if path.is_file() and path.suffix in (".jsonl", ".json", ".md", ".txt"):
            found += [(path.name, secret) for secret in find(path.read_text(errors="replace"))]
    assert found == []


def test_patterns_compile_only_when_needed() -> None:
    """Importing the module compiles no pattern."""
    source = "import dataclasses, pathlib, re; re.compile = None; import holdfast.redaction"
    subprocess.run([sys.executable, "-c", source], check=True)
