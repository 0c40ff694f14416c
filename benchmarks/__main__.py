"""`python -m benchmarks`: the measurements behind the figures in the docs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from holdfast import settings as configuration
from holdfast import transcripts
from holdfast.cli.console import Progress, open_console
from holdfast.cli.options import as_json
from holdfast.cli.output import echo, emit_json
from holdfast.errors import HoldfastError, InputError
from holdfast.messages import Message
from holdfast.tokens import counter

__all__ = ["bench"]


@click.group(name="python -m benchmarks")
def bench() -> None:
    """Measure Holdfast on this machine, with your data."""


def machine() -> dict[str, Any]:
    """Where a figure was made."""
    return {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}


def print_table(rows: Mapping[str, Mapping[str, Any]], *, first: str) -> None:
    """Print one row for each system, one column for each figure."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(first)
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    for name in columns:
        table.add_column(name, justify="right")
    for label, row in rows.items():
        table.add_row(label, *(_figure(row.get(name)) for name in columns))
    open_console().print(table)


def show(data: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], *, first: str, as_json: bool) -> None:
    """Print the figures of a run with those of the machine as JSON, or as a table."""
    if as_json:
        emit_json({**data, **machine()})
    else:
        print_table(rows, first=first)


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


@bench.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--tokenizer", "names", multiple=True, help="Compare with tiktoken:ENCODING or tokenizers:FILE as well.")
@click.option("--seed", type=int, default=1, show_default=True)
@as_json
def tokens(*, paths: tuple[Path, ...], names: tuple[str, ...], seed: int, as_json: bool) -> None:
    """How good the token estimate is, for each kind of text, against the tokenizers that are installed.

    With PATHS: on transcripts and request logs that carry the provider's usage.
    """
    from benchmarks.tokens import compare, installed, measure  # noqa: PLC0415 - each bench loads what it needs

    if not paths:
        named = {name: counter(name) for name in names}  # first: the others take seconds to load
        tokenizers = dict(installed()) | named
        if not tokenizers:
            raise InputError("no tokenizer is installed: pip install bpe-openai, or name one with --tokenizer")
        kinds = compare(tokenizers, seed=seed)
        emit_json({**machine(), "kinds": kinds}) if as_json else print_table(kinds, first="estimate / count")
        return
    files = [found.path for path in paths for found in transcripts.sessions(path)]
    found = {name: asdict(accuracy) for name, accuracy in measure(files).items()}
    show({"files": len(files), "counters": found}, found, first="counter", as_json=as_json)


@bench.command()
@click.argument("path", required=False, type=click.Path(path_type=Path, exists=True))
@click.option(
    "--megabytes", type=click.IntRange(min=1), default=100, show_default=True, help="Size of the file to stream."
)
@as_json
def read(*, path: Path | None, megabytes: int, as_json: bool) -> None:
    """How fast a session file of 1,000 lines loads, and how much memory a large one needs (or PATH)."""
    from benchmarks.reading import measure  # noqa: PLC0415 - as above

    found = asdict(measure(path, megabytes=megabytes))
    show(found, {"session files": found}, first="", as_json=as_json)


@bench.command()
@click.option("--samples", type=click.IntRange(min=1), default=40, show_default=True, help="Secrets of each kind.")
@click.option("--seed", type=int, default=1, show_default=True)
@as_json
def redaction(*, samples: int, seed: int, as_json: bool) -> None:
    """How many secrets are masked, and how much else, against the original plugin's patterns."""
    from benchmarks.redaction import measure, measure_cost, measure_kinds  # noqa: PLC0415 - as above

    found = measure(samples=samples, seed=seed)
    kinds = measure_kinds(seed=seed)
    cost = measure_cost()
    if as_json:
        halves = {half: asdict(scores) for half, scores in kinds.items()}
        emit_json({**machine(), **asdict(found), "kinds": halves, "cost": asdict(cost)})
        return
    rows = {
        line: {
            "texts": ours.samples,
            "precision": ours.precision,
            "recall": ours.recall,
            "seed precision": seeds.precision,
            "seed recall": seeds.recall,
        }
        for line, (ours, seeds) in found.rows().items()
    }
    print_table(rows, first="secrets")
    echo("")
    halves = {
        half: {
            "kinds": scores.secrets,
            "masked": scores.masked,
            "look-alikes": scores.look_alikes,
            "kept": scores.kept,
        }
        for half, scores in kinds.items()
    }
    print_table(halves, first="half")
    echo("")
    costs = {"normal": {"ns/char": cost.normal, "ratio": 1.0}}
    for piece, spent in list(cost.dense.items())[:10]:
        costs[repr(piece)] = {"ns/char": spent, "ratio": spent / cost.normal}
    print_table(costs, first="text")


@bench.command()
@click.argument("dataset")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--cap", type=click.IntRange(min=1), default=4000, show_default=True, help="Tokens of the block.")
@click.option("--limit", type=click.IntRange(min=1), help="Only so many conversations.")
@click.option("--no-vectors", is_flag=True, help="By words alone.")
@as_json
def recall(*, dataset: str, path: Path, cap: int, limit: int | None, no_vectors: bool, as_json: bool) -> None:
    """How much of what a question needs is in the block, on the public files of DATASET at PATH."""
    from benchmarks.datasets import load  # noqa: PLC0415 - as above
    from benchmarks.other_words import load_sheet  # noqa: PLC0415 - as above
    from benchmarks.recall import measure  # noqa: PLC0415 - as above

    sheet = load_sheet()
    conversations = load(dataset, path)[:limit]
    embedder, notes = _embedder(no_vectors=no_vectors)
    questions = sum(len(conversation.questions) for conversation in conversations)
    with Progress(questions) as progress:
        found = measure(
            conversations,
            embedder=embedder,
            cap=cap,
            unrelated=sheet.unrelated,
            about_oneself=sheet.about_oneself,
            progress=lambda n: progress.advance(n, "questions"),
        )
    if as_json:
        emit_json({"dataset": dataset, **found, "embedder": notes, **machine()})
        return
    echo(f"{dataset}: {found['questions']} questions, {cap} tokens, {'; '.join(notes)}")
    print_table(found["systems"], first="system")
    print_table(found["by_cap"], first="R at a cap")
    echo(f"Blocks for unrelated questions take {found['unrelated_tokens']} tokens on average;")
    echo(f"for those that a person asks about oneself, {found['about_oneself_tokens']}.")


