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
from holdfast.compaction.events import Compacted, Compacting, Hook, Hooks, SummaryRequest, SummaryResult
from holdfast.errors import InputError, SettingsError
from holdfast_agent.settings import HookSettings
from holdfast_agent.shell import environment, run_program

_FUNCTION: Final = re.compile(r"([^\W\d][\w.]*):([^\W\d]\w*)")


def load_hooks(settings: HookSettings, *, root: Path) -> Hooks:
    """Load the hooks that the settings name. Commands run in the workspace."""
    seconds = settings.timeout_seconds
    make_before = partial(_make_listener, kind=Compacting, key="before_compaction", seconds=seconds, root=root)
    make_after = partial(_make_listener, kind=Compacted, key="after_compaction", seconds=seconds, root=root)
    listeners = [*map(make_before, settings.before_compaction), *map(make_after, settings.after_compaction)]
    summary = None
    if settings.summary:
        summary = _import(settings.summary, "summary") or _make_supplier(settings.summary, root)
    return Hooks(listeners=tuple(listeners), summary=summary)


def _make_listener(text: str, *, kind: type[Compacting | Compacted], key: str, seconds: int, root: Path) -> Hook:
    """Make a listener of a function or a command; it ignores events of the other kind."""
    function = _import(text, key)
    if function is None:
        run = _make_command(text, key, root)

        def function(event: Compacting | Compacted) -> None:
            run(stdin=json.dumps(_describe(event)).encode(), seconds=seconds)

    def listen(event: Compacting | Compacted) -> None:
        if isinstance(event, kind):
            function(event)

    listen.__name__ = text
    return listen


def _make_supplier(text: str, root: Path) -> Callable[[SummaryRequest], SummaryResult | None]:
    run = _make_command(text, "summary", root)

    def supply(request: SummaryRequest) -> SummaryResult | None:
        plan = request.plan
        data = {
            **_describe(request.event),
            "event": "session_before_compact",
            "customInstructions": request.instructions,
            "firstKeptEntryId": plan.first_kept.message.id if plan.first_kept else None,
            "tokensBefore": plan.tokens_before,
            "settings": {"reserveTokens": request.reserve_tokens},
            "messagesToSummarize": providers.render([item.message for item in (*plan.dropped, *plan.history)], "pi"),
            "turnPrefixMessages": providers.render([item.message for item in plan.prefix], "pi"),
            "previousSummary": plan.previous,
            "isSplitTurn": plan.splits_turn,
            "fileOps": {"readFiles": plan.activity.read, "modifiedFiles": plan.activity.modified},
        }
        sent = json.dumps(data, ensure_ascii=False, default=str).encode("utf-8", "replace")
        output = run(stdin=sent, cancel=request.cancel).strip()
        if not output:
            return None
        try:
            answer = json.loads(output)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("summary", ""), str):
            raise InputError('print JSON such as {"summary": "...", "details": {}} or {"cancel": true}, or nothing')
        cancel = answer.get("cancel") is True
        return SummaryResult(text=answer.get("summary", ""), details=answer.get("details") or {}, cancel=cancel)

    supply.__name__ = text
    return supply


def _import(text: str, key: str) -> Callable[..., Any] | None:
    """Import the function that a setting names as `module:name`; None if the setting is a command."""
    name = _FUNCTION.fullmatch(text.strip())
    if name is None:
        return None
    try:
        function: Callable[..., Any] = getattr(import_module(name[1]), name[2])
        return function  # noqa: TRY300 - the import may fail, and the attribute be missing
    except (ImportError, AttributeError) as error:
        message = f"{text} cannot be imported: {error}"
        raise SettingsError(message, source="settings", key=f"agent.hooks.{key}") from error


def _make_command(text: str, key: str, root: Path) -> Callable[..., str]:
    try:
        program, *arguments = shlex.split(text)
    except ValueError as error:
        message = f"{text!r} is not a command: {error}"
        raise SettingsError(message, source="settings", key=f"agent.hooks.{key}") from error
    command = (os.path.expanduser(program), *arguments)  # noqa: PTH111 - a name, not a path
    return partial(run_program, command, cwd=root, project=root, environ=environment(os.environ))


def _describe(event: Compacting | Compacted) -> dict[str, Any]:
    owner = {
        "sessionId": event.session,
        "agentId": event.agent,
        "project": event.project,
        "workspaceDir": event.workspace,
        "sessionKey": event.session_key,
        "messageProvider": event.message_provider,
        "messageCount": event.messages,
    }
    if isinstance(event, Compacting):
        more = {"event": "before_compaction", "compactingCount": event.summarised, "tokenCount": event.tokens}
    else:
        more = {"event": "after_compaction", "compactedCount": event.summarised, "tokenCount": event.tokens_after}
        more["tokensBefore"] = event.tokens_before
    return {**more, **owner}
