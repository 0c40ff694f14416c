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
from waiting import PATIENCE

from .conftest import TOKEN, Pair

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
            connection.putheader(name, value)
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
)


class TestPaths:
    def test_a_path_that_begins_like_one_of_the_server_is_never_forwarded(self, pair: Pair) -> None:
        for target in RESERVED:
            answer = send(pair.url, target, headers={"x-api-key": "sk-of-the-user"})
            assert answer.status in {401, 404}, target  # 401 if the path is that of the calls once it is decoded
        assert pair.upstream.seen == []

    def test_the_answer_says_why(self, pair: Pair) -> None:
        answer = send(pair.url, "/Holdfast/rpc", headers={"authorization": f"Bearer {TOKEN}"})
        assert answer.status == 404
        assert "/Holdfast/rpc is a path of Holdfast" in json.loads(answer.text)["error"]["message"]

    @pytest.mark.parametrize(("method", "target"), [("GET", "/holdfast/rpc"), ("DELETE", "/ui/")])
    def test_another_method_is_not_forwarded_either(self, pair: Pair, method: str, target: str) -> None:
        assert send(pair.url, target, method=method).status in {404, 405}
        assert pair.upstream.seen == []

    def test_other_paths_are_forwarded_as_they_came(self, pair: Pair) -> None:
        targets = ["/v1/holdfast/rpc", "/v1/ui", "/v1/files/%2e%2e", "/my-ui/x", "/v1/a//b/", "/"]
        for target in targets:
            assert send(pair.url, target).status == 200
        assert [seen.target for seen in pair.upstream.seen] == [f"{target}?" for target in targets]


class TestCredentials:
    @pytest.mark.parametrize(
        "headers",
        [
            {"authorization": f"Bearer {TOKEN}"},
            {"authorization": f"bearer {TOKEN}"},
            {"authorization": "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()},
            {"x-api-key": TOKEN},
            {"cookie": f"a=b; token={TOKEN}"},
            {"x-goog-api-key": f"%68{TOKEN[1:]}"},
        ],
        ids=["bearer", "lower case", "basic", "key", "cookie", "encoded"],
    )
    def test_a_request_with_the_token_of_the_server_is_refused(self, pair: Pair, headers: dict[str, str]) -> None:
        for path in ("/v1/messages", "/v1/chat/completions", "/v1/messages/count_tokens", "/v1/files"):
            answer = send(pair.url, path, headers=headers)
            assert answer.status == 403
            assert "key of the provider" in json.loads(answer.text)["error"]["message"]
            assert TOKEN not in answer.text
        assert pair.upstream.seen == []

    @pytest.mark.parametrize(
        "target",
        [f"/v1/models?key={TOKEN}", f"/v1/models?key=%68{TOKEN[1:]}", f"/v1/{TOKEN}"],
        ids=["query", "encoded", "path"],  # the token is another one in each process that collects the tests
    )
    def test_nor_with_the_token_in_the_address(self, pair: Pair, target: str) -> None:
        assert send(pair.url, target).status == 403
        assert pair.upstream.seen == []

    def test_the_token_of_another_server_is_recognised(self, pair: Pair) -> None:
        """Of one that was stopped, or of `holdfast mcp --http`: clients may still have it."""
        answer = send(pair.url, "/v1/messages", headers={"authorization": f"Bearer {make_token()}"})
        assert answer.status == 403
        assert pair.upstream.seen == []

    def test_the_key_of_the_inspector_is_recognised(self, pair: Pair) -> None:
        key = urlsplit(address(pair.url, TOKEN)).path.split("/")[2]
        answer = send(pair.url, "/v1/messages", headers={"x-api-key": key})
        assert answer.status == 403
        assert pair.upstream.seen == []

    def test_a_key_of_a_provider_is_forwarded(self, pair: Pair) -> None:
        key = "sk-ant-api03-holdfast"
        assert send(pair.url, "/v1/messages", headers={"x-api-key": key}).status == 200
        assert dict(pair.upstream.seen[0].headers)["x-api-key"] == key
