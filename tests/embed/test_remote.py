"""Remote providers, against a real HTTP server: what is sent, what is understood, and what each trouble says."""

import sys
from typing import Any

import numpy as np
import pytest

from holdfast.calls import RetryPolicy
from holdfast.embed.remote import RemoteEmbedder
from holdfast.errors import EmbeddingError, MissingExtraError
from holdfast.settings import Secret
from support.cases import each
from support.embed_models import Endpoint, Reply, endpoint

KEY = "sk-canary-0123456789abcdef"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stands between a test and its server."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def vector(text: str) -> list[float]:
    """A vector of three values that tells texts apart."""
    return [float(len(text)), 1.0, float(ord(text[0]) % 7)]


def openai_answer(body: Any) -> Any:
    """What OpenAI would answer, in another order than asked."""
    rows = [
        {"object": "embedding", "index": place, "embedding": vector(text)} for place, text in enumerate(body["input"])
    ]
    return {"object": "list", "data": rows[::-1], "model": body["model"]}


def gemini_answer(body: Any) -> Any:
    """What Gemini would answer."""
    return {"embeddings": [{"values": vector(each["content"]["parts"][0]["text"])} for each in body["requests"]]}


GOOD = Reply(body=openai_answer)


def remote(
    server: Endpoint, provider: str = "openai", *, waited: list[float] | None = None, **changes: Any
) -> RemoteEmbedder:
    """An embedder that asks the server, has three dimensions, and notes its waits instead of waiting."""
    noted = [] if waited is None else waited
    given: dict[str, Any] = {
        "model": "tiny",
        "dimension": 3,
        "key": Secret(KEY),
        "base_url": f"{server.url}/v1/",
        "policy": RetryPolicy(sleep=noted.append, chance=lambda: 1.0),
        "query_seconds": 60,  # by the real clock: a busy machine is no slow server
    }
    return RemoteEmbedder(provider, **given | changes)


def trouble(embedder: RemoteEmbedder, why: str) -> EmbeddingError:
    """The error of a question, which gives the reason and never shows the key."""
    with pytest.raises(EmbeddingError, match=why) as caught:
        embedder.embed(["where"], kind="query")
    assert KEY not in f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"
    return caught.value


class TestWire:
    """What each provider is sent, and what its answer means."""

    def test_openai(self) -> None:
        """Texts go out in one request with the key in its header, and rows come back in the order of the texts."""
        with endpoint(GOOD) as server:
            rows = remote(server).embed(["aa", "你好", "c"], kind="passage")
        (seen,) = server.seen
        assert seen.path == "/v1/embeddings"
        assert seen.headers["Authorization"] == f"Bearer {KEY}"
        assert seen.body == {"model": "tiny", "input": ["aa", "你好", "c"], "encoding_format": "float", "dimensions": 3}
        wanted = np.array([vector("aa"), vector("你好"), vector("c")])
        assert np.allclose(rows, wanted / np.linalg.norm(wanted, axis=1, keepdims=True))
        assert rows.dtype == np.float32

    def test_a_model_with_a_fixed_dimension_is_sent_none(self) -> None:
        """`dimensions` is sent only where it changes something: many servers refuse it."""
        long = Reply(body=lambda body: {"data": [{"embedding": [1.0] * 1536} for _ in body["input"]]})
        with endpoint(long) as server:
            remote(server, model=None, dimension=None).embed(["a"], kind="query")
            remote(server, model="text-embedding-3-small", dimension=1536).embed(["a"], kind="query")
        assert all("dimensions" not in seen.body for seen in server.seen)
        assert server.seen[0].body["model"] == "text-embedding-3-small"

    def test_openai_compatible(self) -> None:
        """Any endpoint that speaks as OpenAI does will do, also without a key; its dimension is only checked."""
        with endpoint(GOOD) as server:
            remote(server, "openai-compatible", key=None).embed(["a"], kind="query")
        assert "Authorization" not in server.seen[0].headers
        assert "dimensions" not in server.seen[0].body

    def test_gemini(self) -> None:
        """One request in the batch for each text, with the task it is for; the key has a header of its own."""
        with endpoint(Reply(body=gemini_answer)) as server:
            embedder = remote(server, "gemini", model="gemini-embedding-001")
            embedder.embed(["a"], kind="query")
            rows = embedder.embed(["a", "b"], kind="passage")
        question, passages = server.seen
        assert question.path == "/v1/models/gemini-embedding-001:batchEmbedContents"
        assert {name.lower(): value for name, value in question.headers.items()}["x-goog-api-key"] == KEY
        assert question.body["requests"] == [
            {
                "model": "models/gemini-embedding-001",
                "content": {"parts": [{"text": "a"}]},
                "outputDimensionality": 3,
                "taskType": "RETRIEVAL_QUERY",
            }
        ]
        assert [each["taskType"] for each in passages.body["requests"]] == ["RETRIEVAL_DOCUMENT"] * 2
        assert rows.shape == (2, 3)

    def test_gemini_two_wants_words_instead_of_a_task(self) -> None:
        """Its newer model is told in the text what it is for."""
        with endpoint(Reply(body=gemini_answer)) as server:
            embedder = remote(server, "gemini", model="gemini-embedding-2")
            embedder.embed(["a"], kind="query")
            embedder.embed(["b"], kind="passage")
        texts = [seen.body["requests"][0]["content"]["parts"][0]["text"] for seen in server.seen]
        assert texts == ["task: search result | query: a", "title: none | text: b"]
        assert "taskType" not in server.seen[0].body["requests"][0]

    def test_voyage(self) -> None:
        """Questions and passages are distinguished, and shorter vectors asked for under its own name."""
        with endpoint(GOOD) as server:
            embedder = remote(server, "voyage")
            embedder.embed(["a"], kind="query")
            embedder.embed(["a"], kind="passage")
        assert [seen.body["input_type"] for seen in server.seen] == ["query", "document"]
        assert server.seen[0].body["output_dimension"] == 3

    def test_mistral(self) -> None:
        """Nothing next to model and texts."""
        with endpoint(GOOD) as server:
            remote(server, "mistral").embed(["a"], kind="query")
        assert server.seen[0].body == {"model": "tiny", "input": ["a"]}

    def test_ollama_models_want_their_prefix(self) -> None:
        """A model that is known to want words before the text gets them, whatever its tag; no key is needed."""
        with endpoint(GOOD) as server:
            embedder = remote(server, "ollama", model="nomic-embed-text:v1.5", key=None)
            embedder.embed(["a"], kind="query")
            embedder.embed(["a"], kind="passage")
        assert [seen.body["input"] for seen in server.seen] == [["search_query: a"], ["search_document: a"]]


