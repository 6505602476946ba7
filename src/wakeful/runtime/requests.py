"""New runs from the arguments of `run`, `start`, `stream` and `send`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..agents import Agent, Registry, convert_input
from ..dispatch import NewRun
from ..errors import ConfigurationError
from ..loop import Environment
from ..state import AnyKey
from ..tools import ClientTool
from ..types.content import Content
from ..types.ids import new_id
from ..types.inbox import Request
from ..types.messages import Message
from ..types.requests import ModelSettings
from ..types.runs import Principal, RunOptions
from .arguments import (
    check_client_tools,
    check_history,
    check_instance,
    check_request_id,
    check_settings,
    check_thread_id,
    duplicates_in,
    make_message,
)

__all__ = ["Input", "input_for", "new_run", "traced"]

# A text, content parts, or a value of the type that the agent declares as its `input`.
Input = str | Sequence[Content] | object


def input_for(registry: Registry, target: Any, given: Any) -> Any:
    """Input of an agent as text or content parts; other targets get it as it is."""
    if not isinstance(target, str) or target not in registry.agents:
        return given
    return convert_input(target, registry.resolve(target).input, given)


def new_run(
    registry: Registry,
    agent: str | Agent[Any],
    input: Input,
    thread: str | None,
    principal: Principal | None = None,
    settings: ModelSettings | None = None,
    client_tools: Sequence[ClientTool] = (),
    state: Mapping[AnyKey, Any] | None = None,
    request_id: str | Request | None = None,
    message_id: str | None = None,
    message_digest: str | None = None,
    history: Sequence[Message] = (),
) -> NewRun:
    """Check a request for a run, and assign it an id; without a thread, the thread's id is that of the run."""
    agent_id = agent.id if isinstance(agent, Agent) else agent
    resolved = registry.resolve(agent_id)
    content = input if type(input) is str else convert_input(agent_id, resolved.input, input)
    options = None
    if principal is not None or settings is not None or state is not None:
        check_instance(principal, Principal, "principal")
        check_settings(settings)
        check_instance(state, Mapping, "state")
    if settings is not None or client_tools:
        tools = check_client_tools(client_tools or ())
        problems = [problem for tool in tools for problem in tool.problems()]
        specs = tuple([tool.spec for tool in tools])
        if problems := problems or duplicates_in([spec.name for spec in specs]):
            raise ConfigurationError(problems)
        options = RunOptions(settings or ModelSettings(), specs)
    run_id = new_id()
    return NewRun(
        run_id=run_id,
        thread_id=run_id if thread is None else check_thread_id(thread),
        agent_id=agent_id,
        message=make_message(content, principal, message_id, message_digest),
        principal=principal,
        options=options,
        seed=_initial_state(registry, state) if state else {},
        request=None if request_id is None else check_request_id(request_id),
        history=check_history(history) if history else (),
    )


def traced(env: Environment, new: NewRun, *, detached: bool = False) -> NewRun:
    """The request with the trace context of the caller: as its parent, or `detached` as a link."""
    if env.tracer is None:
        return new
    return replace(new, trace=env.tracer.capture(detached=detached))


def _initial_state(registry: Registry, state: Mapping[AnyKey, Any]) -> dict[str, bytes]:
    seed: dict[str, bytes] = {}
    for key, value in state.items():
        registry.catalog.check_key(key)
        seed[key.name] = key.encode(value)
        key.decode(seed[key.name])
    return seed
