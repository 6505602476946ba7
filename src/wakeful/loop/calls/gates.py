"""Gates: hooks and approvals that may block a call, suspend it, or supply its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import HookFailed, StoreError, quote
from ...plugins import Block, GateAnswer, GateTool, Supply, Suspend
from ...tools import ClientTool, Tool
from ...types.calls import Call, Ruling
from ...types.records import Grant, grant_prefix
from ...types.tickets import Approval, GrantScope
from ..activation import Activation
from ..commits import flush

__all__ = ["ask_gates"]

_RANK: dict[type[Any], int] = {type(None): 0, Supply: 1, Suspend: 2, Block: 3}


# The newest grants of each scope that count.
MAX_GRANTS = 200


async def ask_gates(
    act: Activation, call: Call, tool: Tool, arguments: dict[str, Any]
) -> tuple[GateAnswer, str, Ruling | None]:
    """The strongest answer of all gates, its author and its ruling: block beats suspend beats supply."""
    found: GateAnswer = None
    asked_by = ""
    ruling = call.ruling
    if act.agent.hooks["gate_tool"]:
        found, asked_by, ruling = await _ask_hooks(act, call, tool, arguments)
    if isinstance(tool, ClientTool):
        if found is None:
            found, asked_by = Suspend(f"{call.name} runs in the client", None, ("result",)), "client"
    elif (
        _RANK[type(found)] < _RANK[Suspend]
        and not _is_approved(call, "approval")
        and (who := _approval_for(tool, arguments)) is not None
    ):
        found, asked_by = Suspend(f"May {call.name} run?", approval=who), "approval"
    return found, asked_by, ruling


async def _ask_hooks(
    act: Activation, call: Call, tool: Tool, arguments: dict[str, Any]
) -> tuple[GateAnswer, str, Ruling | None]:
    await flush(act)
    ruling = call.ruling
    found: GateAnswer = None
    asked_by = ""
    for hook in act.agent.hooks["gate_tool"]:
        run = act.view.run
        ctx = GateTool(
            act.identity,
            run.steps,
            act.state.snapshot(),
            run.principal,
            act.env.registry.catalog,
            hook.config,
            act.env.deps.value,
        )
        ctx.call, ctx.arguments, ctx.tool, ctx.ruling = call, arguments, tool, None
        ctx.bind_grants(lambda: _load_grants(act))
        try:
            answer: GateAnswer = await hook.function(ctx)
        except StoreError:
            raise
        except Exception as error:
            raise quote(HookFailed, f"plugin {hook.plugin!r} failed in gate_tool", error) from error
        _check_answer(hook.plugin, answer, ctx)
        ruling = ctx.ruling or ruling
        if isinstance(answer, Suspend) and not answer.again and _is_approved(call, hook.plugin):
            continue
        if _RANK[type(answer)] > _RANK[type(found)]:
            found, asked_by = answer, hook.plugin
    act.now = act.clock.now()
    return found, asked_by, ruling


async def _load_grants(act: Activation) -> Sequence[Grant]:
    """The grants that count for the run: those of the run, the thread, the agent and the user."""
    run, now = act.view.run, act.clock.now()
    owners: dict[GrantScope, str] = {"run": run.id, "thread": run.thread_id, "agent": run.agent_id}
    if run.principal is not None:
        owners["user"] = run.principal.id
    found: list[Grant] = []
    for scope, scope_id in owners.items():
        rows = await act.env.store.records(Grant, prefix=grant_prefix(scope, scope_id), limit=MAX_GRANTS)
        found += [
            row
            for row in rows
            if row.counts(now) and (row.scope, row.scope_id, row.agent_id) == (scope, scope_id, run.agent_id)
        ]
    return found


def _check_answer(plugin: str, answer: Any, ctx: GateTool) -> None:
    if type(answer) not in _RANK:
        raise HookFailed(
            f"the gate of plugin {plugin!r} answered {answer!r:.80}; return None to allow the call, or "
            "ctx.block(...), ctx.suspend(...) or ctx.supply(...)"
        )
    if ctx.command:
        raise HookFailed(
            f"the gate of plugin {plugin!r} wrote something; a gate may be asked many times and only answers: "
            "write in before_tool"
        )


def _is_approved(call: Call, asked_by: str) -> bool:
    return any(d.asked_by == asked_by and d.verdict == "approve" for d in call.decisions)


def _approval_for(tool: Tool, arguments: dict[str, Any]) -> Approval | None:
    try:
        return tool.approval_for(arguments)
    except Exception as error:
        raise quote(HookFailed, f"the approval rule of tool {tool.spec.name!r} failed", error) from error