class TestTexts:
    """Which texts are sent, and how many at once."""

    def test_blank_texts_are_not_sent(self) -> None:
        """A text without content is a row of zeros, and costs nothing."""
        with endpoint(GOOD) as server:
            rows = remote(server).embed(["", "a", " \n"], kind="passage")
            assert not remote(server).embed(["", " "], kind="passage").any()
        assert [seen.body["input"] for seen in server.seen] == [["a"]]
        assert [bool(row.any()) for row in rows] == [False, True, False]

    def test_no_texts_ask_nothing(self) -> None:
        """The shape is right for nothing, too."""
        with endpoint(GOOD) as server:
            assert remote(server).embed([], kind="passage").shape == (0, 3)
        assert server.seen == []

    def test_many_texts_go_in_batches(self) -> None:
        """A request holds as many texts as was set, as the provider takes, and as make about 8,000 tokens."""
        with endpoint(GOOD) as server:
            remote(server, batch_size=2).embed(list("abcde"), kind="passage")
            assert [len(seen.body["input"]) for seen in server.seen] == [2, 2, 1]
            server.seen.clear()
            remote(server).embed(["plain words " * 400] * 20, kind="passage")
            sizes = [len(seen.body["input"]) for seen in server.seen]
            assert sum(sizes) == 20
            assert all(4 <= size <= 12 for size in sizes)
        with endpoint(Reply(body=gemini_answer)) as server:
            remote(server, "gemini", batch_size=1000).embed(["x"] * 150, kind="passage")
            assert [len(seen.body["requests"]) for seen in server.seen] == [100, 50]

    def test_a_long_text_is_cut(self) -> None:
        """About 2,000 tokens of a text are sent, fewer characters of a script that has more tokens for them."""
        with endpoint(GOOD) as server:
            remote(server).embed(["plain words " * 4_000, "字" * 50_000], kind="passage")
        latin, han = (len(text) for seen in server.seen for text in seen.body["input"])
        assert 5_000 <= latin <= 12_000
        assert 1_000 <= han <= 2_000

    def test_half_surrogates_are_mended(self) -> None:
        """What UTF-8 cannot carry is replaced before it is sent."""
        with endpoint(GOOD) as server:
            remote(server).embed(["a\ud800b"], kind="query")
        assert server.seen[0].body["input"] == ["a\ufffdb"]


