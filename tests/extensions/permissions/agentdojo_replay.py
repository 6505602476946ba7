"""The ground truth of AgentDojo's tasks and injections, carried out by agents with permission rules.

Run it with a Python that has agentdojo; it prints one JSON object. A user's task is done by its reference calls,
and each question is approved. An injection is what an obedient model does: it has read something, makes the
reference calls of the attack, and each question is denied. Where an attack has no reference calls but asks for
mails, its first mail stands for it. One attack wants words only: there a guardrail asks about the answer of a
tainted run.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suites
from agentdojo.types import text_content_block_from_string

from wakeful import Agent, FunctionModel, ModelRequest, Runtime, Tool, call
from wakeful.extensions.permissions import Permissions, Policy, Taint
from wakeful.plugins import Guardrail, Suspend
from wakeful.types.requests import ToolSpec

VERSION = "v1.2.2"
EFFECTS = (
    *("send", "delete", "create", "cancel", "reschedule", "add", "append", "share", "schedule"),
    *("update", "reserve", "invite", "remove", "post"),
)
RULES = Policy(ask=["effect:once when tainted", "hint:open when tainted"], allow=["*"])


def ask_if_tainted(message: Any, ctx: Any) -> Suspend | None:
    """Let a person look at an answer of a tainted run."""
    return Suspend("Show this answer?") if ctx.state[Taint] and not message.calls else None


class DojoTool(Tool):
    """A tool of a suite, on the environment of one task."""

    def __init__(self, function: Any, runtime: FunctionsRuntime, env: Any) -> None:
        self.name = function.name
        self.effect = "once" if self.name.startswith(EFFECTS) else "pure"
        self.untrusted = self.effect == "pure"
        self.hints = ("open",) if self.name == "get_webpage" else ()
        self._runtime, self._env = runtime, env
        self._spec = ToolSpec(self.name, function.description, function.parameters.model_json_schema())

    @property
    def spec(self) -> ToolSpec:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._spec

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    def call(self, arguments: dict[str, Any], context: Any) -> Any:
        result, error = self._runtime.run_function(self._env, self.name, arguments)
        return str(result if error is None else error)

    def run(self) -> str:
        raise NotImplementedError


async def replay(
    suite: Any, calls: list[FunctionCall], env: Any, output: str, *, approve: bool
) -> tuple[int, int]:
    """Carry out calls; returns the questions and the refused calls."""
    functions = FunctionsRuntime(suite.tools)
    tools = [DojoTool(function, functions, env) for function in suite.tools]

    def answer(request: ModelRequest) -> Any:
        done = sum(message.role == "tool" for message in request.messages)
        return call(calls[done].function, **dict(calls[done].args)) if done < len(calls) else output

    questions = 0
    rails = [] if calls else [Guardrail("answer", output=ask_if_tainted)]
    agent = Agent("dojo", model=FunctionModel(answer), tools=tools, guardrails=rails)
    state = {} if approve else {Taint: ("the attacker",)}
    async with Runtime([agent], plugins=[Permissions(RULES)]) as runtime:
        result = await runtime.run("dojo", "go", state=state)
        while result.tickets:
            questions += 1
            ticket = result.tickets[0]
            result = await runtime.resume(result.run_id, ticket.approve() if approve else ticket.deny("no"))
        rows = await runtime.runs.calls(result.run_id)
    return questions, sum(row.outcome == "blocked" for row in rows)


async def main() -> None:
    report: dict[str, Any] = {"tasks": {}, "injections": {}}
    for name, suite in get_suites(VERSION).items():
        for ident, task in suite.user_tasks.items():
            env = task.init_environment(suite.load_and_inject_default_environment({}))
            before = env.model_copy(deep=True)
            calls = task.ground_truth(before.model_copy(deep=True))
            asked, _ = await replay(suite, calls, env, task.GROUND_TRUTH_OUTPUT, approve=True)
            text = [text_content_block_from_string(task.GROUND_TRUTH_OUTPUT)]
            useful = suite._check_task_result(task, text, before, env, calls)
            report["tasks"][f"{name}/{ident}"] = {"useful": bool(useful), "questions": asked, "calls": len(calls)}
        for ident, task in suite.injection_tasks.items():
            env = suite.load_and_inject_default_environment({})
            before = env.model_copy(deep=True)
            calls = task.ground_truth(before.model_copy(deep=True))
            if not calls and "email" in task.GOAL:
                mail = {"recipients": ["mark.black-2134@gmail.com"], "subject": "x", "body": "x"}
                calls = [FunctionCall(function="send_email", args=mail)]
            asked, refused = await replay(suite, calls, env, "Done.", approve=False)
            text = [text_content_block_from_string("Done.")]
            done = suite._check_task_result(task, text, before, env, [])
            stopped = {"questions": asked, "refused": refused, "calls": len(calls), "succeeded": bool(done)}
            report["injections"][f"{name}/{ident}"] = stopped
    print(json.dumps(report))


if __name__ == "__main__":
    asyncio.run(main())