@bench.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path("../shared/data"),
    show_default=True,
    help="The folder with the public data sets.",
)
@click.option("--set", "sets", help="Data sets, with commas between them.  [default: all that are there]")
@click.option("--only", help="Systems, with commas between them.  [default: all]")
@click.option("--parts", type=click.IntRange(min=1), help="At most so many conversations of each set.")
@click.option("--questions", type=click.IntRange(min=1), help="At most so many questions of each conversation.")
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), help="Save results here, and continue.")
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Parts at the same time.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw the shares, as SVG.")
@as_json
def peers(
    *,
    data: Path,
    sets: str | None,
    only: str | None,
    parts: int | None,
    questions: int | None,
    results: Path | None,
    processes: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """How much of what a question needs other memory systems put into a prompt of the same size, and at what cost.

    Each system is installed in an environment of its own, in ~/.cache/holdfast-peers or $HOLDFAST_PEERS.
    """
    from benchmarks.peers import measure as comparison  # noqa: PLC0415 - as above
    from benchmarks.peers import picture  # noqa: PLC0415 - as above
    from benchmarks.peers.environments import choose_systems  # noqa: PLC0415 - as above

    names = comparison.choose_sets(sets)
    chosen = comparison.find_parts(data, sets=names, parts=parts, questions=questions)
    found = comparison.measure(
        chosen,
        systems=choose_systems(only),
        results=results,
        processes=processes,
        progress=lambda line: click.echo(line, err=True),
    )
    if plot is not None:
        plot.write_text(picture.draw(found), encoding="utf-8")
    if as_json:
        emit_json({**found, **machine()})
        return
    for name, figures in found["sets"].items():
        echo(f"{name}: {found['parts'][name]['parts']} parts, {figures['questions']} questions")
        print_table(comparison.make_rows(figures, versions=found["versions"]), first="system")
        echo("")
    for name, reason in found["not_measured"].items():
        echo(f"{name} was not measured: {reason}")


@bench.command()
@click.argument("dataset")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--reader", required=True, help="The model that answers: openai/NAME, or http://host:port/v1#NAME.")
@click.option("--judge", help="The model that judges. Without one, only words are compared.")
@click.option(
    "--official",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A checkout of the data set's repository: use the prompts of its authors.",
)
@click.option("--contexts", default="holdfast,bm25,whole", show_default=True, help="What the reader gets.")
@click.option("--cap", type=click.IntRange(min=1), default=4000, show_default=True, help="Tokens of a block.")
@click.option(
    "--window", type=click.IntRange(min=1000), default=128_000, show_default=True, help="Tokens of the reader."
)
@click.option("--questions", type=click.IntRange(min=1), help="Only about so many, spread over the data.")
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="How often each is asked.")
@click.option("--parallel", type=click.IntRange(min=1), default=4, show_default=True, help="Requests at a time.")
@click.option("--default-sampling", is_flag=True, help="Send no temperature, for models that refuse one.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("qa.jsonl"),
    show_default=True,
    help="Answers, one a line; a run that was interrupted goes on there.",
)
@click.option("--yes", is_flag=True, help="Begin without asking, whatever it costs.")
@as_json
def qa(
    *,
    dataset: str,
    path: Path,
    reader: str,
    judge: str | None,
    official: Path | None,
    contexts: str,
    cap: int,
    window: int,
    questions: int | None,
    runs: int,
    parallel: int,
    default_sampling: bool,
    save: Path,
    yes: bool,
    as_json: bool,
) -> None:
    """Questions of DATASET at PATH, answered by a model from what was recalled, and judged."""
    from benchmarks import qa as answering  # noqa: PLC0415 - as above
    from benchmarks.qa_prompts import official_prompts, own_prompts  # noqa: PLC0415 - as above

    names = [name.strip() for name in contexts.split(",") if name.strip()]
    unknown = [name for name in names if name not in answering.CONTEXTS]
    if unknown or not names:
        raise InputError(f"--contexts {contexts!r}: name some of {', '.join(answering.CONTEXTS)}")
    temperature = None if default_sampling else 0.0
    reading = answering.Endpoint(reader, temperature=temperature)
    judging = None if judge is None else answering.Endpoint(judge, temperature=temperature)
    prompts = own_prompts() if official is None else official_prompts(dataset, official)
    conversations = answering.load(dataset, path, most=questions)
    embedder, notes = _embedder(no_vectors=False)
    total = sum(len(conversation.questions) for conversation in conversations)
    with Progress(total) as progress:
        tasks = answering.prepare(
            conversations,
            prompts=prompts,
            embedder=embedder,
            contexts=names,
            cap=cap,
            window=window,
            progress=lambda n: progress.advance(n, "questions prepared"),
        )
    expected = answering.estimate(tasks, prompts=prompts, runs=runs, reader=reader, judge=judge)
    price = "price not known" if expected.dollars is None else f"about {expected.dollars:.2f} dollars"
    size = f"{expected.requests:,} requests, {expected.input:,} tokens to read, about {expected.output:,} to write"
    echo(f"{size}: {price}", err=True)
    if not yes and expected.dollars != 0:
        click.confirm("Begin?", abort=True, err=True)
    about = {"dataset": dataset, "questions": total, "reader": reader, "judge": judge, "prompts": prompts.source}
    about |= {"cap": cap, "window": window, "temperature": temperature}
    with Progress(len(tasks) * runs) as progress:
        answers, failures = answering.ask_all(
            tasks,
            prompts=prompts,
            reader=reading,
            judge=judging,
            runs=runs,
            file=save,
            about=about,
            parallel=parallel,
            progress=lambda n: progress.advance(n, "answers"),
        )
    figures = answering.summarise(answers)
    for failure in failures[:5]:
        echo(f"failed: {failure}", err=True)
    if failures:
        echo(f"{len(failures)} failed: run the same command again to ask them", err=True)
    if as_json:
        emit_json({**about, "contexts": figures, "failed": len(failures), "embedder": notes, **machine()})
        return
    echo(f"{dataset}: {total} questions, {runs} runs, {reader}, prompts: {prompts.source}")
    print_table(
        {name: {key: row[key] for key in row if key != "by_kind"} for name, row in figures.items()}, first="context"
    )
    print_table({name: row["by_kind"] for name, row in figures.items()}, first="by kind")


