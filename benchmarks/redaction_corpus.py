"""A corpus of secrets, and of what only looks like one, made from the public formats of both.

Nothing in it was ever anybody's secret. `<kind:n>` in a template stands for n random characters of a kind, and
`<kind>` for a made thing; `{}` in a surrounding is where the secret goes.
"""

import base64
import json
import random
import re
import string
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["HARMLESS", "NAMED", "SHAPED", "SURROUNDINGS", "fill"]

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

SHAPED: Final = (
    ("private-key", "<pem>"),
    ("jwt", "<jwt>"),
    ("anthropic-key", "sk-ant-api03-<url:93>AA"),
    ("anthropic-key", "sk-ant-oat01-<url:86>-<url:6>AA"),
    ("openrouter-key", "sk-or-v1-<hex:64>"),
    ("langfuse-key", "sk-lf-<uuid>"),
    ("openai-key", "sk-proj-<url:74>T3BlbkFJ<url:74>"),
    ("openai-key", "sk-svcacct-<url:58>T3BlbkFJ<url:58>"),
    ("openai-key", "sk-<an:20>T3BlbkFJ<an:20>"),
    ("openai-key", "sk-<hex:32>"),
    ("groq-key", "gsk_<an:52>"),
    ("xai-key", "xai-<an:80>"),
    ("perplexity-key", "pplx-<an:48>"),
    ("cerebras-key", "csk-<low:48>"),
    ("replicate-key", "r8_<an:37>"),
    ("huggingface-token", "hf_<an:34>"),
    ("together-key", "tgp_v1_<url:43>"),
    ("fireworks-key", "fw_<an:22>"),
    ("nvidia-key", "nvapi-<url:64>"),
    ("elevenlabs-key", "sk_<hex:48>"),
    ("tavily-key", "tvly-dev-<an:32>"),
    ("firecrawl-key", "fc-<hex:32>"),
    ("jina-key", "jina_<hex:32><an:28>"),
    ("pinecone-key", "pcsk_<an:6>_<an:63>"),
    ("langsmith-key", "lsv2_pt_<hex:32>_<hex:10>"),
    ("wandb-key", "wandb_v1_<an:77>"),
    ("e2b-key", "e2b_<hex:40>"),
    ("aws-access-key", "AKIA<up:16>"),
    ("aws-access-key", "ASIA<up:16>"),
    ("aws-bedrock-key", "ABSKQmVkcm9ja0FQSUtleS<b64:110>="),
    ("google-api-key", "AIza<url:35>"),
    ("google-api-key", "AQ.Ab8RN6<url:44>"),
    ("google-oauth-token", "ya29.a0<url:160>"),
    ("google-refresh-token", "1//0<an:1><url:60>"),
    ("google-client-secret", "GOCSPX-<url:28>"),
    ("azure-client-secret", "<an:3>8Q~<url:34>"),
    ("alibaba-access-key", "LTAI5t<an:18>"),
    ("tencent-secret-id", "AKID<an:32>"),
    ("digitalocean-token", "dop_v1_<hex:64>"),
    ("databricks-token", "dapi<hex:32>"),
    ("vault-token", "hvs.<url:90>"),
    ("terraform-token", "<an:14>.atlasv1.<url:67>"),
    ("pulumi-token", "pul-<hex:40>"),
    ("heroku-key", "HRKU-<uuid>"),
    ("vercel-token", "vcp_<an:56>"),
    ("neon-key", "napi_<low:64>"),
    ("render-key", "rnd_<an:28>"),
    ("netlify-token", "nfp_<an:36>"),
    ("fly-token", "fo1_<url:43>"),
    ("fly-token", "fm2_<b64:300>"),
    ("supabase-key", "sbp_<hex:40>"),
    ("supabase-key", "sb_secret_<url:31>"),
    ("planetscale-key", "pscale_tkn_<url:43>"),
    ("tailscale-key", "tskey-auth-<an:17>-<an:32>"),
    ("doppler-token", "dp.pt.<an:43>"),
    ("doppler-token", "dp.st.prd.<an:43>"),
    ("github-token", "ghp_<an:36>"),
    ("github-token", "gho_<an:36>"),
    ("github-token", "ghs_<an:36>"),
    ("github-token", "github_pat_<an:22>_<an:59>"),
    ("gitlab-token", "glpat-<url:20>"),
    ("gitlab-token", "glpat-<url:27>.01.<low:9>"),
    ("npm-token", "npm_<an:36>"),
    ("pypi-token", "pypi-AgEIcHlwaS5vcmc<url:150>"),
    ("rubygems-key", "rubygems_<hex:48>"),
    ("docker-token", "dckr_pat_<url:27>"),
    ("atlassian-token", "ATATT3xFfGF0<url:175>=<up:8>"),
    ("docker-swarm-token", "SWMTKN-1-<low:50>-<low:25>"),
    ("circleci-token", "CCIPAT_<an:22>_<hex:40>"),
    ("buildkite-token", "bkua_<hex:40>"),
    ("slack-token", "xoxb-<num:12>-<num:13>-<an:24>"),
    ("slack-token", "xoxp-<num:12>-<num:12>-<num:13>-<hex:32>"),
    ("slack-token", "xapp-1-A<up:10>-<num:13>-<hex:64>"),
    ("slack-webhook", "https://hooks.slack.com/services/T<up:10>/B<up:10>/<an:24>"),
    ("discord-webhook", "https://discord.com/api/webhooks/<num:18>/<url:68>"),
    ("discord-token", "<snowflake>.<url:6>.<url:38>"),
    ("telegram-token", "<num:10>:AA<url:33>"),
    ("stripe-key", "sk_live_<an:24>"),
    ("stripe-key", "rk_live_<an:99>"),
    ("stripe-key", "sk_test_<an:24>"),
    ("webhook-secret", "whsec_<b64:32>"),
    ("twilio-key", "SK<hex:32>"),
    ("twilio-key", "AC<hex:32>"),
    ("sendgrid-key", "SG.<url:22>.<url:43>"),
    ("mailgun-key", "key-<hex:32>"),
    ("brevo-key", "xkeysib-<hex:64>-<an:16>"),
    ("resend-key", "re_<an:8>_<an:24>"),
    ("shopify-token", "shpat_<hex:32>"),
    ("square-token", "sq0atp-<url:22>"),
    ("square-token", "EAAA<url:60>"),
    ("linear-key", "lin_api_<an:40>"),
    ("notion-token", "ntn_<num:11><an:35>"),
    ("notion-token", "secret_<an:43>"),
    ("airtable-token", "pat<an:14>.<hex:64>"),
    ("figma-token", "figd_<url:40>"),
    ("postman-key", "PMAK-<hex:24>-<hex:34>"),
    ("posthog-key", "phx_<an:43>"),
    ("grafana-token", "glsa_<an:32>_<hex:8>"),
    ("newrelic-key", "NRAK-<up:27>"),
    ("sentry-token", "sntryu_<hex:64>"),
    ("1password-token", "ops_eyJ<an:300>"),
    ("artifactory-key", "AKCp<an:69>"),
    ("readme-key", "rdme_<low:70>"),
    ("mailchimp-key", "<hex:32>-us12"),
    ("password-hash", "$2b$12$<an:53>"),
    ("age-key", "AGE-SECRET-KEY-1<bech:58>"),
    ("azure-sas", "https://a.blob.core.windows.net/c/f.txt?sv=2024-08-04&se=2026-01-01&sr=b&sp=r&sig=<b64:43>%3D"),
)
"""Rule and template of every format that gives itself away."""

