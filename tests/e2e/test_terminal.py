"""What a person can do in the terminal, with a script for a model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pexpect
import pytest

from holdfast.engine import Engine
from holdfast.settings import Embedding, Settings
from holdfast.transcripts import read
from holdfast_agent.sessions import Sessions, session_key
from support.terminal import PROMPT, Terminal, readable
from support.waiting import until

ALT_ENTER = "\x1b\r"
CALL = {"text": "I run it.", "calls": [{"name": "bash", "arguments": {"command": "echo ran >> log.txt"}}]}


def script(folder: Path, *steps: object) -> str:
    """The name of a model that answers so."""
    file = folder / "script.jsonl"
    file.write_text("\n".join(json.dumps({"text": step} if isinstance(step, str) else step) for step in steps), "utf-8")
    return f"scripted:{file}"


def asked(terminal: Terminal) -> str:
    """Wait for a question. What stands before it is returned."""
    return terminal.wait("it?") + terminal.wait("no")


def answer(terminal: Terminal, key: str) -> None:
    """Press a key until it counts: not while the question is being drawn."""
    word = {"y": "yes", "a": "always", "n": "no"}[key.lower()]

    def is_taken() -> bool:
        terminal.child.send(key)
        return bool(terminal.child.expect_exact([pexpect.TIMEOUT, f"it? {word}"], timeout=1))

    until(is_taken)


def messages(folder: Path) -> list[str]:
    """What was said, as the transcript has it."""
    (file,) = (folder / "memory" / "agents" / "main" / "sessions").glob("*.jsonl")
    return [message.text for message in read(file).messages]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [([], "No model is set"), (["--model", "nobody/knows"], "no model is called that")],
)
def test_what_cannot_be_opened_ends_at_once(arguments: list[str], words: str, tmp_path: Path) -> None:
    """Nothing has to be typed to hear why: the message comes by itself, with exit code 1."""
    with Terminal(tmp_path, *arguments) as terminal:
        assert terminal.end() == 1
        assert words in readable("".join(terminal.seen))


def test_typing(tmp_path: Path) -> None:
    """Words are completed, lines are broken, pasted text stays whole, what was typed before comes back, masked."""
    model = script(tmp_path, "First.", "Second.", "Third.", "Fourth.")
    secret = "ghp_" + "x1Y2" * 9
    with Terminal(tmp_path, "--model", model) as terminal:
        terminal.child.send("/mem\t")
        terminal.wait("ory")
        terminal.child.send("se\t")
        terminal.wait("arch")
        terminal.say("port", until="Nothing found")
        terminal.say(f"one{ALT_ENTER}two", until="First.")
        terminal.say("\x1b[200~three\nfour\x1b[201~", until="Second.")
        terminal.say(f"the token is {secret}", until="Third.")
        until(lambda: _came_back(terminal, "the token"))
        terminal.say("", until="Fourth.")
        assert terminal.leave() == 0
    said = messages(tmp_path)[::2]
    assert said[:2] == ["one\ntwo", "three\nfour"]
    assert said[2] == said[3]
    assert secret not in (tmp_path / "memory" / "chat_history").read_text("utf-8")


def _came_back(terminal: Terminal, words: str) -> bool:
    """Go down and up in what was typed before, which is read while one begins to type: twice is as good as once."""
    terminal.child.send("\x1b[B\x1b[A")
    return bool(terminal.child.expect_exact([pexpect.TIMEOUT, words], timeout=1))


def test_hostile_text_moves_no_cursor(tmp_path: Path) -> None:
    """Neither raw control characters nor entities that stand for them reach the terminal; HTML is shown."""
    evil = "# A\x1b[2J\n\nb\x1b]0;owned\x07 &#x202e;c <script>d</script>\n\n```\n\x1b[Hcode\n```\n"
    with Terminal(tmp_path, "--model", script(tmp_path, evil), environ={"NO_COLOR": "1"}) as terminal:
        terminal.say("Hello.", until="</script>")
        assert terminal.leave() == 0
    raw = "".join(terminal.seen)
    for wanted in ("\x1b[2J", "\x1b]0;owned", "\u202e", "\x07", "\x1b[H"):
        assert wanted not in raw
    assert "<script>d</script>" in readable(raw)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", raw)  # no colour


def test_commands_are_asked_for(tmp_path: Path) -> None:
    """A command runs with a yes, not with a no, and without asking after `always`."""
    model = script(tmp_path, CALL, "No.", CALL, "Yes.", CALL, "Always.", CALL, "Again.")
    with Terminal(tmp_path, "--model", model) as terminal:
        for key, words in (("n", "No."), ("y", "Yes."), ("a", "Always.")):
            terminal.type("Run it.")
            asked(terminal)
            answer(terminal, key)
            terminal.wait(words)
            terminal.wait(PROMPT)
        terminal.say("Run it.", until="Again.")
        assert terminal.leave() == 0
    assert (tmp_path / "work" / "log.txt").read_text() == "ran\n" * 3


def test_changes_are_asked_for(tmp_path: Path) -> None:
    """A file is written with a yes, without asking after `always`; what git reads is asked for even then."""
    write = {"calls": [{"name": "write", "arguments": {"path": "a.md", "content": "文字\n"}}]}
    edit = {"calls": [{"name": "edit", "arguments": {"path": "a.md", "oldText": "文", "newText": "汉"}}]}
    evil = {"calls": [{"name": "write", "arguments": {"path": ".git/config", "content": "[core]"}}]}
    model = script(tmp_path, write, "No.", write, "Always.", edit, "Edited.", evil, "Refused.")
    (tmp_path / "work" / ".git").mkdir(parents=True)
    with Terminal(tmp_path, "--model", model) as terminal:
        for key, words in (("n", "No."), ("a", "Always.")):
            terminal.type("Write it.")
            assert "+ 文字" in asked(terminal)
            answer(terminal, key)
            terminal.wait(words)
            terminal.wait(PROMPT)
            assert (tmp_path / "work" / "a.md").exists() == (key == "a")
        assert "- 文" in terminal.say("Edit it.", until="Edited.")  # a change is shown even if none is asked for
        terminal.type("And git?")
        shown = asked(terminal)
        assert "This always needs your confirmation: it can make git run commands." in shown
        assert "always in this conversation" not in shown
        terminal.child.send("a")  # no answer here
        answer(terminal, "n")
        terminal.wait("Refused.")
        terminal.wait(PROMPT)
        assert terminal.leave() == 0
    assert (tmp_path / "work" / "a.md").read_text("utf-8") == "汉字\n"
    assert not (tmp_path / "work" / ".git" / "config").exists()


def test_yes_does_not_answer_for_what_is_always_asked_for(tmp_path: Path) -> None:
    """With --yes a file is written at once, and a start file of a shell is asked for."""
    calls = [{"name": "write", "arguments": {"path": path, "content": "x"}} for path in ("a.md", ".bashrc")]
    with Terminal(tmp_path, "--yes", "--model", script(tmp_path, {"calls": calls}, "Done.")) as terminal:
        terminal.type("Go.")
        assert "a shell runs it when it starts" in asked(terminal)
        answer(terminal, "n")
        terminal.wait("Done.")
        terminal.wait(PROMPT)
        assert terminal.leave() == 0
    assert (tmp_path / "work" / "a.md").exists()
    assert not (tmp_path / "work" / ".bashrc").exists()


def test_what_was_typed_before_does_not_answer(tmp_path: Path) -> None:
    """Lines that were typed or pasted before the question are no answer, nor are words that are still being typed."""
    slow = {"pieces": ["I ", "run ", "it."], "delay": 0.5, "calls": CALL["calls"]}
    with Terminal(tmp_path, "--model", script(tmp_path, slow, "Refused.")) as terminal:
        terminal.type("Run it.")
        terminal.wait("thinking")
        terminal.child.send("y\ry\ra\r")
        asked(terminal)
        terminal.child.send("\x1b[200~y\x1b[201~y\r是")
        answer(terminal, "n")
        terminal.wait("Refused.")
        terminal.wait(PROMPT)
        assert terminal.leave() == 0
    assert not (tmp_path / "work" / "log.txt").exists()


def test_what_is_typed_during_an_answer_survives_its_interruption(tmp_path: Path) -> None:
    """Ctrl-C ends the answer; the words that were typed before it are at the next prompt."""
    slow = {"pieces": ["Let me think."] + ["."] * 500, "delay": 0.1}
    with Terminal(tmp_path, "--model", script(tmp_path, slow, "Two.")) as terminal:
        terminal.type("Well?")
        terminal.wait("Let me think.")
        terminal.child.send("还有 more")
        terminal.interrupt()
        terminal.wait("Interrupted")
        terminal.wait("more")
        terminal.say("!", until="Two.")
        assert terminal.leave() == 0
    assert messages(tmp_path)[2] == "还有 more!"


def test_a_start_says_what_is_continued(tmp_path: Path) -> None:
    """Above the prompt, without a word of the user; and how to begin another conversation."""
    with Terminal(tmp_path, "--model", script(tmp_path, "It is 5433.")) as terminal:
        terminal.say("Which port has 预发布 staging?", until="5433")
        assert terminal.leave() == 0
    with Terminal(tmp_path, "--model", "echo") as terminal:
        shown = terminal.wait("/new begins another")
        assert "Continues “Which port has 预发布 staging?” · 2 messages" in shown
        terminal.wait("last answer: It is 5433.")
        terminal.child.send("/")
        terminal.wait("Replace older history with a summary.")
        terminal.interrupt()
        assert terminal.leave() == 0


FULL = {
    "HOLDFAST_COMPACTION__RESERVE_TOKENS": "2000",
    "HOLDFAST_COMPACTION__RESERVE_TOKENS_FLOOR": "0",
    "HOLDFAST_COMPACTION__KEEP_RECENT_TOKENS": "1000",
    "HOLDFAST_TRIM__PROTECTED_RECENT": "2",
}
NAMED = {
    "HOLDFAST_AGENT__SESSION__MEMORY_FILE": "true",
    "HOLDFAST_KNOWLEDGE__EXTRACTION": "false",  # a thread would take steps of the script
}


@pytest.mark.parametrize(
    ("stage", "environ"),
    [
        ("writing notes", {}),
        ("compacting", {"HOLDFAST_COMPACTION__MEMORY_FLUSH__ENABLED": "false"}),
        ("naming the conversation", {**NAMED, "HOLDFAST_AGENT__SESSION__RESET__MODE": "idle"}),
    ],
)
def test_words_survive_whatever_comes_before_the_answer(stage: str, environ: dict[str, str], tmp_path: Path) -> None:
    """Kill -9 while a model is asked for something else: what was typed is in transcript and archive, and continues."""
    words = "The harbour code is 7741，记住港口代码。"
    long = "word and another one, " * 1_000 + "\n\n"
    model = script(tmp_path, f"{long}One.", f"{long}Two.", {"hang": True})
    arguments = ("--context-tokens", "13000", "--model", model)
    with Terminal(tmp_path, *arguments, environ={**FULL, **environ}) as terminal:
        terminal.say("First.", until="One.")
        terminal.say("Second.", until="Two.")
        sessions = Sessions(home=tmp_path / "memory", clock=lambda: 0, new_id=str)
        if stage == "naming the conversation":  # the pause that ends a conversation is over
            sessions.update(session_key(), lambda entry: entry.with_input(1_000))
        terminal.type(words)
        terminal.wait(stage)
        terminal.kill()
    assert messages(tmp_path)[-1] == words
    with Engine.open(tmp_path / "memory", settings=Settings(embedding=Embedding(provider="none"))) as engine:
        (session,) = {file.stem for file in sessions.folder.glob("*.jsonl")}
        (project,) = {info.project for info in engine.sessions() if info.id == session}
        assert words in [hit.text for hit in engine.session(session, project=project).search("harbour code")]
    roomy = {"HOLDFAST_AGENT__SESSION__RESET__MODE": "never"}
    with Terminal(tmp_path, "--model", "echo", environ=roomy) as terminal:
        terminal.say("/memory search harbour code", until="7741")
        terminal.say("And now?", until="I would have sent")
        assert terminal.leave() == 0
    assert [text for text in messages(tmp_path) if text in {words, "And now?"}] == [words, "And now?"]


def test_a_kill_while_a_conversation_is_named_loses_neither_messages_nor_names(tmp_path: Path) -> None:
    """Kill -9 while the model is asked for a name: all conversations are kept, and so is the note already named."""
    model = script(tmp_path, "It is 6543.", "staging-port", "It is 7741.", {"hang": True})
    with Terminal(tmp_path, "--model", model, environ=NAMED) as terminal:
        terminal.say("Which port has staging?", until="It is 6543.")
        terminal.say("/new", until="is kept in")
        terminal.say("What is the harbour code?", until="It is 7741.")
        terminal.type("/new")
        terminal.wait("naming the conversation")
        terminal.kill()
    (note,) = (tmp_path / "work" / "memory").iterdir()
    assert note.name.endswith("-staging-port.md")
    assert note.read_text("utf-8").endswith("\nuser: Which port has staging?\nassistant: It is 6543.\n")
    said = {("Which port has staging?", "It is 6543."), ("What is the harbour code?", "It is 7741.")}
    ended = (tmp_path / "memory" / "agents" / "main" / "sessions").glob("*.jsonl.reset.*")
    assert {tuple(message.text for message in read(file).messages) for file in ended} == said
    with Engine.open(tmp_path / "memory", settings=Settings(embedding=Embedding(provider="none"))) as engine:
        (project,) = {info.project for info in engine.sessions()}
        rows = engine.session("any", project=project).get(range(1, 20))
        assert {text for conversation in said for text in conversation} <= {row.message.text for row in rows}
    with Terminal(tmp_path, "--model", "echo") as terminal:
        terminal.say("And now?", until="I would have sent")
        assert terminal.leave() == 0
    assert messages(tmp_path)[0] == "And now?"


def test_leaving(tmp_path: Path) -> None:
    """Ctrl-C breaks off an answer: what was heard is kept. Where nothing continues, two of them leave."""
    slow = {"pieces": ["Let me think.\n\n", "More."] + ["."] * 500, "delay": 0.1}
    with Terminal(tmp_path, "--model", script(tmp_path, slow, {"hang": True})) as terminal:
        terminal.type("Well?")
        terminal.wait("More.")
        terminal.interrupt()
        terminal.wait("Interrupted")
        terminal.wait(PROMPT)
        terminal.type("And?")
        terminal.wait("thinking")
        terminal.interrupt()
        terminal.wait("Interrupted")
        terminal.wait(PROMPT)
        terminal.type("/exit")
        assert terminal.end() == 0
    with Terminal(tmp_path, "--model", script(tmp_path, "Here."), size=(20, 30)) as terminal:
        terminal.say("你还在吗？" * 12, until="Here.")
        terminal.interrupt()
        terminal.wait("again")
        terminal.interrupt()
        assert terminal.end() == 0
    assert messages(tmp_path)[1].startswith("Let me think.")
    assert messages(tmp_path)[-1] == "Here."


def test_a_hasty_interrupt(tmp_path: Path) -> None:
    """Ctrl-C right behind Enter is for the answer, though no one could hear it yet; what follows is typed ahead."""
    with Terminal(tmp_path, "--model", script(tmp_path, "One.", "Two.")) as terminal:
        terminal.say("Hi.", until="One.")
        terminal.child.send("Well?\r\x03And?\r")
        terminal.wait("Interrupted")
        terminal.wait("Two.")
        terminal.wait(PROMPT)
        assert terminal.leave() == 0
    assert messages(tmp_path) == ["Hi.", "One.", "Well?", "And?", "Two."]


def test_the_line_below_the_prompt_shows_all(tmp_path: Path) -> None:
    """How full the window is, how often it was compacted, what was recalled; as much as fits."""
    tells = {"PROMPT_TOOLKIT_NO_CPR": ""}
    with Terminal(tmp_path, "--model", "echo", "--session", "weeks", environ=tells) as terminal:
        terminal.child.send("\x1b[1;1R")  # where the cursor is: only then there is room for a line below
        terminal.wait("ctx 0%")
        assert "recalled 0 · echo · weeks" in readable(terminal.wait("weeks"))
        assert terminal.leave() == 0