class TestRetries:
    """What is tried again, and when."""

    def test_too_many_requests_then_good(self) -> None:
        """A refusal for now is tried again after a wait."""
        waited: list[float] = []
        with endpoint(Reply(status=429, body={}), GOOD) as server:
            assert remote(server, waited=waited).embed(["a"], kind="query").any()
        assert len(server.seen) == 2
        assert waited == [0.5]

    def test_the_server_sets_how_long_to_wait(self) -> None:
        """`Retry-After` is heeded where there is time for it."""
        waited: list[float] = []
        with endpoint(Reply(status=429, headers={"Retry-After": "7"}), GOOD) as server:
            remote(server, waited=waited).embed(["a"], kind="passage")
        assert waited == [7.0]

    def test_a_wait_past_the_deadline_is_not_begun(self) -> None:
        """Where the next try would come too late, the error comes at once."""
        with endpoint(Reply(status=429, body="slow down", headers={"Retry-After": "3600"})) as server:
            assert trouble(remote(server), "HTTP 429.*slow down").status == 429
        assert len(server.seen) == 1

    def test_a_server_error_is_tried_three_times_more(self) -> None:
        """The waits double, and then the error says what the server said."""
        waited: list[float] = []
        with endpoint(Reply(status=503, body={"error": {"message": "overloaded"}})) as server:
            embedder = remote(server, query_seconds=60, waited=waited)
            assert trouble(embedder, "openai: HTTP 503.*overloaded").status == 503
        assert len(server.seen) == 4
        assert waited == [0.5, 1.0, 2.0]

    def test_waits_have_chance_in_them(self) -> None:
        """A wait is between half and all of its step, and no step is longer than eight seconds."""
        low, high = RetryPolicy(chance=lambda: 0.0), RetryPolicy(chance=lambda: 1.0)
        assert [low.wait(failed) for failed in range(1, 7)] == [0.25, 0.5, 1, 2, 4, 4]
        assert [high.wait(failed) for failed in range(1, 7)] == [0.5, 1, 2, 4, 8, 8]

    @pytest.mark.parametrize("status", [400, 404, 422])
    def test_a_refusal_for_good_is_not_tried_again(self, status: int) -> None:
        """What will not become right is an error at once."""
        with endpoint(Reply(status=status, body={"error": "no such model"})) as server:
            assert trouble(remote(server), f"HTTP {status}.*no such model").status == status
        assert len(server.seen) == 1


