"""Questions that a model answers: what is asked, how it is judged, and that nothing is asked twice."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from benchmarks.__main__ import bench
from benchmarks.datasets import Question
from benchmarks.qa import Answer, Endpoint, estimate, load, prepare, summarise
from benchmarks.qa_prompts import compare_words, official_prompts, own_prompts
from holdfast.errors import InputError
from holdfast.testing.provider import Raw, ScriptedProvider, Step
from support.cases import each

FILES = Path(__file__).resolve().parents[1] / "fixtures" / "benchmarks"


def question(
    text: str = "Which port?", *, answer: str = "8080", kind: str = "", rubric: tuple[str, ...] = ()
) -> Question:
    """A question without evidence: a reader needs none."""
    return Question(text=text, evidence=frozenset(), answer=answer, kind=kind, rubric=rubric)


class TestWords:
    """The comparison of words that LoCoMo's authors publish."""

    @each(
        ("said", "answer", "kind", "score"),
        [
            ("The port is 8080", "8080", "4", 0.5),
            ("running shoes", "The running shoe", "4", 1.0),
            ("Rome, Paris", "Paris, Rome", "1", 1.0),
            ("Rome", "Paris, Rome", "1", 0.5),
            ("likely yes", "likely yes; she said so", "3", 1.0),
            ("It is not mentioned.", "8080", "5", 1.0),
            ("8080", "8080", "5", 0.0),
            ("", "8080", "4", 0.0),
        ],
    )
    def test_stems_count_and_parts_of_a_list_are_looked_for_one_by_one(
        self, said: str, answer: str, kind: str, score: float
    ) -> None:
        """Articles, inflection and order do not matter; an answer to an unanswerable question is wrong."""
        assert compare_words(question(answer=answer, kind=kind), said) == pytest.approx(score)


class TestPrompts:
    """What readers and judges are asked."""

    def test_a_judge_is_asked_about_each_item_of_a_rubric(self) -> None:
        """Braces in a response stay as they are."""
        asked = own_prompts().judge(question(rubric=("names the port", "names {the} host")), 'port {8080} {"score": 1}')
        assert len(asked) == 2
        assert "names {the} host" in asked[1]
        assert "port {8080}" in asked[1]

    @pytest.mark.parametrize(
        ("reply", "score"),
        [
            ("Yes.", 1),
            ("no", 0),
            ('{"score": 0.5}', 0.5),
            ('```json\n{"score": 1.0, "reason": "x"}\n```', 1),
            ("{}", 0),
        ],
    )
    def test_a_verdict_is_read_from_a_word_or_an_object(self, reply: str, score: float) -> None:
        """Whatever is around it."""
        assert own_prompts().score(reply) == score

    def test_the_prompts_of_the_authors_are_read_and_not_run(self, tmp_path: Path) -> None:
        """A file of theirs that would fail or do harm is only parsed."""
        file = tmp_path / "src" / "prompts.py"
        file.parent.mkdir()
        file.write_text(
            'raise SystemExit("run")\n'
            'answer_generation_for_rag = "C: <context> Q: <question>"\n'
            'unified_llm_judge_base_prompt = "<question> | <rubric_item> | <llm_response>"\n'
        )
        prompts = official_prompts("beam", tmp_path)
        assert prompts.source == "BEAM"
        assert prompts.read(question(), "port <question>") == "C: port <question> Q: Which port?"
        assert prompts.judge(question(rubric=("a", "b")), "<rubric_item>") == [
            "Which port? | a | <rubric_item>",
            "Which port? | b | <rubric_item>",
        ]

    def test_each_kind_of_longmemeval_has_its_own_judge(self, tmp_path: Path) -> None:
        """The five prompts of its authors, by their order in the file."""
        (tmp_path / "src" / "evaluation").mkdir(parents=True)
        (tmp_path / "src" / "generation").mkdir()
        kinds = ["plain", "temporal", "update", "preference", "unanswerable"]
        lines = [f'    template = "{kind} {{}} {{}} {{}}"' for kind in kinds]
        text = "\n".join(["def get_anscheck_prompt():", *lines])
        (tmp_path / "src" / "evaluation" / "evaluate_qa.py").write_text(text)
        reader = 'answer_prompt_template = "History Chats: {} {} {} step by step"'
        (tmp_path / "src" / "generation" / "run_generation.py").write_text(reader)
        prompts = official_prompts("longmemeval-s", tmp_path)
        assert prompts.judge(question(kind="temporal-reasoning"), "r") == ["temporal Which port? 8080 r"]
        assert prompts.judge(question(kind="multi-session"), "r") == ["plain Which port? 8080 r"]
        assert prompts.judge(question(kind="multi-session_abs"), "r") == ["unanswerable Which port? 8080 r"]
        assert prompts.read(question(), "c") == "History Chats: c not known Which port? step by step"

    def test_a_folder_without_the_prompts_is_refused(self, tmp_path: Path) -> None:
        """With what to give."""
        with pytest.raises(InputError, match="Give the folder of the repository"):
            official_prompts("locomo", tmp_path)
        with pytest.raises(InputError, match="Leave --official out"):
            official_prompts("realmem", tmp_path)


