"""The hooks of `holdfast chat`, from the settings: functions of the user's modules, and commands."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from holdfast import providers
from holdfast.agent.shell import environment, run_program
from holdfast.errors import InputError, SettingsError
from holdfast.events import Compacted, Compacting, Hook, Hooks, SummaryRequest, SummaryResult
from holdfast.settings import HookSettings

__all__ = ["load_hooks"]

_FUNCTION: Final = re.compile(r"([^\W\d][\w.]*):([^\W\d]\w*)")


def load_hooks(settings: HookSettings, *, root: Path) -> Hooks:
    """Load the hooks that the settings name. Commands run in the workspace.

    Raises:
        SettingsError: A function cannot be imported, or a command cannot be read.
    """
    before = [
        _make_listener(text, Compacting, "hooks.before_compaction", settings, root)
        for text in settings.before_compaction
    ]
    after = [
        _make_listener(text, Compacted, "hooks.after_compaction", settings, root) for text in settings.after_compaction
    ]
    return Hooks(listeners=(*before, *after), summary=_make_summary_hook(settings.summary, root))


def _make_listener(text: str, kind: type[Compacting | Compacted], key: str, settings: HookSettings, root: Path) -> Hook:
    function = _import_function(text, key)
    run = None if function else _make_command(text, key, root)

    def listen(event: Compacting | Compacted) -> None:
        if not isinstance(event, kind):
            return
        if function is not None:
            function(event)
        elif run is not None:
            run(stdin=_event_json(event), seconds=settings.timeout_seconds)

    listen.__name__ = text
    return listen


def _make_summary_hook(text: str | None, root: Path) -> Callable[[SummaryRequest], SummaryResult | str | None] | None:
    if text is None:
        return None
    function = _import_function(text, "hooks.summary")
    if function is not None:
        return function
    run = _make_command(text, "hooks.summary", root)

    def supply(request: SummaryRequest) -> SummaryResult | None:
        output = run(stdin=_request_json(request), cancel=request.cancel).strip()
        if not output:
            return None
        try:
            answer = json.loads(output)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("summary", ""), str):
            raise InputError('print JSON such as {"summary": "...", "details": {}} or {"cancel": true}, or nothing')
        return SummaryResult(
            text=answer.get("summary", ""), details=answer.get("details") or {}, cancel=answer.get("cancel") is True
        )

    supply.__name__ = text
    return supply


def _import_function(text: str, key: str) -> Callable[..., Any] | None:
    """Import the function that a setting names as `module:name`; None if the setting is a command."""
    name = _FUNCTION.fullmatch(text.strip())
    if name is None:
        return None
    try:
        return getattr(import_module(name[1]), name[2])  # type: ignore[no-any-return]
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"{text} cannot be imported: {error}", source="settings", key=key) from error


def _make_command(text: str, key: str, root: Path) -> Callable[..., str]:
    try:
        program, *arguments = shlex.split(text)
    except ValueError as error:
        raise SettingsError(f"{text!r} is not a command: {error}", source="settings", key=key) from error
    command = (os.path.expanduser(program), *arguments)  # noqa: PTH111 - a name, not a path
    return partial(run_program, command, cwd=root, environ=environment(os.environ))


def _event_json(event: Compacting | Compacted) -> bytes:
    owner = {
        "sessionId": event.session,
        "agentId": event.agent,
        "project": event.project,
        "workspaceDir": event.workspace,
        "messageCount": event.messages,
    }
    if isinstance(event, Compacting):
        more = {"event": "before_compaction", "compactingCount": event.summarised, "tokenCount": event.tokens}
    else:
        more = {"event": "after_compaction", "compactedCount": event.summarised, "tokenCount": event.tokens_after}
        more["tokensBefore"] = event.tokens_before
    return json.dumps({**more, **owner}).encode()


def _request_json(request: SummaryRequest) -> bytes:
    plan = request.plan
    messages = providers.render([item.message for item in (*plan.dropped, *plan.history)], "pi")
    data = {
        **json.loads(_event_json(request.event)),
        "event": "session_before_compact",
        "customInstructions": request.instructions,
        "messagesToSummarize": messages,
        "turnPrefixMessages": providers.render([item.message for item in plan.prefix], "pi"),
        "previousSummary": plan.previous,
        "isSplitTurn": plan.splits_turn,
        "fileOps": {"readFiles": plan.activity.read, "modifiedFiles": plan.activity.modified},
    }
    return json.dumps(data, ensure_ascii=False, default=str).encode("utf-8", "replace")
