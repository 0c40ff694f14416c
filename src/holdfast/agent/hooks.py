"""The hooks of `holdfast chat`, from the settings: functions of the user's own modules, and commands."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from holdfast import providers
from holdfast.agent.notes.command import Command
from holdfast.agent.shell import environment
from holdfast.errors import InputError, SettingsError
from holdfast.events import Compacted, Compacting, Hook, Hooks, SummaryRequest, SummaryResult
from holdfast.settings import HookSettings

__all__ = ["load_hooks"]

_FUNCTION: Final = re.compile(r"([^\W\d][\w.]*):([^\W\d]\w*)")


def load_hooks(settings: HookSettings, *, root: Path) -> Hooks:
    """Make the hooks that the settings name. Commands run in the workspace.

    Raises:
        SettingsError: A function cannot be imported, or a command cannot be read.
    """
    before = [
        _listener(text, Compacting, "hooks.before_compaction", settings, root) for text in settings.before_compaction
    ]
    after = [_listener(text, Compacted, "hooks.after_compaction", settings, root) for text in settings.after_compaction]
    return Hooks(listeners=(*before, *after), summary=_summary(settings.summary, root))


def _listener(text: str, kind: type[Compacting | Compacted], key: str, settings: HookSettings, root: Path) -> Hook:
    function = _function(text, key)
    run = None if function else _command(text, key, root)

    def listen(event: Compacting | Compacted) -> None:
        if not isinstance(event, kind):
            return
        if function is not None:
            function(event)
        elif run is not None:
            run(given=_json(event), seconds=settings.timeout_seconds)

    listen.__name__ = text
    return listen


def _summary(text: str | None, root: Path) -> Callable[[SummaryRequest], SummaryResult | str | None] | None:
    if text is None:
        return None
    function = _function(text, "hooks.summary")
    if function is not None:
        return function
    run = _command(text, "hooks.summary", root)

    def supply(request: SummaryRequest) -> SummaryResult | None:
        printed = run(given=_request_json(request), seconds=None, cancel=request.cancel).strip()
        if not printed:
            return None
        try:
            answer = json.loads(printed)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("summary", ""), str):
            raise InputError('print JSON such as {"summary": "...", "details": {}} or {"cancel": true}, or nothing')
        return SummaryResult(
            text=answer.get("summary", ""), details=answer.get("details") or {}, cancel=answer.get("cancel") is True
        )

    supply.__name__ = text
    return supply


def _function(text: str, key: str) -> Callable[..., Any] | None:
    """Import the function that a setting names as `module:name`; None where the setting is a command."""
    found = _FUNCTION.fullmatch(text.strip())
    if found is None:
        return None
    try:
        return getattr(import_module(found[1]), found[2])  # type: ignore[no-any-return]
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"{text} cannot be imported: {error}", source="settings", key=key) from error


def _command(text: str, key: str, root: Path) -> Callable[..., str]:
    try:
        program, *arguments = shlex.split(text)
    except ValueError as error:
        raise SettingsError(f"{text!r} is not a command: {error}", source="settings", key=key) from error
    command = Command(os.path.expanduser(program), root, environment(os.environ))  # noqa: PTH111 - a name, not a path
    return lambda **options: command.run(*arguments, **options)


def _json(event: Compacting | Compacted) -> bytes:
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
        **json.loads(_json(request.event)),
        "event": "session_before_compact",
        "customInstructions": request.instructions,
        "messagesToSummarize": messages,
        "turnPrefixMessages": providers.render([item.message for item in plan.prefix], "pi"),
        "previousSummary": plan.previous,
        "isSplitTurn": plan.splits_turn,
        "fileOps": {"readFiles": plan.activity.read, "modifiedFiles": plan.activity.modified},
    }
    return json.dumps(data, ensure_ascii=False, default=str).encode("utf-8", "replace")
