"""Long-term memory of LangGraph in a Holdfast memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypedDict

import pytest

from holdfast import AsyncEngine, Engine
from holdfast.messages import ToolCall
from holdfast.testing.provider import ScriptedProvider, ScriptedReply
from support.lazy import Lazy, skip_without

skip_without("langgraph", install="pip install langgraph langchain langchain-openai")
pytestmark = pytest.mark.nightly  # most of the time goes into importing the framework
if TYPE_CHECKING:
    import langchain_openai
    from langchain import agents, tools
    from langgraph import graph as graphs
    from langgraph import runtime as runtimes
    from langgraph.store import base as stores
    from langgraph.store import memory

    from holdfast.adapters import langgraph as adapter
else:
    langchain_openai = Lazy("langchain_openai")
    agents = Lazy("langchain.agents")
    tools = Lazy("langchain.tools")
    graphs = Lazy("langgraph.graph")
    runtimes = Lazy("langgraph.runtime")
    stores = Lazy("langgraph.store.base")
    memory = Lazy("langgraph.store.memory")
    adapter = Lazy("holdfast.adapters.langgraph")

ANNA, BOB = ("users", "anna", "food"), ("users", "bob", "food")


@pytest.fixture
def store(engine: Engine) -> adapter.HoldfastStore:
    """A store in a memory that searches by words."""
    return adapter.HoldfastStore(engine)


def fill(store: stores.BaseStore) -> None:
    """Put items into three namespaces."""
    store.put(ANNA, "likes", {"text": "Anna likes durian very much.", "stars": 5})
    store.put(ANNA, "hates", {"text": "Anna does not eat coriander.", "stars": 1})
    store.put(BOB, "likes", {"text": "鲍勃喜欢吃饺子。", "stars": 4, "with": ["vinegar", {"sauce": "soy"}]})
    store.put(("docs", "v1"), "guide", {"text": "How to peel a mango.", "stars": 3}, index=False)


def answers(store: stores.BaseStore) -> Iterator[Any]:
    """What a store answers to reads that need no ranking."""
    found = store.get(ANNA, "likes")
    yield found and (found.namespace, found.key, found.value)
    yield store.get(BOB, "nothing")
    searches: list[tuple[tuple[str, ...], Any, Any]] = [
        ((), None, {}),
        (("users",), None, {}),
        (("users",), {"stars": 5}, {}),
        (("users",), {"stars": {"$gte": 4}}, {}),
        ((), {"stars": {"$gt": 1, "$lt": 5}}, {}),
        ((), {"stars": {"$lte": 3}, "text": {"$ne": "x"}}, {}),
        (("users",), None, {"limit": 1, "offset": 1}),
        (("nobody",), None, {}),
    ]
    for prefix, condition, page in searches:
        items = store.search(prefix, filter=condition, **page)
        yield sorted((item.namespace, item.key, item.value["text"], item.score) for item in items)
    listings: list[Any] = [
        {},
        {"prefix": ("users",)},
        {"prefix": ("users", "*", "food")},
        {"suffix": ("food",)},
        {"suffix": ("*", "bob", "food"), "prefix": ("users",)},
        {"max_depth": 2},
        {"limit": 1, "offset": 1},
        {"prefix": ("a", "b", "c", "d")},
    ]
    for query in listings:
        yield store.list_namespaces(**query)


def test_it_answers_as_the_store_of_langgraph_does(store: adapter.HoldfastStore) -> None:
    """Get, search with filters and pages, and namespaces: the same answers, before and after changes."""
    reference = memory.InMemoryStore()
    for one in (store, reference):
        fill(one)
    assert list(answers(store)) == list(answers(reference))
    for one in (store, reference):
        one.put(ANNA, "likes", {"text": "Anna likes figs.", "stars": 2})
        one.put(BOB, "hates", {"text": "Bob does not eat meat.", "stars": 4})
        one.delete(BOB, "likes")
        one.delete(BOB, "never there")
    assert list(answers(store)) == list(answers(reference))


def test_it_finds_what_matches_a_question(store: adapter.HoldfastStore) -> None:
    """Search ranks by recall within the namespace, and knows only the newest value of an item."""
    fill(store)
    assert store.search(("users",), query="What does Anna not eat?")[0].key == "hates"
    assert [item.namespace for item in store.search(("users",), query="饺子")] == [BOB]
    assert store.search(ANNA, query="饺子") == []
    assert [item.key for item in store.search(BOB, query="soy sauce")] == ["likes"]
    assert store.search((), query="mango") == [], "index=False is not searched"
    assert [item.key for item in store.search(ANNA, query="anna", filter={"stars": 1})] == ["hates"]
    store.put(ANNA, "likes", {"text": "Anna likes figs.", "note": "not searched"}, index=["text"])
    assert store.search((), query="durian") == []
    assert store.search((), query="not searched") == []
    (figs,) = store.search((), query="figs")
    assert figs.score is not None
    assert figs.score > 0
    assert figs.created_at <= figs.updated_at
    for value in ("durian", "figs", "durian"):  # an earlier text may come back
        store.put(ANNA, "likes", {"text": value})
    assert len(store.search((), query="durian")) == 1


def test_many_earlier_values_do_not_hide_an_item(store: adapter.HoldfastStore) -> None:
    """An item whose text matches is found behind any number of better matches that are gone."""
    store.put(ANNA, "target", {"text": "one kiwi among many other words that lower its rank"})
    for number in range(60):
        store.put(ANNA, "counter", {"text": f"kiwi kiwi {number}"})
    store.put(ANNA, "counter", {"text": "no fruit"})
    assert [item.key for item in store.search((), query="kiwi")] == ["target"]


def test_what_is_deleted_is_gone_and_secrets_are_masked(store: adapter.HoldfastStore, engine: Engine) -> None:
    """Nothing of a deleted item is left in the memory; a secret is masked before it is stored."""
    store.put(ANNA, "note", {"text": "the parrot is called Aurelio"})
    store.put(ANNA, "note", {"text": "the parrot is called Bertil"})
    store.delete(ANNA, "note")
    assert engine.search("parrot", agent="store") == []
    assert engine.sessions() == []
    secret = "sk-ant-api03-" + "Ab3dEf6hIj" * 9 + "AA"
    store.put(ANNA, "key", {"text": f"the key is {secret}"})
    found = store.get(ANNA, "key")
    assert found is not None
    assert secret not in str(found.value)


def test_users_projects_and_wrong_arguments(store: adapter.HoldfastStore, engine: Engine) -> None:
    """Users and projects are apart; what LangGraph refuses is refused with its own errors."""
    fill(store)
    for other in (adapter.HoldfastStore(engine, tenant="anna"), adapter.HoldfastStore(engine, project="shop")):
        assert other.search((), query="durian") == []
        assert other.list_namespaces() == []
    with pytest.raises(stores.InvalidNamespaceError):
        store.put(("a.b",), "k", {})
    with pytest.raises(NotImplementedError, match="TTL"):
        store.put(ANNA, "k", {}, ttl=5)
    with pytest.raises(ValueError, match=r"\$regex: use \$eq"):
        store.search((), filter={"stars": {"$regex": "x"}})


def test_it_is_asynchronous_too(engine: Engine) -> None:
    """The asynchronous methods do the same, also with an AsyncEngine."""

    async def run() -> None:
        store = adapter.HoldfastStore(AsyncEngine(engine))
        await store.aput(ANNA, "likes", {"text": "Anna likes durian."})
        found = await store.aget(ANNA, "likes")
        assert found is not None
        assert [item.key for item in await store.asearch((), query="durian")] == ["likes"]
        assert await store.alist_namespaces() == [ANNA]
        await store.adelete(ANNA, "likes")
        assert await store.aget(ANNA, "likes") is None

    asyncio.run(run())


class State(TypedDict):
    """The state of the graph."""

    text: str


def test_a_graph_remembers_across_threads(store: adapter.HoldfastStore) -> None:
    """A node of a compiled graph puts and searches through the store that LangGraph hands it."""

    def remember(state: State, runtime: runtimes.Runtime) -> State:
        assert runtime.store is not None
        found = runtime.store.search(ANNA, query=state["text"])
        runtime.store.put(ANNA, str(len(state["text"])), {"text": state["text"]})
        return {"text": found[0].value["text"] if found else ""}

    graph = graphs.StateGraph(State)
    graph.add_node("remember", remember)
    graph.add_edge(graphs.START, "remember")
    compiled: Any = graph.compile(store=store)
    assert compiled.invoke({"text": "The cat is called Minka."})["text"] == ""
    assert compiled.invoke({"text": "What is the cat called?"})["text"] == "The cat is called Minka."


def test_an_agent_uses_it_in_a_tool(store: adapter.HoldfastStore, model_server: ScriptedProvider) -> None:
    """`create_agent(..., store=...)`: tools of an agent read and write it, and the result reaches the model."""

    @tools.tool
    def note(text: str, runtime: tools.ToolRuntime) -> str:
        """Note something, and return what was known."""
        assert runtime.store is not None
        found = runtime.store.search(ANNA, query=text)
        runtime.store.put(ANNA, text, {"text": text})
        return "; ".join(item.value["text"] for item in found) or "nothing"

    model = langchain_openai.ChatOpenAI(model="gpt-x", api_key="k", base_url=f"{model_server.url}/v1")  # type: ignore[arg-type]
    agent: Any = agents.create_agent(model, [note], store=store)
    for number, text in enumerate(("Minka is a cat", "Who is Minka")):
        call = ToolCall(id=f"c{number}", name="note", arguments={"text": text})
        model_server.set_script([ScriptedReply(calls=(call,)), "Done."])
        agent.invoke({"messages": [("user", text)]})
    assert model_server.bodies[-1]["messages"][-1]["content"] == "Minka is a cat"
    assert model_server.check() == []
