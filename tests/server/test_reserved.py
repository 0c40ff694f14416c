"""Paths and credentials of the server itself: neither ever reaches a provider."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from holdfast.server.guard import make_token
from holdfast.server.inspector.web import address
from support.waiting import PATIENCE

from .conftest import OWNER_TOKEN, TOKEN, Pair

BODY = {"model": "claude-x", "max_tokens": 50, "messages": [{"role": "user", "content": "Which port?"}]}


@dataclass(frozen=True)
class Answer:
    """The answer to a request, as it came."""

    status: int
    text: str


def send(url: str, target: str, *, method: str = "POST", headers: Mapping[str, str] | None = None) -> Answer:
    """Send a request whose target is written as it is: other clients clean it up first."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        body = json.dumps(BODY).encode()
        for name, value in {"content-length": str(len(body)), **(headers or {})}.items():
            connection.putheader(name, value.encode())
        connection.endheaders(body)
        reply = connection.getresponse()
        return Answer(reply.status, reply.read().decode())
    finally:
        connection.close()


RESERVED = (
    "/holdfast/rpc/",
    "//holdfast/rpc",
    "///holdfast//rpc",
    "/Holdfast/rpc",
    "/HOLDFAST/RPC",
    "/%68oldfast/rpc",
    "/%2568oldfast/rpc",
    "/holdfast%2frpc",
    "/%2fholdfast/rpc",
    "/./holdfast/rpc",
    "/v1/../holdfast/rpc",
    "/v1/%2e%2e/holdfast/rpc",
    "/v1/..%2fholdfast/rpc",
    "/v1/..;/holdfast/rpc",
    "/\\holdfast\\rpc",
    "/%5choldfast/rpc",
    "/holdfast/../v1/messages",
    "/holdfa%C5%BFt/rpc",
    "/%EF%BD%88oldfast/rpc",
    "/holdfast",
    "/holdfast/",
    "/holdfast/unknown",
    "/holdfast;a=b/rpc",
    "/holdfast-rpc",
    "/UI/",
    "//ui/",
    "/ui/../ui/unknown",
    "/Ui/session?session=s1",
    "/%75i/act",
    "http://127.0.0.1/Holdfast/rpc",
    "/%u0068oldfast/rpc",
    "/%U0068oldfast/rpc",
    "/%25u0068oldfast/rpc",
    "/%u0075i/",
    "/%20holdfast/rpc",
    "/%20/holdfast/rpc",
    "/%C2%A0holdfast/rpc",
    "/hold%20fast/rpc",
    "/hold%E2%80%8Bfast/rpc",
    "/%EF%BB%BFholdfast/rpc",
    "/.%20/holdfast/rpc",
    "/v1/..%20/holdfast/rpc",
    "/%E2%80%8B/holdfast/rpc",
)
WITH_CONTROLS = (
    "/%00/holdfast/rpc",
    "/.%0d/holdfast/rpc",
    "/%0aholdfast/rpc",
    "/hold%09fast/rpc",
    "/%2500/holdfast/rpc",
    "/%u0000/holdfast/rpc",
    "/%7f/holdfast/rpc",
    "/%C2%85/holdfast/rpc",
    "/v1/models%00",
    "/v1/%0d%0aholdfast/rpc",
)


class TestPaths:
    def test_a_path_that_begins_like_one_of_the_server_is_never_forwarded(self, shared_pair: Pair) -> None:
        for target in RESERVED:
            answer = send(shared_pair.url, target, headers={"x-api-key": "sk-of-the-user"})
            assert answer.status in {401, 404}, target  # 401 if the path is that of the calls once it is decoded
        assert shared_pair.upstream.seen == []

    def test_a_path_with_control_characters_is_never_forwarded(self, shared_pair: Pair) -> None:
        for target in WITH_CONTROLS:
            answer = send(shared_pair.url, target, headers={"x-api-key": "sk-of-the-user"})
            assert answer.status == 400, target
            assert "control characters" in json.loads(answer.text)["error"]
        assert shared_pair.upstream.seen == []

    def test_the_answer_has_the_reason(self, shared_pair: Pair) -> None:
        answer = send(shared_pair.url, "/Holdfast/rpc", headers={"authorization": f"Bearer {TOKEN}"})
        assert answer.status == 404
        assert "/Holdfast/rpc is a path of Holdfast" in json.loads(answer.text)["error"]["message"]

    @pytest.mark.parametrize(("method", "target"), [("GET", "/holdfast/rpc"), ("DELETE", "/ui/")])
    def test_another_method_is_not_forwarded_either(self, shared_pair: Pair, method: str, target: str) -> None:
        assert send(shared_pair.url, target, method=method).status in {404, 405}
        assert shared_pair.upstream.seen == []

    def test_other_paths_are_forwarded_as_they_came(self, shared_pair: Pair) -> None:
        targets = ["/v1/holdfast/rpc", "/v1/ui", "/v1/files/%2e%2e", "/my-ui/x", "/v1/a//b/", "/"]
        targets += ["/v1/files/a%20b", "/v1/files/caf%E9", "/v1/files/%E6%96%87%E4%BB%B6", "/v1/100%", "/v1/%uzzzz"]
        for target in targets:
            assert send(shared_pair.url, target).status == 200
        assert [seen.target for seen in shared_pair.upstream.seen] == [f"{target}?" for target in targets]


def encode(text: str) -> str:
    """Return a text in base64."""
    return base64.b64encode(text.encode()).decode()


def percent(text: str, *, times: int = 1) -> str:
    """Return a text with every character percent-encoded, several times over."""
    for _ in range(times):
        text = "".join(f"%{ord(char):02x}" for char in text)
    return text


