"""Children: agents that a tool call runs and waits for."""

from __future__ import annotations

from ..errors import ToolError
from ..loop import Activation
from ..tools import ChildResult, ToolContext
from ..types.runs import BehaviourRequested, Failed, NaturalEnd, Stopped
from ._answering import cancel
from ._local import Dispatcher
from ._results import RunResult

__all__ = ["run_child"]


async def run_child(
    dispatch: Dispatcher, parent: Activation, context: ToolContext, agent_id: str, prompt: str
) -> ChildResult:
    """Run an agent as a child of a tool call: a thread and a state of its own, the parent's budget."""
    above = context.run
    if above.depth >= parent.rules.limits.depth:
        raise ToolError(
            f"agent {agent_id} can't be called here: runs are nested {above.depth} deep and the limit is "
            f"{parent.rules.limits.depth}"
        )
    act = dispatch.opener.child(parent, context, agent_id, prompt)
    children = parent.executor.children
    children[context.call_id] = children.get(context.call_id, 0) + 1
    try:
        await dispatch.drive(act, act.identity.thread_id)
    finally:
        children[context.call_id] -= 1
        run = act.view.run
        used = parent.view.run.descendants + run.usage + run.descendants
        parent.set_run(descendants=used, tree_calls=parent.view.tree.calls)
    if run.status == "waiting":
        await cancel(dispatch, run.id, "a delegate can't wait for a person")
        error = "it asked for a person's answer, and a delegate can't wait for one"
        return ChildResult(run.id, agent_id, "waiting", "", run.steps, error)
    result = dispatch.result(act)
    return ChildResult(run.id, agent_id, *_child_status(result), run.steps, _child_error(result))


def _child_status(result: RunResult) -> tuple[str, str]:
    match result.termination:
        case NaturalEnd() | BehaviourRequested():
            return "completed", result.text
        case Stopped() | Failed():
            return "failed", result.text
        case _:
            return "cancelled", result.text


def _child_error(result: RunResult) -> str | None:
    match result.termination:
        case NaturalEnd() | BehaviourRequested():
            return None
        case Stopped(policy, detail):
            return f"stopped: {policy}: {detail}"
        case Failed(_, message):
            return message
        case other:
            return f"{type(other).__name__.lower()}: {getattr(other, 'reason', '')}"