class TestTrouble:
    """What each trouble says."""

    def test_no_answer_within_the_deadline(self) -> None:
        """A server that hangs is left behind."""
        with endpoint(Reply(hangs=True)) as server:
            error = trouble(remote(server, query_seconds=0.2), "no answer within 0.2 s")
        assert error.status is None

    def test_an_answer_that_does_not_end(self) -> None:
        """A server that says a little again and again is left behind as well."""
        with endpoint(Reply(body=b"[", drips=True)) as server:
            trouble(remote(server, query_seconds=0.2), "no answer within 0.2 s")

    def test_questions_and_passages_have_separate_deadlines(self) -> None:
        """A passage may take longer than a question."""
        with endpoint(Reply(hangs=True)) as server:
            embedder = remote(server, query_seconds=60, passage_seconds=0.1)
            with pytest.raises(EmbeddingError, match=r"within 0\.1 s"):
                embedder.embed(["a"], kind="passage")

    def test_nobody_there(self) -> None:
        """A server that does not run is named as the trouble, at once."""
        waited: list[float] = []
        with endpoint(GOOD) as server:
            embedder = remote(server, waited=waited)
        trouble(embedder, rf"openai: {server.url}\S* cannot be reached: .*embedding\.base_url")
        assert waited == []

    @pytest.mark.parametrize("status", [401, 403])
    def test_a_refused_key(self, status: int) -> None:
        """The error says where the key came from, and nothing of what the server repeats of it."""
        with endpoint(Reply(status=status, body=f"bad key {KEY}")) as server:
            trouble(
                remote(server), rf"the key was refused \(HTTP {status}\); check OPENAI_API_KEY or embedding\.api_key"
            )

    def test_a_key_that_is_repeated(self) -> None:
        """A server that repeats the key, or another secret, is not quoted with it."""
        other = "ghp_q8ZrT1vXw3LkP9mNb5Yc7HdJ2fGs4aU6eR0i"
        with endpoint(Reply(status=400, body=f"your key {KEY} and {other} are noted")) as server:
            error = trouble(remote(server), "your key .* are noted")
        assert other not in str(error)

    def test_an_answer_that_is_not_json(self) -> None:
        """A page of some proxy is quoted, so that one can see whose it is."""
        for body in (b"<html>Welcome to the hotel</html>", b"<html>Welcome to the hotel" + b"[" * 200_000):
            with endpoint(Reply(body=body)) as server:
                trouble(remote(server), "the response is not JSON: <html>Welcome to the hotel")
        with endpoint(Reply(body=b"[" * 200_000)) as server:
            trouble(remote(server), "the response is not JSON")

    @each(
        "body",
        [
            {},
            [],
            None,
            {"data": None},
            {"data": [{}]},
            {"data": ["x"]},
            {"data": [{"embedding": "QUJD"}]},
            {"data": [{"embedding": [1, None, 2]}]},
            {"data": [{"embedding": ["a", "b", "c"]}]},
            {"data": [{"embedding": 7}]},
        ],
    )
    def test_an_answer_without_vectors(self, body: Any) -> None:
        """Any JSON at all gives an error that says so."""
        with endpoint(Reply(body=body)) as server:
            trouble(remote(server), "holds no vectors|values instead of 3|not made of numbers")

    def test_vectors_of_another_length(self) -> None:
        """A model of another dimension never gets into the index."""
        with endpoint(Reply(body={"data": [{"embedding": [1.0, 2.0]}]})) as server:
            trouble(remote(server), r"vectors of 2 values instead of 3; set embedding\.dimension")

    def test_too_few_vectors(self) -> None:
        """One vector for each text, or none at all."""
        short = Reply(body={"data": [{"embedding": [1.0, 2.0, 3.0]}]})
        with endpoint(short) as server, pytest.raises(EmbeddingError, match="1 vectors for 2 texts"):
            remote(server).embed(["a", "b"], kind="passage")

    def test_vectors_that_are_not_numbers(self) -> None:
        """NaN, which some servers write, is refused."""
        with endpoint(Reply(body=b'{"data": [{"embedding": [NaN, 1, 2]}]}')) as server:
            trouble(remote(server), "not made of numbers")

    def test_a_redirection_is_not_followed(self) -> None:
        """The key goes to the address that was set and nowhere else."""
        with endpoint(GOOD) as elsewhere:
            moved = Reply(status=307, headers={"Location": f"{elsewhere.url}/v1/embeddings"})
            with endpoint(moved) as server:
                trouble(remote(server), rf"has moved \(HTTP 307\) to {elsewhere.url}.*set embedding\.base_url")
        assert elsewhere.seen == []

    def test_a_proxy_from_the_environment_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where the environment names a proxy, requests go through it."""
        with endpoint(GOOD) as proxy:
            monkeypatch.setenv("http_proxy", proxy.url)
            remote(proxy, base_url="http://embeddings.example/v1").embed(["a"], kind="query")
        assert proxy.seen[0].path == "http://embeddings.example/v1/embeddings"


class TestIdentity:
    """What an embedder is known by."""

    def test_provider_model_and_dimension_identify_a_space(self) -> None:
        """Each of the three makes another space; the address does not."""
        with endpoint(GOOD) as server:
            plain = remote(server).space
            assert plain == remote(server, base_url="http://elsewhere/v1").space
            others = [
                remote(server, "voyage").space,
                remote(server, model="large").space,
                remote(server, dimension=4).space,
            ]
        assert plain.name == "openai/tiny"
        assert len({plain, *others}) == 4
        assert len({space.digest for space in (plain, *others)}) == 4

    @each(
        ("provider", "changes", "why"),
        [
            ("openai", {"key": None}, r"no key: set OPENAI_API_KEY or embedding\.api_key"),
            ("gemini", {"key": None}, "no key: set GEMINI_API_KEY"),
            ("openai", {"model": "new", "dimension": None}, r"the dimension of new is not known: set embedding\.dim"),
            ("openai-compatible", {"model": None}, r"no model: set embedding\.model"),
            ("openai-compatible", {"base_url": None}, r"no address: set embedding\.base_url"),
            ("openai", {"base_url": "file:///etc/passwd"}, "no address"),
            ("openai", {"key": Secret(f"{KEY}\nX-Evil: 1")}, "characters that are not allowed"),
            ("openai", {"key": Secret(f"{KEY}é")}, "characters that are not allowed"),
        ],
    )
    def test_missing_keys_are_reported_before_anything_is_sent(
        self, provider: str, changes: dict[str, Any], why: str
    ) -> None:
        """Settings that cannot work are an error at once."""
        with endpoint(GOOD) as server, pytest.raises(EmbeddingError, match=why) as caught:
            remote(server, provider, **changes)
        assert KEY not in str(caught.value)
        assert server.seen == []

    def test_the_key_never_shows(self) -> None:
        """An embedder does not show its key."""
        with endpoint(GOOD) as server:
            assert repr(remote(server)) == "RemoteEmbedder('openai', model='tiny')"

    def test_without_an_http_client(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A missing package is an error that says how to install it."""
        monkeypatch.setitem(sys.modules, "httpx2", None)
        with (
            endpoint(GOOD) as server,
            pytest.raises(MissingExtraError, match=r"pip install 'holdfast-memory\[remote\]'"),
        ):
            remote(server)