SURROUNDINGS: Final = (
    "{}",
    "Use {} for now.",
    "line one\n{}\nline three",
    'print("{}")',
    "`{}`",
    "({})",
    "请用这个{}试试",
    "これは{}です",
    "여기{}입니다",
    '{{"note": "first\\n{}\\nlast"}}',
    '"args": "{{\\"text\\": \\"{}\\"}}"',
    "https://example.org/a/{}",
    "https://example.org/a?x=1&y={}&z=2",
    "- {}",
    "x={}",
    "\x1b[32m{}\x1b[0m",
    "    12→    {}",
    "  at line end: {}\r\n",
)
"""Where a secret that gives itself away may stand. None of them names a secret."""

NAMED: Final = (
    ("password", "<password>", '"password": "{}"'),
    ("password", "<password>", '{{\\"db_password\\": \\"{}\\", \\"x\\": 1}}'),
    ("password", "<password>", "password = '{}'"),
    ("password", "<password>", "const password: string = '{}';"),
    ("password", "<weak>", "db:\n  user: app\n  password: {}\n  port: 5432"),
    ("password", "<password>", "export DB_PASSWORD={}\n"),
    ("password", "<weak>", 'POSTGRES_PASSWORD="{}"'),
    ("password", "<weak>", "      POSTGRES_PASSWORD: {}\n"),
    ("password", "<weak>", "mysql --user root --password={} shop"),
    ("password", "<weak>", "tool login --password {} --verbose"),
    ("password", "<weak>", "env:\n  - name: DB_PASSWORD\n    value: {}\n"),
    ("password", "<weak>", '{{"name": "ADMIN_PASSWORD", "value": "{}"}}'),
    ("password", "<weak>", "<server><password>{}</password></server>"),
    ("password", "<weak>", "machine example.org login app password {}\n"),
    ("password", "<weak>", "The password is {}."),
    ("password", "<weak>", "密码是{}，别告诉别人"),
    ("password", "<weak>", "数据库密码：{}"),
    ("password", "<weak>", "パスワードは{}です"),
    ("password", "<weak>", "비밀번호: {}"),
    ("password", "<weak>", "curl -s -u admin:{} https://example.org/api"),
    ("password", "<password>", "curl https://example.org/api \\\n  -X POST \\\n  --user 'admin:{}'"),
    ("url-password", "<weak>", "postgresql://app:{}@db.example.org:5432/shop"),
    ("url-password", "<weak>", "redis://:{}@localhost:6379/0"),
    ("url-token", "<an:40>", "git clone https://{}@git.example.org/a/b.git"),
    ("token", "<key>", "api_key: {}"),
    ("token", "<key>", '"apiKey": "{}"'),
    ("token", "<key>", "OPENAI_API_KEY={}"),
    ("token", "<key>", 'os.environ["SERVICE_TOKEN"] = "{}"'),
    ("token", "<key>", "client_secret = '{}'"),
    ("token", "<b64:40>", "aws_secret_access_key = {}"),
    (
        "token",
        "<b64:86>==",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core.windows.net",
    ),
    ("token", "<key>", "token={}"),
    ("token", "<key>", "deploy --api-key {} --region eu"),
    ("token", "<key>", "X-Api-Key: {}"),
    ("token", "<key>", "https://example.org/hook?access_token={}&v=2"),
    ("token", "<key>", '\\"refresh_token\\": \\"{}\\"'),
    ("token", "<key>", "//registry.npmjs.org/:_authToken={}"),
    ("token", "<key>", "client-key-data: {}"),
    ("token", "<key>", "The API key is {}"),
    ("token", "<key>", "密钥：{}"),
    ("token", "<key>", 'var apiToken string = "{}"'),
    ("token", "<key>", 'os.Getenv("API_TOKEN", "{}")'),
    ("token", "<b64:44>=", '"auths": {{"registry.example.org": {{"auth": "{}"}}}}'),
    ("authorization", "<key>", "Authorization: Bearer {}"),
    ("authorization", "<key>", "curl -H 'authorization: Bearer {}' https://example.org"),
    ("authorization", "<b64:32>", '"Authorization": "Basic {}"'),
    ("authorization", "<key>", "Authorization: token {}"),
    ("authorization", "<key>", "send it as Bearer {} please"),
    ("cookie", "session=<an:40>", "Cookie: {}"),
    # What nothing gives away but a reader's judgement; counted, since it is what redaction misses.
    ("unnamed", "<hex:64>", "here it is: {}"),
    ("unnamed", "<an:40>", "use {} from now on"),
    ("unnamed", "<b64:88>", "{}"),
    ("words", "<words>", 'password: "{}"'),
    ("words", "<word>", "the password is {}"),
    ("hex", "<hex:64>", "the webhook secret should now be {} in production"),
    ("base64", "<b64:88>", "signing key for the new cluster, base64: {}"),
)
"""Rule, template of the secret, and the text that names it."""