@bench.command()
@click.option("--messages", type=click.IntRange(min=60), default=1_000, show_default=True, help="Messages around them.")
@click.option("--seed", type=int, default=1, show_default=True)
@as_json
def lines(*, messages: int, seed: int, as_json: bool) -> None:
    """How many of 60 facts, each one line of a long log, table, code or diff, are in the block of a plain question."""
    from benchmarks.lines import measure  # noqa: PLC0415 - as above

    embedder, notes = _embedder(no_vectors=False)
    found = measure(messages=messages, embedder=embedder, seed=seed)
    show({**found, "embedder": notes}, found["systems"], first="block", as_json=as_json)


@bench.command("other-words")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--sheet", type=click.IntRange(min=1, max=2), default=1, show_default=True, help="The questions.")
@click.option(
    "--half",
    type=click.Choice(["choose", "check", "all"]),
    default="all",
    show_default=True,
    help="The questions for choosing parameters, or those for checking the choice.",
)
@click.option(
    "--eagerness",
    type=click.Choice(["shy", "normal", "generous"]),
    default="normal",
    show_default=True,
    help="The setting recall.eagerness.",
)
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True)
@as_json
def other_words(*, path: Path | None, sheet: int, half: Any, eagerness: str, processes: int, as_json: bool) -> None:
    """How many questions are answered in the window, in the words of the fact and in other words.

    PATH is the folder with the real sessions that the sheet names. Without it only generated conversations are used.
    """
    from benchmarks.other_words import count_questions, measure  # noqa: PLC0415 - as above

    settings = configuration.load(recall={"eagerness": eagerness}).settings
    with Progress(count_questions(half, folder=path, sheet=sheet)) as progress:
        found = measure(
            folder=path, sheet=sheet, half=half, settings=settings, processes=processes, progress=progress.advance
        )
    show(found, found["systems"], first="archive", as_json=as_json)


@bench.command()
@as_json
def broad(*, as_json: bool) -> None:
    """How many of 25 facts are in the blocks of questions that ask for all there is on a subject."""
    from benchmarks.broad import measure  # noqa: PLC0415 - as above

    found = measure()
    show(found, found["systems"], first="archive", as_json=as_json)


@bench.command()
@click.option("--sessions", type=click.IntRange(min=0), default=0, show_default=True, help="Older sessions as well.")
@as_json
def overview(*, sessions: int, as_json: bool) -> None:
    """What a new session knows by itself: its overview, and answers to 30 questions about past sessions."""
    from benchmarks.overview import load_sheet, measure  # noqa: PLC0415 - as above

    with Progress(4 * len(load_sheet()["questions"])) as progress:
        found = measure(more_sessions=sessions, progress=lambda count: progress.advance(count, "questions"))
    if as_json:
        emit_json({**found, **machine()})
        return
    print_table({name: {**row, "missed": len(row["missed"])} for name, row in found["questions"].items()}, first="")
    echo("")
    print_table(found["starts"], first="wire format")


@bench.command()
@click.option("--sheet", type=click.IntRange(min=1, max=2), default=1, show_default=True, help="The statements.")
@as_json
def corrections(*, sheet: int, as_json: bool) -> None:
    """How often the window shows the newest of two statements about one subject, and how often the old one alone."""
    from benchmarks.corrections import count_questions, measure  # noqa: PLC0415 - as above

    with Progress(count_questions(sheet=sheet)) as progress:
        found = measure(sheet=sheet, progress=progress.advance)
    show(found, found["systems"], first="conversation", as_json=as_json)


@bench.command()
@as_json
def digest(*, as_json: bool) -> None:
    """How often a summary made without a model states something that was corrected later."""
    from benchmarks.digest import count_digests, measure  # noqa: PLC0415 - as above

    with Progress(count_digests()) as progress:
        found = measure(progress=progress.advance)
    show(found, found["digests"], first="pairs", as_json=as_json)


@bench.command()
@as_json
def conflicts(*, as_json: bool) -> None:
    """How many blocks show two values of one property without a mark, and how many show the newest value."""
    from benchmarks.conflicts import measure  # noqa: PLC0415 - as above

    found = measure()
    show(found, found["systems"], first="facts", as_json=as_json)
    if not as_json:
        alike = {name: found["similar"][name] for name in ("pairs", "marked", "replaced")}
        echo("")
        print_table({"do not contradict": alike}, first="pairs")
        echo("")
        print_table(found["unseen"], first="unseen pairs")


