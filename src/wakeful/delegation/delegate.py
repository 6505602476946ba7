"""The tool that delegates work to another agent, in the foreground or in the background."""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from ..agents import Agent, Delegate, encode_input, input_shape
from ..errors import InvalidArguments, InvalidInput, ToolError
from ..tools import ChildRequest, ChildResult, Tool, ToolContext, ToolResult
from ..tools.checks import check_task_name
from ..tools.schema.wording import format_names, format_problems
from ..types.calls import Effect
from ..types.messages import parse_input, user_message
from ..types.requests import ToolSpec

__all__ = ["DelegateTool"]

_PROMPT = {"type": "string", "description": "The whole task; the agent sees nothing else of this conversation."}
_OPTIONS: dict[str, dict[str, Any]] = {
    "background": {
        "type": "boolean",
        "default": False,
        "description": "Don't wait: go on at once, and be told when it is done.",
    },
    "name": {"type": "string", "description": "What to call work in the background, to find it again."},
    "fork_context": {
        "type": "boolean",
        "default": False,
        "description": "Show the agent this conversation before the task.",
    },
}


class DelegateTool(Tool):
    """`agent_run_<id>`, for each agent in `delegates`. A repeated call finds the child that it started."""

    effect: Effect = "idempotent"
    is_delegation = True
    is_async = True  # pyright: ignore[reportAssignmentType]

    def __init__(self, agent: Agent, how: Delegate) -> None:
        self.agent_id = agent.id
        self.name = f"agent_run_{agent.id}"
        about = f": {agent.description}" if agent.description else "."
        self.description = f"Give a task to the agent {agent.id}{about}"
        self._how = how
        self._shape = input_shape(agent)
        self._options = ["background", "name"] * how.background + ["fork_context"] * how.fork
        self._field = "prompt" if self._shape is None else "input"
        self._fields = frozenset([self._field, *self._options])

    @cached_property
    def spec(self) -> ToolSpec:
        """The name, description and parameters for the model."""
        task = {"prompt": _PROMPT} if self._shape is None else {"input": dict(self._shape.schema)}
        properties = {**task, **{name: _OPTIONS[name] for name in self._options}}
        schema: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            "required": list(task),
            "additionalProperties": False,
        }
        if "input" in task and (defs := cast(dict[str, Any], task["input"]).pop("$defs", None)) is not None:
            schema["$defs"] = defs
        return ToolSpec(self.name, self.description, schema)

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Validate the arguments; raises `InvalidArguments`."""
        self._check_names(arguments)
        for name in self._options:
            kind = str if name == "name" else bool
            if name in arguments and not isinstance(arguments[name], kind):
                raise InvalidArguments(f"{name} must be a {'string' if kind is str else 'boolean'}")
        if "name" in arguments:
            try:
                check_task_name(arguments["name"])
            except InvalidInput as error:
                raise InvalidArguments(str(error)) from None
        return {**arguments, "prompt": self._prompt(arguments)}

    def _check_names(self, arguments: dict[str, Any]) -> None:
        """Report all wrong names at once, in the words of tools with a signature."""
        if self._field in arguments and arguments.keys() <= self._fields:
            return
        problems: list[tuple[str, str]] = []
        if unknown := [name for name in arguments if name not in self._fields]:
            expected = ", ".join([self._field, *self._options])
            problems.append(("$", f"unknown {format_names(unknown)} (expected: {expected})"))
        if self._field not in arguments:
            problems.append(("$", f"missing required {format_names([self._field])}"))
        raise InvalidArguments(format_problems(problems, self.spec.parameters))

    def _prompt(self, arguments: dict[str, Any]) -> str:
        value = arguments[self._field]
        if self._shape is not None:
            try:
                return _checked(encode_input(self._shape, value))
            except InvalidArguments as error:
                raise InvalidArguments(f"input: {error}") from None
        if not isinstance(value, str):
            raise InvalidArguments("prompt must be a string")
        if not value.strip():
            raise InvalidArguments("prompt must not be empty")
        return _checked(value)

    def child_request(self, arguments: dict[str, Any], now: int) -> ChildRequest:
        """The request for the child run."""
        made = arguments.get("request")
        if made is None:
            made = arguments["request"] = ChildRequest(
                self.agent_id,
                user_message(arguments["prompt"], at=now),
                self._how.durable,
                arguments.get("background", False),
                arguments.get("name"),
                arguments.get("fork_context", False),
            )
        return made

    def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Run the child."""
        return self._delegate(context, arguments)

    async def _delegate(self, ctx: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        request = arguments.get("request") or self.child_request(arguments, ctx.now)
        return self.child_result(await ctx.run_child(request))

    def child_result(self, child: ChildResult) -> ToolResult:
        """The result for the model: the answer, or the error."""
        if child.error is not None:
            error = ToolError(f"agent {self.agent_id} did not complete ({child.status}): {child.error}")
            error.kind = child.error_kind
            raise error
        return _shown(child)

    def problems(self) -> list[str]:
        """No problems of its own: the agent's definition is checked elsewhere."""
        return []


def _checked(prompt: str) -> str:
    try:
        parse_input(prompt)
    except InvalidInput as error:
        raise InvalidArguments(str(error)) from None
    return prompt


_EMPTY = ToolResult()


def _shown(child: ChildResult) -> ToolResult:
    agent_id, status, text = child.agent_id, child.status, child.text
    if status == "running":
        data: dict[str, Any] = {"agent_id": agent_id, "status": status, "task_id": child.task_id}
        text = f"{agent_id} works on it in the background as task {child.task_id}; you will be told."
    else:
        data = {"agent_id": agent_id, "status": status, "response": text, "steps": child.steps}
        if child.output is not None:
            data["output"] = msgspec.to_builtins(child.output, enc_hook=lambda v: v.model_dump(mode="json"))
    # Replacing fields of an empty result skips the validation of its constructor, which costs ten times as much.
    return replace(_EMPTY, data=data, message=text, metadata={"child_run_id": child.run_id})