HARMLESS: Final = (
    ("git id", "commit <hex:40>\nAuthor: A <a@example.org>"),
    ("git id", "<hex:7>..<hex:7>  main -> main"),
    ("git id", "index <hex:10>..<hex:10> 100644"),
    ("git id", "<hex:64> refs/heads/main"),
    ("git id", "pick <hex:12> fix the token refresh"),
    ("uuid", '"sessionId": "<uuid>"'),
    ("uuid", "id=<uuid>&parent=<uuid>"),
    ("lock file", '"integrity": "sha512-<b64:86>=="'),
    ("lock file", 'hash = "sha256:<hex:64>"'),
    ("lock file", "    --hash=sha256:<hex:64> \\"),
    ("lock file", 'checksum = "<hex:64>"'),
    ("lock file", "golang.org/x/crypto v0.31.0 h1:<b64:43>="),
    ("lock file", 'content-hash = "<hex:64>"'),
    ("lock file", "yarn-token@^1.0.0:\n  resolved https://registry.yarnpkg.com/t/-/t-1.0.0.tgz#<hex:40>"),
    ("lock file", "https://files.pythonhosted.org/packages/<hex:2>/<hex:2>/<hex:60>/token-1.0.tar.gz"),
    ("digest", "<hex:32>  ./dist/secret.tar.gz"),
    ("digest", "<hex:64>  password-store.deb"),
    ("digest", "image: example.org/app@sha256:<hex:64>"),
    ("digest", "docker://alpine:3.20@sha256:<hex:64>"),
    ("digest", 'ETag: "<hex:32>"'),
    ("digest", "MD5 (token.txt) = <hex:32>"),
    ("digest", "secret sha256: <hex:64>"),
    ("number", "<num:20>"),
    ("number", "timestamp: 17<num:11>, total_tokens: <num:6>"),
    ("number", "max_tokens=4096, token_count: <num:7>"),
    ("model ids", '"id": "toolu_01<an:22>"'),
    ("model ids", '"tool_call_id": "call_<an:24>"'),
    ("model ids", "msg_01<an:22> req_<hex:32> chatcmpl-<an:29>"),
    ("model ids", '"thinking": "so", "signature": "E<b64:360>=="'),
    ("model ids", '"encrypted_content": "gAAAAAB<url:400>=="'),
    ("image", "data:image/png;base64,iVBORw0KGgo<b64:600>="),
    ("image", '{"type": "base64", "media_type": "image/jpeg", "data": "/9j/4AAQ<b64:600>"}'),
    ("hex dump", "00000010: <hex:4> <hex:4> <hex:4> <hex:4> <hex:4> <hex:4> <hex:4> <hex:4>  ................"),
    ("hex dump", "const N = 0x<hex:64>; // prime"),
    ("colour", "color: #<hex:6>; background: #<hex:8>;"),
    ("path", "/home/user/projects/secret-manager/src/password_reset/token_store.py:120"),
    ("path", "PWD=/home/user/work OLDPWD=/tmp"),
    ("path", "node_modules/.pnpm/jsonwebtoken@9.0.2/node_modules/jsonwebtoken/index.js"),
    ("public", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI<b64:43> user@host"),
    ("public", "-----BEGIN CERTIFICATE-----\n<b64:64>\n<b64:64>\n-----END CERTIFICATE-----"),
    ("public", "-----BEGIN PUBLIC KEY-----\n<b64:64>\n<b64:64>\n-----END PUBLIC KEY-----"),
    ("public", "pk_live_<an:24>"),
    ("public", 'publicKeyToken="<hex:16>"'),
    ("public", "next_page_token: <url:40>"),
    ("placeholder", "OPENAI_API_KEY=your-api-key-here"),
    ("placeholder", "api_key: xxxxxxxxxxxxxxxxxxxxxxxx"),
    ("placeholder", "ANTHROPIC_API_KEY=sk-ant-..."),
    ("placeholder", "AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE"),
    ("placeholder", "password: ${DB_PASSWORD}"),
    ("placeholder", "token=$TOKEN"),
    ("placeholder", "Authorization: Bearer <token>"),
    ("placeholder", "Authorization: Bearer ${{ secrets.DEPLOY_TOKEN }}"),
    ("placeholder", 'api_key = os.environ["OPENAI_API_KEY"]'),
    ("placeholder", "apiKey: process.env.OPENAI_API_KEY"),
    ("placeholder", "postgres://user:password@localhost/db"),
    ("placeholder", 'password = "********"'),
    ("placeholder", "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
    ("placeholder", "--token <TOKEN> --password {password}"),
    ("code", "const token = await getAccessToken(user.id);"),
    ("code", "password: string; token?: string | null; secret: Uint8Array"),
    ("code", "def login(username: str, password: str, token: str | None = None) -> None:"),
    ("code", "if (token === TokenType.Identifier) return parser.nextToken();"),
    ("code", 'label: { password: "Password", token: "Access token" }'),
    ("code", "self.api_key = api_key or settings.api_key"),
    ("code", "tokens = tokenizer.encode(text)  # token ids"),
    ("code", 'password_hash = bcrypt.hashpw(password.encode("utf-8"), salt)'),
    ("code", "test_refresh_token_is_rotated_when_password_changes PASSED"),
    ("code", "!function(e,t){var n=e.key,r=t.token;n&&r?s(n,r):a(n||r)}(window,document);"),
    ("code", 'if "-----BEGIN PRIVATE KEY-----" in text: raise ValueError'),
    ("code", "skip-task-runner-with-a-very-long-kebab-case-name"),
    ("prose", "The token is refreshed every hour and the password must be at least 12 characters long."),
    ("prose", "Bearer authentication-with-a-hyphenated-explanation is not a header."),
    ("prose", "密码必须至少包含八个字符，令牌每小时刷新一次。"),
    ("prose", "パスワードは8文字以上で、トークンは毎時更新されます。"),
    ("prose", "비밀번호는 8자 이상이어야 하며 토큰은 매시간 갱신됩니다."),
)
"""Kind and template of what must come through untouched."""