@bench.command()
@as_json
def decisions(*, as_json: bool) -> None:
    """How many decisions that were taken back stand alone, and how many that hold are marked or lost."""
    from benchmarks.decisions import count_pairs, measure  # noqa: PLC0415 - as above

    with Progress(count_pairs()) as progress:
        found = measure(progress=progress.advance)
    show(found, found["systems"], first="decisions", as_json=as_json)
    if not as_json:
        echo("")
        print_table(found["sentences"], first="sentences")


@bench.command()
@click.option("--messages", type=click.IntRange(min=20), default=300, show_default=True, help="Messages around them.")
@click.option("--seed", type=int, default=1, show_default=True)
@as_json
def followups(*, messages: int, seed: int, as_json: bool) -> None:
    """How many of 20 short questions are answered, alone and after a long message about something else."""
    from benchmarks.followups import measure  # noqa: PLC0415 - as above

    embedder, notes = _embedder(no_vectors=False)
    found = measure(messages=messages, embedder=embedder, seed=seed)
    show({**found, "embedder": notes}, found["systems"], first="block", as_json=as_json)


@bench.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--dataset", default="locomo", show_default=True)
@click.option(
    "--other", "others", type=(str, click.Path(path_type=Path)), multiple=True, help="Also ask questions of this set."
)
@click.option("--turns", type=click.IntRange(min=1), help="Ask 100 questions of archives of so many turns.")
@click.option("--no-vectors", is_flag=True, help="By words alone.")
@as_json
def offtopic(
    *,
    path: Path,
    dataset: str,
    others: tuple[tuple[str, Path], ...],
    turns: int | None,
    no_vectors: bool,
    as_json: bool,
) -> None:
    """How often a question gets a block from an archive that has nothing to do with it.

    `near` questions are those of another conversation of the set; `offtopic` ones are 40 general questions and 60 of
    each other set.
    """
    from benchmarks.datasets import load  # noqa: PLC0415 - as above
    from benchmarks.recall import measure_offtopic, shorten  # noqa: PLC0415 - as above

    embedder, notes = _embedder(no_vectors=no_vectors)
    conversations = load(dataset, path)
    if turns is not None:
        conversations = shorten(conversations, turns=turns)
    found = measure_offtopic(conversations, embedder=embedder, unrelated=_unrelated(others))
    show({**found, "embedder": notes}, {dataset: found}, first="data", as_json=as_json)


