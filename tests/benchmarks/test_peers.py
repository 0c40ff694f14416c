"""The comparison with other memory systems: blocks, evidence, intervals, and real processes."""

import json
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import bench
from benchmarks.datasets import ANY_TURN, Conversation, Question, Session, Turn
from benchmarks.peers.environments import SYSTEMS, InstallError, System, choose_systems, prepare
from benchmarks.peers.evidence import Passage, compare, fill, find_share
from benchmarks.peers.measure import choose_sets, find_parts, make_documents, measure, read_passage
from benchmarks.peers.picture import draw
from holdfast.errors import InputError
from holdfast.tokens import count_text

pytestmark = pytest.mark.nightly

FILES = Path(__file__).resolve().parents[1] / "fixtures" / "benchmarks"
NOON = datetime(2026, 2, 10, 12, 0, tzinfo=UTC)


def make_passage(text: str, *, session: int = 0) -> Passage:
    """Return a passage of a user at noon."""
    return Passage(text=text, speaker="user", time=int(NOON.timestamp() * 1000), session=session)


def make_data(folder: Path) -> Path:
    """Put the small LoCoMo file where the command looks for data."""
    (folder / "locomo").mkdir()
    (folder / "locomo" / "locomo.json").write_bytes((FILES / "locomo.json").read_bytes())
    return folder


# --- the block -----------------------------------------------------------------


def test_a_block_has_passages_in_the_order_of_the_system_and_stays_within_the_budget() -> None:
    """A passage that does not fit is left out, and a shorter one after it is taken."""
    long = "the port is 8080 and so on and on. " * 100
    passages = [make_passage("First."), make_passage(long), make_passage("Third.")]
    block = fill(passages, budget=120)
    assert "First." in block
    assert "Third." in block
    assert "8080" not in block
    assert count_text(block) <= 120


def test_headers_are_charged() -> None:
    """As many short passages as fit with their headers, not more."""
    passages = [make_passage(f"Number {number}.", session=number) for number in range(200)]
    block = fill(passages, budget=500)
    shown = sum(f"Number {number}." in block for number in range(200))
    assert count_text(block) <= 500
    assert block.count("[2026-02-10 user]") == shown
    assert 0 < shown < 50


def test_a_block_of_nothing_is_empty() -> None:
    """A system that finds nothing puts nothing into the prompt."""
    assert fill([], budget=1000) == ""


# --- evidence ------------------------------------------------------------------


def ask_about(*texts: str, turn: int = 0) -> tuple[Question, Conversation]:
    """Return a question about one turn of a session, or about the session."""
    question = Question(text="?", evidence=frozenset({(0, turn)}))
    return question, Conversation((Session(None, tuple(Turn("user", text) for text in texts)),), (question,))


def make_sentences(count: int, *, first: int = 0) -> str:
    """Return sentences that differ from each other."""
    return " ".join(f"Step {number} takes {number * 7} seconds on the host." for number in range(first, first + count))


def test_evidence_is_found_in_text_whose_marks_and_spaces_differ() -> None:
    """Quote signs, line ends and bullets around the words do not matter."""
    question, conversation = ask_about("The port is **8080**,\nand the host is `example.org`, as we agreed.")
    shown = "> The port is 8080, and the host is\n> example.org, as we agreed."
    assert find_share(question, conversation, shown) == 1
    assert find_share(question, conversation, "The port is 8080, and the host is another one.") == 0


def test_of_a_long_turn_300_characters_are_enough() -> None:
    """Half of that is not."""
    question, conversation = ask_about(make_sentences(60))
    assert find_share(question, conversation, make_sentences(8, first=20)) == 1
    assert find_share(question, conversation, make_sentences(4, first=20)) == 0
    apart = f"{make_sentences(4)} … {make_sentences(4, first=40)}"
    assert find_share(question, conversation, apart) == 1


def test_evidence_without_spaces_is_found() -> None:
    """Chinese, whole and as an excerpt."""
    text = "".join(f"第{number}步在服务器上需要{number * 7}秒钟才能完成。" for number in range(60))
    question, conversation = ask_about(text)
    assert find_share(question, conversation, text[400:760]) == 1
    assert find_share(question, conversation, text[400:500]) == 0


def test_a_session_is_found_by_a_turn_that_says_something() -> None:
    """A word of thanks is in many sessions."""
    question, conversation = ask_about("Thanks!", "The importer skips empty rows since Monday.", turn=ANY_TURN)
    assert find_share(question, conversation, "Thanks!") == 0
    assert find_share(question, conversation, "The importer skips empty rows since Monday.") == 1