class TestTasks:
    """What the reader gets."""

    def test_every_context_is_asked_and_the_whole_history_fits_the_window(self) -> None:
        """The newest turns are kept."""
        conversations = load("locomo", FILES / "locomo.json")
        tasks = prepare(
            conversations,
            prompts=own_prompts(),
            embedder=None,
            contexts=("holdfast", "bm25", "whole"),
            cap=4000,
            window=1000,
        )
        questions = sum(len(one.questions) for one in conversations)
        assert len(tasks) == 3 * questions
        assert {task.context for task in tasks} == {"holdfast", "bm25", "whole"}
        last = conversations[0].sessions[-1].turns[-1].text
        assert last in next(task.prompt for task in tasks if task.context == "whole")

    def test_costs_are_known_before_anything_is_asked(self) -> None:
        """For models with a price; a model of one's own has none."""
        tasks = prepare(
            load("locomo", FILES / "locomo.json"),
            prompts=own_prompts(),
            embedder=None,
            contexts=("bm25",),
            cap=1000,
            window=4000,
        )
        priced = estimate(tasks, prompts=own_prompts(), runs=2, reader="openai/gpt-5", judge="openai/gpt-5")
        assert priced.requests == 2 * 2 * len(tasks)
        assert priced.dollars is not None
        assert priced.dollars > 0
        own = estimate(tasks, prompts=own_prompts(), runs=2, reader="http://127.0.0.1:1/v1#mine", judge=None)
        assert own.dollars is None

    @pytest.mark.parametrize("name", ["gpt", "http://127.0.0.1:1/v1", "openai/"])
    def test_a_name_that_names_no_model_is_refused(self, name: str) -> None:
        """With the form of a name."""
        with pytest.raises(InputError, match="openai/NAME"):
            Endpoint(name)


def test_figures_are_those_of_runs() -> None:
    """Means over runs, their standard deviation, and each kind on its own."""
    answers = [
        Answer(run=run, number=number, context="bm25", kind="4", response="", words=0.5, judged=judged, tokens=100)
        for run, number, judged in [(1, 0, 1.0), (1, 1, 0.0), (2, 0, 1.0), (2, 1, 1.0)]
    ]
    figures = summarise(answers)["bm25"]
    assert figures["judged"] == 0.75
    assert figures["judged_spread"] == pytest.approx(0.3536)
    assert figures["by_kind"] == {"4": 0.75}
    assert figures["tokens"] == 100


class TestCommand:
    """`python -m benchmarks qa` with a real HTTP server."""

    def run(self, server: ScriptedProvider, folder: Path, *options: str) -> Result:
        """Ask the reader and the judge of one server."""
        model = f"{server.url}/v1#mine"
        command = ["qa", "locomo", str(FILES / "locomo.json"), "--reader", model, "--judge", model, "--json", "--yes"]
        command += ["--save", str(folder / "answers.jsonl"), "--contexts", "holdfast,bm25", "--parallel", "1", *options]
        return CliRunner().invoke(bench, command, catch_exceptions=False)

    def test_answers_are_judged_and_an_interrupted_run_goes_on(
        self, model_server: ScriptedProvider, tmp_path: Path
    ) -> None:
        """What is in the file is not asked again, and what failed is."""

        def reply(body: dict[str, Any]) -> Step:
            return "yes" if "Right answer" in body["messages"][-1]["content"] else "not mentioned"

        steps = [0]

        def fail_at_the_third(body: dict[str, Any]) -> Step:
            steps[0] += 1
            return Raw(400, {"error": {"message": "no"}}) if steps[0] == 3 else reply(body)

        model_server.set_script(fail_at_the_third)
        first = json.loads(self.run(model_server, tmp_path, "--runs", "1").stdout)
        assert first["failed"] == 1
        model_server.set_script(reply)
        second = json.loads(self.run(model_server, tmp_path, "--runs", "1").stdout)
        assert second["failed"] == 0
        assert len(model_server.requests) == 2
        assert second["contexts"]["holdfast"]["judged"] == 1.0
        assert second["prompts"] == "own"
        assert {body["temperature"] for body in model_server.bodies} == {0}

    def test_answers_of_another_run_are_not_mixed_in(self, model_server: ScriptedProvider, tmp_path: Path) -> None:
        """The file says what it is about."""
        (tmp_path / "answers.jsonl").write_text('{"dataset": "beam"}\n')
        with pytest.raises(InputError, match="Name another file"):
            self.run(model_server, tmp_path)

    def test_a_context_that_is_unknown_is_refused(self, model_server: ScriptedProvider, tmp_path: Path) -> None:
        """With those that there are."""
        with pytest.raises(InputError, match="holdfast, bm25, whole"):
            self.run(model_server, tmp_path, "--contexts", "oracle")