BASIC = encode(f"me:{TOKEN}")
HEADERS_WITH_TOKEN = {
    "bearer": {"authorization": f"Bearer {TOKEN}"},
    "lower case": {"authorization": f"bearer {TOKEN}"},
    "alone": {"authorization": TOKEN},
    "key": {"x-api-key": TOKEN},
    "cookie": {"cookie": f"a=b; token={TOKEN}"},
    "percent-encoded": {"x-goog-api-key": f"%68{TOKEN[1:]}"},
    "percent-encoded three times": {"x-goog-api-key": percent(TOKEN, times=3)},
    "by code point": {"x-goog-api-key": f"%u0068{TOKEN[1:]}"},
    "basic": {"authorization": f"Basic {BASIC}"},
    "basic without padding": {"authorization": f"Basic {encode(TOKEN + ':').rstrip('=')}"},
    "basic after a tab": {"authorization": f"Basic\t{BASIC}"},
    "basic after spaces": {"authorization": f"Basic   {BASIC}"},
    "basic with spaces": {"authorization": f"Basic {BASIC[:10]} {BASIC[10:]}"},
    "basic, percent-encoded": {"authorization": f"Basic {percent(BASIC)}"},
    "base64 in a key": {"x-api-key": encode(TOKEN)},
    "base64 in a bearer": {"authorization": f"Bearer {encode(TOKEN)}"},
    "base64 for addresses": {"x-api-key": encode(f"\xff\xfe{TOKEN}").replace("+", "-").replace("/", "_")},
    "base64 after a prefix": {"x-api-key": f"key-{encode(TOKEN)}"},
    "base64 after a comma": {"x-api-key": f"abc,{encode(TOKEN)}"},
    "base64 in a cookie": {"cookie": f"a=b; session={encode(TOKEN)}; c=d"},
    "base64 of base64": {"x-api-key": encode(encode(TOKEN))},
    "base64 of a percent-encoded one": {"x-api-key": encode(percent(TOKEN))},
    "owner's": {"x-api-key": encode(OWNER_TOKEN)},
    "an unknown header": {"x-anything": encode(TOKEN)},
}
TARGETS_WITH_TOKEN = {
    "query": f"/v1/models?key={TOKEN}",
    "percent-encoded": f"/v1/models?key=%68{TOKEN[1:]}",
    "percent-encoded twice": f"/v1/models?key=%2568{TOKEN[1:]}",
    "wholly percent-encoded twice": f"/v1/models?key={percent(TOKEN, times=2)}",
    "base64": f"/v1/models?key={encode(TOKEN)}",
    "base64, percent-encoded": f"/v1/models?a=b&key={percent(encode(TOKEN))}",
    "path": f"/v1/{TOKEN}",
    "base64 in the path": f"/v1/{encode(TOKEN).rstrip('=')}/models",
}


class TestCredentials:
    @pytest.mark.parametrize("headers", HEADERS_WITH_TOKEN.values(), ids=HEADERS_WITH_TOKEN)
    def test_a_request_with_the_token_of_the_server_is_refused(
        self, shared_pair: Pair, headers: dict[str, str]
    ) -> None:
        for path in ("/v1/messages", "/v1/chat/completions", "/v1/messages/count_tokens", "/v1/files"):
            answer = send(shared_pair.url, path, headers=headers)
            assert answer.status == 403
            assert "key of the provider" in json.loads(answer.text)["error"]["message"]
            assert TOKEN not in answer.text
        assert shared_pair.upstream.seen == []

    @pytest.mark.parametrize("target", TARGETS_WITH_TOKEN.values(), ids=TARGETS_WITH_TOKEN)
    def test_nor_with_the_token_in_the_address(self, shared_pair: Pair, target: str) -> None:
        assert send(shared_pair.url, target).status == 403
        assert shared_pair.upstream.seen == []

    def test_the_token_of_another_server_is_recognised(self, shared_pair: Pair) -> None:
        """Of one that was stopped, or of `holdfast mcp --http`: clients may still have it."""
        answer = send(shared_pair.url, "/v1/messages", headers={"authorization": f"Bearer {make_token()}"})
        assert answer.status == 403
        assert shared_pair.upstream.seen == []

    def test_the_key_of_the_inspector_is_recognised(self, shared_pair: Pair) -> None:
        key = urlsplit(address(shared_pair.url, TOKEN)).path.split("/")[2]
        answer = send(shared_pair.url, "/v1/messages", headers={"x-api-key": key})
        assert answer.status == 403
        assert shared_pair.upstream.seen == []

    def test_what_is_accepted_as_a_token_of_the_owner_is_not_forwarded(self, shared_pair: Pair) -> None:
        """However often it is sent; the key of the provider is."""
        headers = {"X-Holdfast-Token": f" {OWNER_TOKEN} ", "x-api-key": "sk-of-the-user"}
        assert send(shared_pair.url, "/v1/messages", headers=headers).status == 200
        (seen,) = shared_pair.upstream.seen
        assert OWNER_TOKEN not in str(seen.headers)
        assert dict(seen.headers)["x-api-key"] == "sk-of-the-user"

    def test_a_key_of_a_provider_is_forwarded(self, shared_pair: Pair) -> None:
        keys = ["sk-ant-api03-holdfast", encode("me:holdfast_short"), "100%", encode("\x00\xff" * 100), "签名"]
        for key in keys:
            assert send(shared_pair.url, "/v1/messages", headers={"x-api-key": key}).status == 200
        seen = [dict(request.headers)["x-api-key"] for request in shared_pair.upstream.seen]
        assert [key.encode("latin-1").decode() for key in seen] == keys