def test_the_interval_is_that_of_the_paired_difference() -> None:
    """Two systems that always differ by the same have an interval without width."""
    same = compare([0.5, 1.0, 0.75], [0.25, 0.75, 0.5])
    assert same == {"mean": 0.25, "low": 0.25, "high": 0.25}
    mixed = compare([1.0, 0.0] * 50, [0.0, 1.0] * 50)
    assert mixed["mean"] == 0
    assert -0.3 < mixed["low"] < 0 < mixed["high"] < 0.3


# --- messages ------------------------------------------------------------------


def test_a_passage_of_a_named_speaker_has_the_name_in_its_header_alone() -> None:
    """The name that is searched with the text is not charged twice."""
    turns = (Turn("user", "I moved to Lisbon.", "Ana"), Turn("user", " ", "Ben"))
    conversation = Conversation((Session(NOON, turns),), ())
    (document,) = make_documents(conversation, start=0, stop=1)
    assert document["text"] == "Ana: I moved to Lisbon."
    passage = read_passage(conversation, {"id": document["id"], "text": document["text"]})
    assert (passage.speaker, passage.text) == ("Ana", "I moved to Lisbon.")
    cut = read_passage(conversation, {"session": 0, "text": "> Ana: I moved to Lisbon."})
    assert (cut.speaker, cut.time) == ("chat", passage.time)


def test_parts_and_questions_are_spread(tmp_path: Path) -> None:
    """A limit takes some of all, and sets that are not there are left out."""
    data = make_data(tmp_path)
    whole = find_parts(data, sets=["locomo", "beam"])
    (limited,) = find_parts(data, sets=["locomo"], parts=1, questions=1)
    assert [part.number for part in whole] == [0, 1]
    assert limited.conversation.questions == whole[0].conversation.questions[:1]
    with pytest.raises(InputError, match="none of the data sets beam is here"):
        find_parts(data, sets=["beam"])


def test_wrong_names_are_refused_with_the_right_ones() -> None:
    """Of systems and of data sets."""
    assert list(choose_systems("bm25s, holdfast")) == ["holdfast", "bm25s"]
    with pytest.raises(InputError, match=r"'bm26' is not one of holdfast, .*bm25s"):
        choose_systems("bm26")
    with pytest.raises(InputError, match="'squad' is not one of locomo"):
        choose_sets("squad")


# --- processes -----------------------------------------------------------------


def test_a_system_that_cannot_be_installed_or_stops_is_listed_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are measured; results are saved and read again."""
    monkeypatch.setenv("HOLDFAST_PEERS", str(tmp_path / "environments"))
    (tmp_path / "data").mkdir()
    parts = find_parts(make_data(tmp_path / "data"), sets=["locomo"])
    missing = tmp_path / "no-such-package.whl"
    systems = {
        "holdfast": SYSTEMS["holdfast"],
        "absent": System(title="Absent", adapter="bm25s", requirements=(str(missing),)),
        "stopped": System(title="Stopped", adapter="nothing"),
    }
    found = measure(parts, systems=systems)
    assert set(found["not_measured"]) == {"absent", "stopped"}
    assert "nothing.py" in found["not_measured"]["stopped"]
    assert not list((tmp_path / "environments").iterdir())
    ours = found["sets"]["locomo"]["systems"]["holdfast"]
    assert ours["found"]["4000"] == 1
    assert 0 < ours["tokens"]["1000"] <= 1000
    assert ours["ingest_cpu_s_per_1000"] > 0


ADAPTER = """
class System:
    def __init__(self, folder, embed):
        self.embed = embed
        self.rows = []

    def add(self, documents):
        print("a system may print")
        vectors = self.embed([one["text"] for one in documents])
        self.rows += list(zip(documents, vectors))

    def search(self, question, limit):
        vector = self.embed([question])[0]
        scores = [sum(a * b for a, b in zip(vector, other)) for _, other in self.rows]
        order = sorted(range(len(scores)), key=lambda number: -scores[number])
        return [{"id": self.rows[number][0]["id"], "text": self.rows[number][0]["text"]} for number in order[:limit]]
