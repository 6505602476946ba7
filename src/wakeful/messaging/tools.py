"""The tools `send_message` and `recover_failed_messages`."""

from __future__ import annotations

from typing import Any, cast

from ..errors import InvalidArguments, ToolError
from ..tools import Tool, ToolContext, check_text
from ..types.calls import Effect
from ..types.mail import DeadLetter, Recipient
from ..types.requests import ToolSpec

__all__ = ["RecoverTool", "SendTool"]


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


_TO = {
    "oneOf": [
        _object("relation", relation={"const": "parent"}),
        _object("relation", "name", relation={"const": "child"}, name=_text("The task's id or name.")),
        _object(
            "relation",
            "thread_id",
            relation={"const": "agent"},
            thread_id=_text("The thread, or the address of a recipient elsewhere."),
            agent_id=_text("The agent that a new thread begins with."),
        ),
    ],
    "description": "The agent that you work for, one that works for you, or one on another thread.",
}


class SendTool(Tool):
    """`send_message`: write to another agent, in the commit of the call's result."""

    name = "send_message"
    description = (
        "Send a message to another agent. It isn't waited for; an answer comes as a message of its own. A status "
        "'failed' means that nothing was sent."
    )
    effect: Effect = "idempotent"
    is_async = True  # pyright: ignore[reportAssignmentType]
    spec = ToolSpec(name, description, _object("to", "message", to=_TO, message=_text("What to say.")))  # pyright: ignore[reportAssignmentType, reportIncompatibleVariableOverride]

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Validate the arguments; raises `InvalidArguments`."""
        if unknown := [name for name in arguments if name not in ("to", "message")]:
            raise InvalidArguments(f"unknown field {unknown[0]!r:.80}: send_message takes 'to' and 'message'")
        recipient = _recipient(arguments)
        message = arguments.get("message")
        if not isinstance(message, str):
            raise InvalidArguments(f"missing 'message'{_instead(arguments, 'message')}: give a text")
        try:
            check_text(message)
        except ToolError as error:
            raise InvalidArguments(str(error)) from error
        return {"to": recipient, "message": message}

    def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Send the message."""
        return _send(context, **arguments)

    def problems(self) -> list[str]:
        """No problems: the definition is fixed."""
        return []


async def _send(ctx: ToolContext, to: Recipient, message: str) -> dict[str, Any]:
    receipt = await ctx.send(to, message)
    if receipt.status == "failed":
        return {"message_id": "", "status": "failed", "error": receipt.error, "detail": receipt.detail}
    # The model reads this after the commit that delivers the message.
    return {"message_id": receipt.message_id, "status": "accepted"}


_WAYS = (
    'give {"relation": "parent"}, {"relation": "child", "name": "<a task\'s id or name>"} or '
    '{"relation": "agent", "thread_id": "<a thread>"}'
)


def _recipient(given: dict[str, Any]) -> Recipient:
    if not isinstance(given.get("to"), dict):
        raise InvalidArguments(f"missing 'to'{_instead(given, 'to')}: {_WAYS}")
    to = cast(dict[str, Any], given["to"])
    match to.get("relation"):
        case "parent":
            found = Recipient("parent")
        case "child":
            found = Recipient.child(_required(to, "name", "a task's id or name, which task_status lists"))
        case "agent":
            thread_id = _required(to, "thread_id", "the thread that the agent works on, or an address")
            found = Recipient.agent(thread_id, _optional(to, "agent_id"))
        case str(relation):
            raise InvalidArguments(f"unknown relation '{relation:.80}': {_WAYS}")
        case _:
            raise InvalidArguments(f"missing 'to.relation'{_instead(to, 'relation')}: {_WAYS}")
    if unknown := [name for name in to if name not in _FIELDS[found.relation]]:
        raise InvalidArguments(
            f"unknown field 'to.{unknown[0]:.80}' with the relation '{found.relation}': {_WAYS}"
        )
    return found


_FIELDS = {
    "parent": ("relation",),
    "child": ("relation", "name"),
    "agent": ("relation", "thread_id", "agent_id"),
}


def _required(to: dict[str, Any], name: str, what: str) -> str:
    value = to.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidArguments(f"{to['relation']} requires '{name}'{_instead(to, name)}: {what}")
    return value


def _optional(to: dict[str, Any], name: str) -> str | None:
    value = to.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidArguments(f"'to.{name}' is a text{_instead(to, name)}: leave it out, or give an agent's id")
    return value or None


def _instead(given: dict[str, Any], name: str) -> str:
    """The wrong value that was given, for an error."""
    return "" if given.get(name) is None else f", which is not {given[name]!r:.80}"


class RecoverTool(Tool):
    """`recover_failed_messages`: the dead letters of this thread."""

    name = "recover_failed_messages"
    description = (
        "Handle messages of yours that could not be delivered: list them, replay (try again) or clear (give up) "
        "all of them, or only those with some ids."
    )
    effect: Effect = "idempotent"

    async def run(self, ctx: ToolContext, action: str = "list", ids: list[str] | None = None) -> dict[str, Any]:
        """List, replay or clear dead letters.

        Args:
            action: list, replay or clear.
            ids: The messages' ids; all of them if left out.
        """
        if action not in ("list", "replay", "clear"):
            raise InvalidArguments(f"unknown action '{action:.80}': it is list, replay or clear")
        letters = [one for one in await ctx.mail.dead_letters() if ids is None or one.id in ids]
        if action == "list":
            return {"action": action, "count": len(letters), "messages": [_shown(one) for one in letters]}
        change = ctx.mail.replay if action == "replay" else ctx.mail.drop
        done = [one.id for one in letters if await change(one.id)]
        return {"action": action, "count": len(done)}


def _shown(one: DeadLetter) -> dict[str, Any]:
    return {
        "message_id": one.id,
        "to": one.to,
        "message": one.text[:2000],
        "attempts": one.attempts,
        "error": one.error.partition(": ")[0],  # The text of an exception is for operators.
    }