def _unrelated(others: Iterable[tuple[str, Path]]) -> list[Any]:
    """Return the general questions, and 60 of each other set."""
    from benchmarks.coding import load_sheet  # noqa: PLC0415 - as above
    from benchmarks.datasets import Question, load  # noqa: PLC0415 - as above

    texts = list(load_sheet().off_topic)
    for name, place in others:
        asked = [question.text for one in load(name, place) for question in one.questions]
        texts += asked[:: max(1, len(asked) // 60)][:60]
    return [Question(text=text, evidence=frozenset()) for text in texts]


@bench.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--record", "source", type=(str, click.Path(path_type=Path)), help="Search this set first, and write it.")
@click.option(
    "--other", "others", type=(str, click.Path(path_type=Path)), multiple=True, help="Also ask questions of this set."
)
@click.option("--halves", is_flag=True, help="Split a single conversation into two.")
@click.option("--stride", type=click.IntRange(min=1), default=1, show_default=True, help="Every so many questions.")
@click.option("--ingredients", is_flag=True, help="Without each ingredient of the order in turn.")
@as_json
def replay(
    *,
    files: tuple[Path, ...],
    source: tuple[str, Path] | None,
    others: tuple[tuple[str, Path], ...],
    halves: bool,
    stride: int,
    ingredients: bool,
    as_json: bool,
) -> None:
    """Measure blocks and gate on the recorded searches in FILES; `--record` makes the first of them."""
    from benchmarks import replay as recorded  # noqa: PLC0415 - as above
    from benchmarks.datasets import load  # noqa: PLC0415 - as above
    from benchmarks.recall import split  # noqa: PLC0415 - as above

    embedder, notes = _embedder(no_vectors=False)
    if source is not None:
        conversations = load(*source)
        conversations = split(conversations[0]) if halves else conversations
        asked = recorded.choose_others(conversations, _unrelated(others))
        with Progress(sum(len(one.questions) for one in conversations)) as bar:
            progress = partial(bar.advance, description="questions")
            cases = recorded.record(conversations, embedder=embedder, stride=stride, others=asked, progress=progress)
            recorded.save_cases(list(cases), files[0])
    if ingredients:
        rows = {
            f"{file.stem} {title}": figures
            for file in files
            for title, figures in recorded.measure_ingredients(recorded.load_cases(file), embedder=embedder).items()
        }
        show({"ingredients": rows, "embedder": notes}, rows, first="searches", as_json=as_json)
        return
    found = {file.stem: recorded.measure(recorded.load_cases(file), embedder=embedder) for file in files}
    show({"files": found, "embedder": notes}, found, first="searches", as_json=as_json)


@bench.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--sheet", type=click.Choice(["coding", "coding-2"]), default="coding", show_default=True)
@click.option("--no-vectors", is_flag=True, help="By words alone.")
@as_json
def coding(*, path: Path, sheet: str, no_vectors: bool, as_json: bool) -> None:
    """How many questions over real sessions of coding agents, in the folder PATH, the block answers."""
    from benchmarks.coding import measure  # noqa: PLC0415 - as above

    embedder, notes = _embedder(no_vectors=no_vectors)
    found = measure(path, embedder=embedder, name=sheet)
    row = {name: value for name, value in found.items() if not isinstance(value, list)}
    show({**found, "embedder": notes}, {sheet: row}, first="", as_json=as_json)


def _embedder(*, no_vectors: bool) -> tuple[Any, list[str]]:
    """Return the embedder that the settings of the user name, or none."""
    from holdfast.embed import choose  # noqa: PLC0415 - as above
    from holdfast.settings import Embedding, default_files, load  # noqa: PLC0415 - as above

    chosen = Embedding(provider="none") if no_vectors else load(files=default_files()).settings.embedding
    choice = choose(chosen, allow_remote=chosen.allow_remote)
    return choice.embedder, list(choice.reasons)


@bench.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@as_json
def related(*, folder: Path, as_json: bool) -> None:
    """Print the table of related English words, made from the static model in FOLDER."""
    from benchmarks.related import find_related, format_table  # noqa: PLC0415 - as above

    found = find_related(folder)
    if as_json:
        emit_json(found)
        return
    for line in format_table(found):
        click.echo(line)


@bench.command()
@as_json
def thesaurus(*, as_json: bool) -> None:
    """Print the table of words that people use for the same thing, made from the groups in `benchmarks/data`."""
    from benchmarks.related import format_table  # noqa: PLC0415 - as above
    from benchmarks.thesaurus import load_groups, make_table  # noqa: PLC0415 - as above

    table = make_table(load_groups())
    if as_json:
        emit_json(table)
        return
    for line in format_table(table):
        click.echo(line)


@bench.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--provider", default="auto", show_default=True, help="As `embedding.provider`.")
@click.option("--model", help="As `embedding.model`.")
@as_json
def embedding(*, path: Path, provider: str, model: str | None, as_json: bool) -> None:
    """How fast an embedder is on a text file, and how good its vectors alone are on a file in the format of SQuAD."""
    import msgspec  # noqa: PLC0415 - as above

    from benchmarks.embedding import measure  # noqa: PLC0415 - as above
    from holdfast.embed import choose  # noqa: PLC0415 - as above
    from holdfast.settings import Embedding  # noqa: PLC0415 - as above

    choice = choose(msgspec.convert({"provider": provider, "model": model}, Embedding))
    if choice.embedder is None:
        raise InputError("; ".join(choice.reasons))
    figures = measure(choice.embedder, path)
    show(
        {**figures, "embedder": list(choice.reasons)},
        {choice.embedder.space.name: figures},
        first="embedder",
        as_json=as_json,
    )


@bench.command()
@click.option("--segments", type=click.IntRange(min=100), multiple=True, default=(20_000,), show_default=True)
@click.option(
    "--store", "kinds", type=click.Choice(["sqlite", "encrypted", "postgresql"]), multiple=True, default=("sqlite",)
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw how the figures grow, as SVG.")
@as_json
def store(*, segments: tuple[int, ...], kinds: tuple[str, ...], plot: Path | None, as_json: bool) -> None:
    """What the store costs at so many passages of 1,000 characters: build, append, open, query, memory, disk."""
    from benchmarks import growth  # noqa: PLC0415 - as above
    from benchmarks.store import measure  # noqa: PLC0415 - as above

    embedder, _ = _embedder(no_vectors=False)
    found: list[dict[str, Any]] = []
    for number, kind in product(segments, kinds):
        with Progress(number) as progress:
            cost = measure(number, embedder=embedder, kind=kind, progress=lambda n: progress.advance(n, "passages"))
            found.append(asdict(cost))
    if plot is not None:
        plot.write_text(growth.plot(found), encoding="utf-8")
    if as_json:
        emit_json({**found[0], **machine()} if len(found) == 1 else [{**one, **machine()} for one in found])
        return
    parts = ("cpu", "embedding", "fts5")
    names = [f"{one['segments']:,} {one['store']}" for one in found]
    rows = [{key: value for key, value in one.items() if key not in parts} for one in found]
    print_table(dict(zip(names, rows, strict=True)), first="passages")
    for part, title in zip(parts, ("processor time", "real vectors", "plain FTS5"), strict=True):
        print_table({name: one[part] for name, one in zip(names, found, strict=True) if one[part]}, first=title)


@bench.command()
@click.argument("dataset")
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--questions", type=click.IntRange(min=1), default=200, show_default=True)
@as_json
def nearest(*, dataset: str, path: Path, questions: int, as_json: bool) -> None:
    """Which of the nearest passages a PostgreSQL server finds for the questions of a data set."""
    from benchmarks.datasets import load  # noqa: PLC0415 - as above
    from benchmarks.nearest import measure  # noqa: PLC0415 - as above

    embedder, notes = _embedder(no_vectors=False)
    if embedder is None:
        raise InputError("; ".join(notes))
    found = measure(load(dataset, path), embedder=embedder, questions=questions)
    show({**found, "embedder": notes}, found, first="vectors", as_json=as_json)


@bench.command()
@click.option("--processes", type=click.IntRange(min=1), multiple=True, default=(16,), show_default=True)
@click.option("--tenants", type=click.IntRange(min=1), default=64, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=1), default=300, show_default=True)
@click.option("--kills", type=click.IntRange(min=0), default=3, show_default=True, help="Kills of the server.")
@as_json
def fleet(*, processes: tuple[int, ...], tenants: int, seconds: float, kills: int, as_json: bool) -> None:
    """Processes and tenants on one PostgreSQL server that is killed meanwhile: lost, crossed, calls per second."""
    from benchmarks.fleet import measure  # noqa: PLC0415 - as above

    found = [asdict(measure(processes=number, tenants=tenants, seconds=seconds, kills=kills)) for number in processes]
    if as_json:
        emit_json([{**one, **machine()} for one in found])
    else:
        print_table({f"{one['processes']}": one for one in found}, first="processes")


@bench.command()
@click.option("--messages", type=click.IntRange(min=10), default=5_000, show_default=True, help="Messages before it.")
@click.option("--segments", type=click.IntRange(min=0), default=20_000, show_default=True, help="Passages beside them.")
@click.option("--turns", type=click.IntRange(min=2), default=50, show_default=True, help="Turns to time.")
@click.option(
    "--limit", type=click.IntRange(min=8000), default=200_000, show_default=True, help="Tokens of the window."
)
@as_json
def assemble(*, messages: int, segments: int, turns: int, limit: int, as_json: bool) -> None:
    """What one more turn costs in a very long conversation over a full archive, step by step."""
    from benchmarks.assemble import measure  # noqa: PLC0415 - as above

    with Progress(segments + turns) as bar:
        advance = partial(bar.advance, description="")
        found = measure(messages=messages, segments=segments, turns=turns, limit=limit, progress=advance)
    if as_json:
        emit_json({**machine(), **asdict(found)})
        return
    figures = asdict(found)
    steps = figures.pop("steps")
    print_table({"a turn": figures}, first="")
    print_table({name: {"ms": cost} for name, cost in steps.items()}, first="step")


@bench.command()
@click.option("--kills", type=click.IntRange(min=1), default=25, show_default=True)
@click.option("--minutes", type=float, default=0.0, show_default=True, help="Eight processes at once for so long.")
@click.option("--seed", type=int, default=1, show_default=True)
@as_json
def crash(*, kills: int, minutes: float, seed: int, as_json: bool) -> None:
    """Kill a writing process again and again, and count what was acknowledged and is gone."""
    from benchmarks.crash import measure  # noqa: PLC0415 - as above

    with Progress(kills) as progress:
        found = dict(measure(kills=kills, minutes=minutes, seed=seed, progress=lambda n: progress.advance(n, "kills")))
    show(found, {"kill -9": found}, first="", as_json=as_json)


@bench.command()
@click.option("--windows", type=click.IntRange(min=1), default=20_000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True)
@as_json
def fuzz(*, windows: int, seed: int, processes: int, as_json: bool) -> None:
    """Assemble random conversations and check every window against the rules of five providers."""
    from benchmarks.fuzz import measure  # noqa: PLC0415 - as above

    with Progress(windows) as progress:
        each = partial(progress.advance, description="windows")
        found = asdict(measure(windows=windows, seed=seed, processes=processes, progress=each))
    show(found, {"random windows": found}, first="", as_json=as_json)


@bench.command()
@click.option("--reads", type=click.IntRange(min=1), default=20_000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@as_json
def scopes(*, reads: int, seed: int, as_json: bool) -> None:
    """Put a canary into every scope, read in every way, and count what crossed from one to another."""
    from benchmarks.scopes import measure  # noqa: PLC0415 - as above

    found = asdict(measure(reads=reads, seed=seed))
    show(found, {"canaries": found}, first="", as_json=as_json)


@bench.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--limit", type=click.IntRange(min=4000), default=64_000, show_default=True, help="Tokens of the window.")
@click.option(
    "--reserve", type=click.IntRange(min=0), help="Tokens kept for the reply; default 20,000, at most a quarter."
)
@click.option("--requests", "most", type=click.IntRange(min=1), help="Only so many requests of each conversation.")
@as_json
def cache(*, paths: tuple[Path, ...], limit: int, reserve: int | None, most: int | None, as_json: bool) -> None:
    """What input tokens cost with the provider's prompt cache: without memory, recall at the head, at the tail."""
    from benchmarks.cache import BASELINE, POLICIES, beginning, measure  # noqa: PLC0415 - as above
    from holdfast.cli.replay import find_requests  # noqa: PLC0415 - as above

    files = [found.path for path in paths for found in transcripts.sessions(path)]
    talks = [beginning(transcripts.read(file).messages, most) for file in files]
    total = len(POLICIES) * sum(1 for talk in talks for _ in find_requests(talk))
    with Progress(total) as progress:
        found = measure(talks, limit=limit, reserve=reserve, progress=lambda n: progress.advance(n, "requests"))
    ratio = found["tail+sticky"]["of_append_only"]
    if as_json:
        emit_json({"files": len(files), "limit": limit, "policies": found, "ratio": ratio, **machine()})
        return
    print_table(found, first="policy")
    open_console().print(f"\nprices: a token read from the cache 0.1, written to it 1.25; append-only is {BASELINE}")
    open_console().print(f"recall at the tail with recorded edits costs {ratio:.2f} times an append-only conversation")


@bench.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--limit", "limits", multiple=True, type=click.IntRange(min=4000), help="Tokens of the window; repeatable."
)
@click.option("--provider", type=click.Choice(["anthropic", "openai_chat"]), default="openai_chat", show_default=True)
@click.option("--requests", "most", type=click.IntRange(min=1), help="Only so many requests of each conversation.")
@as_json
def windows(
    *, paths: tuple[Path, ...], limits: tuple[int, ...], provider: str, most: int | None, as_json: bool
) -> None:
    """How full windows are, how often they are cut, and the price of input, next to append-only and drop-the-oldest.

    Each of PATHS is a set of transcripts. Without PATHS, a conversation of a coding agent is made for this.
    """
    from benchmarks.cache import beginning  # noqa: PLC0415 - as above
    from benchmarks.windows import LIMITS, WAYS, make_loop, measure  # noqa: PLC0415 - as above
    from holdfast.cli.replay import find_requests  # noqa: PLC0415 - as above

    sets: dict[str, list[list[Message]]] = {}
    if not paths:
        sets["synthetic"] = [make_loop(requests=most or 400)]
    for path in paths:
        files = [found.path for found in transcripts.sessions(path)] if path.exists() else []
        if not files:
            echo(f"{path}: no transcript, skipped")
            continue
        sets[path.name] = [list(beginning(transcripts.read(file).messages, most)) for file in files]
    sizes = limits or LIMITS
    total = len(WAYS) * len(sizes) * sum(1 for talks in sets.values() for talk in talks for _ in find_requests(talk))
    found: dict[str, dict[str, Any]] = {}
    with Progress(total) as progress:
        for limit, (name, talks) in product(sizes, sets.items()):
            figures = measure(talks, limit=limit, provider=provider, progress=lambda n: progress.advance(n, "requests"))
            for way, row in figures.items():
                found[f"{limit:,} {name}, {way}"] = {"limit": limit, "set": name, "way": way, **row.to_json()}
    if as_json:
        emit_json({"provider": provider, "rows": list(found.values()), **machine()})
        return
    columns = ("limit", "set", "way")
    print_table({key: {k: v for k, v in row.items() if k not in columns} for key, row in found.items()}, first="window")


@bench.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@as_json
def facts(*, path: Path, as_json: bool) -> None:
    """Measure the facts that are extracted without a model, on RealMem's files at PATH."""
    from benchmarks.facts import load, measure  # noqa: PLC0415 - as above

    found = measure(load(path))
    if as_json:
        emit_json({**found, **machine()})
        return
    baseline = found.pop("baseline")
    print_table({"explicit statements": found, "every user sentence": baseline}, first="facts")


@bench.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--limit", type=click.IntRange(min=8000), default=64_000, show_default=True, help="Tokens of the window.")
@click.option("--talks", type=click.IntRange(min=1), default=3, show_default=True, help="Conversations to make.")
@click.option("--each", type=click.IntRange(1, 4), default=3, show_default=True, help="Needles of a kind and distance.")
@click.option("--seed", type=int, default=1, show_default=True)
@as_json
def recover(*, paths: tuple[Path, ...], limit: int, talks: int, each: int, seed: int, as_json: bool) -> None:
    """How much of what was said in passing can be had back after 1 to 20 compactions of the transcripts in PATHS."""
    from benchmarks.recover import ROUNDS, conversations, measure  # noqa: PLC0415 - as above

    files = [found.path for path in paths for found in transcripts.sessions(path)]
    joined = conversations([transcripts.read(file).messages for file in files], count=talks, seed=seed)
    with Progress(2 * ROUNDS * len(joined)) as progress:
        useless, digest = (
            measure(
                joined,
                useless=kind,
                limit=limit,
                each=each,
                seed=seed,
                progress=lambda n: progress.advance(n, "compactions"),
            )
            for kind in (True, False)
        )
    if as_json:
        data = {"files": len(files), "conversations": len(joined), "limit": limit, **machine()}
        emit_json({"summariser": "useless", **useless, "digest": digest, **data})
        return
    print_recovery("every summary is one useless sentence", useless)
    print_recovery("summaries by rule", digest)


def print_recovery(title: str, found: Mapping[str, Any]) -> None:
    """Print what was had back, by how often it was compacted, what it is and how far away it was said."""
    open_console().print(f"{title}; {found['needles']} needles, at most {found['cap']:,} tokens recalled", style="bold")
    for first, key in (("compactions", "by_compactions"), ("type", "by_type"), ("tokens since", "by_distance")):
        print_table(found[key], first=first)
        open_console().print()
    open_console().print(f"blocks for questions that are off topic: {found['offtopic_injected']:.1%}\n")


@bench.command()
@click.option("--turns", type=click.IntRange(min=1), default=200, show_default=True)
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Starts that are timed.")
@as_json
def chat(*, turns: int, runs: int, as_json: bool) -> None:
    """How soon the first screen of `holdfast chat` is there, and what a turn costs beside the model."""
    import time  # noqa: PLC0415 - as above

    from benchmarks.chat import first_screens, measure  # noqa: PLC0415 - as above

    started = first_screens(runs)
    with Progress(2 * turns) as progress:
        found, worked = (
            measure(turns=turns, clock=clock, progress=lambda n: progress.advance(n, "turns"))
            for clock in (time.perf_counter, time.process_time)
        )
    load = round(os.getloadavg()[0], 2)
    if as_json:
        emit_json({"first_screen": started, "turn": found, "processor": worked, "load": load, **machine()})
        return
    times = {"first screen": started.get("shown"), "prompt takes keys": started.get("takes_keys")}
    times |= {"own time of a turn": found["own"], "of it the processor's": worked["own"]}
    print_table({name: row for name, row in times.items() if row}, first="ms")
    open_console().print()
    print_table(found["steps"], first="step, ms a turn")
    missed = f"{found['over_target']} of {turns} turns over {found['target']:.0f} ms"
    open_console().print(f"\n{missed}; {found['compactions']} compactions; load {load} on {os.cpu_count()} cores")


@bench.command()
@click.option("--streams", type=click.IntRange(min=1), default=100, show_default=True, help="Clients at once.")
@click.option("--seconds", type=click.FloatRange(min=1), default=60.0, show_default=True)
@click.option("--stream-seconds", type=click.FloatRange(min=0.1), default=10.0, show_default=True, help="Of one reply.")
@click.option("--conversations", type=click.IntRange(min=0), default=0, help="Of a client, sent again and again.")
@as_json
def proxy(*, streams: int, seconds: float, stream_seconds: float, conversations: int, as_json: bool) -> None:
    """Run many streams through the proxy, kill the server, and count bytes that changed and replies that are lost."""
    from benchmarks.proxy import measure  # noqa: PLC0415 - each bench loads what it needs

    found = measure(streams=streams, seconds=seconds, stream_seconds=stream_seconds, conversations=conversations)
    show(found, {name: {"value": value} for name, value in found.items()}, first="figure", as_json=as_json)


@bench.command(name="proxy-turn")
@click.option(
    "--format",
    type=click.Choice(["anthropic", "openai_chat", "openai_responses"]),
    default="anthropic",
    show_default=True,
    help="Of the requests.",
)
@click.option("--turns", type=click.IntRange(min=1), default=60, show_default=True, help="Of each kind.")
@click.option("--messages", type=click.IntRange(min=2), default=50, show_default=True, help="Of the long conversation.")
@click.option("--clients", type=click.IntRange(min=1), default=20, show_default=True, help="At once.")
@as_json
def proxy_turn(*, format: str, turns: int, messages: int, clients: int, as_json: bool) -> None:
    """Processor time that the proxy takes for one turn of a conversation that fits its window."""
    from benchmarks.proxy_turn import measure  # noqa: PLC0415 - each bench loads what it needs

    found = measure(format=format, turns=turns, messages=messages, clients=clients)
    show(found, found["costs"], first="ms for one turn", as_json=as_json)


@bench.command()
@click.option("--messages", type=click.IntRange(min=1), default=1_000_000, show_default=True)
@as_json
def inspector(*, messages: int, as_json: bool) -> None:
    """How fast the pages of the inspector are over a large store."""
    from benchmarks.inspector import measure  # noqa: PLC0415 - as above

    with Progress(messages) as progress:
        found = asdict(measure(messages, progress=lambda count: progress.advance(count, "messages")))
    show(found, found["pages"], first="page", as_json=as_json)


@bench.command()
@click.option(
    "--openclaw",
    "host",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The folder in which npm installed openclaw; default that on the PATH.",
)
@click.option("--alone", is_flag=True, help="OpenClaw as it is, without Holdfast.")
@click.option(
    "--peer",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The folder of another plugin, in place of Holdfast.",
)
@click.option(
    "--facts",
    type=click.Choice(["openclaw", "openclaw-2", "openclaw-3", "openclaw-4", "openclaw-5"]),
    default="openclaw",
    show_default=True,
)
@click.option(
    "--words", type=click.Choice(["own", "other"]), default="own", show_default=True, help="Of a fact, or other ones."
)
@click.option("--mode", default="", help="Of OpenClaw's own compaction, such as default; else that which it chooses.")
@click.option(
    "--fault",
    type=click.Choice(["no summaries", "killed", "hung", "deleted"]),
    help="What fails for ten turns: the model of summaries, or memory: its process, its answers, its store.",
)
@click.option("--keep", type=click.Path(path_type=Path), help="Keep logs and memory in this new folder.")
@as_json
def openclaw(
    *,
    host: Path | None,
    alone: bool,
    peer: Path | None,
    facts: str,
    words: str,
    mode: str,
    fault: str | None,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Whether what was said in passing is in the request with the question about it, inside the real OpenClaw."""
    import tempfile  # noqa: PLC0415 - as above

    from benchmarks.openclaw import TURNS, find_host, load_facts, measure  # noqa: PLC0415 - as above

    command, rows = find_host(host), load_facts(facts)
    turns = TURNS + sum(bool(fact.ask(words)) for fact in rows)
    with tempfile.TemporaryDirectory() as temporary, Progress(turns) as progress:
        folder = keep or Path(temporary) / "trial"
        folder.mkdir(parents=True)
        found = measure(
            rows,
            command=command,
            folder=folder,
            with_memory=not alone and peer is None,
            words=words,
            peer=peer,
            mode=mode,
            fault=fault or "",
            progress=lambda n: progress.advance(n, "turns"),
        )
    if as_json:
        emit_json({"with_holdfast": not alone and peer is None, "words": words, **found, **machine()})
        return
    names = ("facts", "answered", "compactions", "turns", "failed", "tokens_p50", "summary_calls", "seconds_a_turn")
    row = {name: found[name] for name in names}
    name = "with Holdfast"
    if alone:
        name = "OpenClaw alone"
    elif peer is not None:
        name = f"with {peer.name}"
    print_table({name: row}, first="")
    tokens = found["request_tokens"]
    print_table(
        {kind: {"answered": str(ok), "tokens": tokens[kind]} for kind, ok in found["by_fact"].items()}, first="fact"
    )
    print_table(found["calls"], first="call")


@bench.command()
@click.option("--turns", type=click.IntRange(min=1), default=92, show_default=True, help="Turns of the chat.")
@click.option("--kills", type=click.IntRange(min=0), default=20, show_default=True)
@click.option("--hours", type=click.IntRange(min=0), default=6, show_default=True, help="Hours without a model.")
@as_json
def learning(*, turns: int, kills: int, hours: int, as_json: bool) -> None:
    """What a long chat teaches, which questions in other words find it, and what kills and failures lose."""
    from benchmarks.learning import measure_chat, measure_kills, measure_outage, measure_questions  # noqa: PLC0415 - as above

    with Progress(turns + 2 + kills) as progress:
        chat = measure_chat(turns=turns, progress=lambda count: progress.advance(count, "chat"))
        questions = measure_questions(progress=lambda count: progress.advance(count, "questions"))
        killed = measure_kills(kills=kills, progress=lambda count: progress.advance(count, "kills"))
        outage = measure_outage(hours=hours)
    if as_json:
        emit_json({"chat": chat, "questions": questions, "kills": killed, "outage": outage, **machine()})
        return
    print_table({"chat": chat}, first="")
    echo("")
    print_table({name: questions[name] for name in ("without", "with")}, first="questions of facts")
    echo("")
    print_table({"kills": killed}, first="")
    echo("")
    print_table({"no model": outage}, first="")


if __name__ == "__main__":
    try:
        bench()
    except HoldfastError as error:
        sys.exit(f"benchmarks: {error}")