"""


def test_a_system_gets_vectors_and_saved_results_are_not_measured_again(tmp_path: Path) -> None:
    """The nearest messages by the vectors of Holdfast, from a process of its own."""
    (tmp_path / "data").mkdir()
    parts = find_parts(make_data(tmp_path / "data"), sets=["locomo"], parts=1)
    adapter = tmp_path / "nearest.py"
    adapter.write_text(ADAPTER, "utf-8")
    systems = {"nearest": System(title="Nearest", adapter="nearest", folder=tmp_path)}
    lines: list[str] = []
    found = measure(parts, systems=systems, results=tmp_path / "results", progress=lines.append)
    figures = found["sets"]["locomo"]["systems"]["nearest"]
    assert found["not_measured"] == {}
    assert figures["found"]["4000"] == 1
    assert any(line.startswith("locomo 0 nearest [") for line in lines)
    (saved,) = (tmp_path / "results").iterdir()
    changed = json.loads(saved.read_text("utf-8"))
    changed["questions"][0]["shares"] = [0, 0, 0]
    saved.write_text(json.dumps(changed), "utf-8")
    again = measure(parts, systems=systems, results=tmp_path / "results")
    assert again["sets"]["locomo"]["systems"]["nearest"]["found"]["4000"] == 0.5
    adapter.write_text(ADAPTER + "# another one", "utf-8")
    once_more = measure(parts, systems=systems, results=tmp_path / "results")
    assert once_more["sets"]["locomo"]["systems"]["nearest"]["found"]["4000"] == 1


def test_parts_are_measured_side_by_side(tmp_path: Path) -> None:
    """By processes of their own. A server that a system started is stopped with it: it would keep the pipes open."""
    (tmp_path / "data").mkdir()
    parts = find_parts(make_data(tmp_path / "data"), sets=["locomo"], parts=1)
    server = 'import subprocess, sys\nsubprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])\n'
    (tmp_path / "nearest.py").write_text(server + ADAPTER, "utf-8")
    systems = {"nearest": System(title="Nearest", adapter="nearest", folder=tmp_path)}
    with pytest.raises(InputError, match="--results"):
        measure(parts, systems=systems, processes=2)
    found = measure(parts, systems=systems, results=tmp_path / "results", processes=2)
    assert found["sets"]["locomo"]["systems"]["nearest"]["found"]["4000"] == 1


def test_the_command_prints_and_draws_the_comparison(tmp_path: Path) -> None:
    """Full blocks next to those of the default settings."""
    (tmp_path / "data").mkdir()
    data = make_data(tmp_path / "data")
    picture = tmp_path / "peers.svg"
    options = ["--data", f"{data}", "--only", "holdfast,holdfast-full", "--parts", "1", "--questions", "1"]
    options += ["--results", f"{tmp_path / 'results'}", "--set", "locomo"]
    made = CliRunner().invoke(bench, ["peers", *options, "--json", "--plot", f"{picture}"], catch_exceptions=False)
    found = json.loads(made.stdout)
    figures = found["sets"]["locomo"]
    assert found["parts"]["locomo"]["questions"] == figures["questions"] == 1
    assert set(figures["systems"]["holdfast-full"]["holdfast_minus"]["1000"]) == {"mean", "low", "high"}
    drawn = ET.fromstring(picture.read_text("utf-8"))  # noqa: S314 - ours
    texts = [element.text for element in drawn.iter()]
    assert "Holdfast" in texts
    assert "LoCoMo, 1 question" in texts
    shown = CliRunner().invoke(bench, ["peers", *options], catch_exceptions=False)
    assert shown.stdout.startswith("locomo: 1 parts, 1 questions\n")
    assert "holdfast-full" in shown.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name, system in SYSTEMS.items() if system.requirements])
def test_every_system_is_installed_and_measured(name: str, tmp_path: Path) -> None:
    """In the folder of the environments, where later runs find it."""
    try:
        environment = prepare(SYSTEMS[name])
    except InstallError as error:
        pytest.skip(f"{name} cannot be installed here: {error}")
    package, _, version = SYSTEMS[name].requirements[0].partition("==")
    assert environment.versions[package] == version
    found = measure(find_parts(make_data(tmp_path), sets=["locomo"]), systems={name: SYSTEMS[name]})
    assert found["not_measured"] == {}
    assert found["sets"]["locomo"]["systems"][name]["found"]["4000"] == 1


def test_a_picture_leaves_out_what_was_not_measured() -> None:
    """A system without figures on a data set has a row without dots."""
    figures = {"found": {"1000": 0.5, "2000": 0.6, "4000": 0.7}}
    sets = {
        "locomo": {"questions": 10, "systems": {"holdfast": figures, "bm25s": figures}},
        "beam": {"questions": 10, "systems": {"holdfast": figures}},
    }
    drawn = draw({"budgets": (1000, 2000, 4000), "sets": sets})
    assert drawn.count("<circle") == 9
    assert drawn.count(">bm25s<") == 2
