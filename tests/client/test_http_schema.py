"""The HTTP API against its own OpenAPI document: no undocumented status, no reply that doesn't fit, no 5xx."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.stateful import run_state_machine_as_test
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from sockets import serve_in_thread
from wakeful import Agent, Runtime, ScriptedModel, call, tool
from wakeful.server import app

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = int(os.environ.get("WAKEFUL_EXAMPLES", "8"))


@tool(approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


def office(path: Path) -> Runtime:
    desk = Agent("desk", model=ScriptedModel(["Hello!"] * 10_000))
    asks = ScriptedModel([call("refund", order="A7"), "It is refunded."] * 10_000)
    return Runtime([desk, Agent("refunds", model=asks, tools=[refund])], store=path / "app.db")


def test_replies_fit_the_document(tmp_path: Path) -> None:
    """Ids, agents and names are real ones as often as random ones."""
    with serve_in_thread(lambda: app(office(tmp_path))) as url, httpx.Client(base_url=url) as http:
        known = _fill(http)
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        for found in schema.get_all_operations():
            operation = found.ok()
            _try(operation, known)


@pytest.mark.parametrize("steps", [6, pytest.param(30, marks=pytest.mark.long)])
def test_linked_calls_fit_the_document(tmp_path: Path, steps: int) -> None:
    """Runs, threads, tasks, schedules and keys that one call makes are what the next one is about."""
    with serve_in_thread(lambda: app(office(tmp_path))) as url:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")

        class Machine(schema.as_state_machine()):  # type: ignore[misc]
            def before_call(self, case: Any) -> None:
                _shorten(case)

            def validate_response(self, response: Any, case: Any, **_: Any) -> None:
                case.validate_response(response, checks=CHECKS)

        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=max(2, EXAMPLES // 4),
                stateful_step_count=steps,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )


def _fill(http: httpx.Client) -> dict[str, str]:
    """Make a run that is done, one that waits, pending input, a task, a schedule and a key."""
    http.post("/v1/runs", json={"agent": "desk", "input": "Hi", "thread": "done", "wait": 60}).raise_for_status()
    body = {"agent": "refunds", "input": "Refund A7", "thread": "waits", "wait": 60}
    run = http.post("/v1/runs", json=body).raise_for_status().json()
    queued = {"input": "more", "policy": "queue"}
    message = http.post("/v1/threads/waits/messages", json=queued).raise_for_status().json()
    task = http.post("/v1/tasks", json={"agent": "desk", "input": "Hi", "thread": "waits"}).raise_for_status()
    body = {"agent": "desk", "input": "Hi", "cron": "@daily"}
    http.put("/v1/schedules/daily", json=body).raise_for_status()
    key = http.post("/v1/keys", json={"name": "k", "scopes": ["user"]}).raise_for_status().json()
    return {
        "run": run["run_id"],
        "thread": "waits",
        "ticket": run["tickets"][0]["id"],
        "input": message["message_id"],
        "task": task.json()["id"],
        "name": "daily",
        "key": key["key"]["id"],
        "agent": "desk",
    }


def _try(operation: Any, known: dict[str, str]) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        if len(repr(case.body)) % 2:
            case.path_parameters = {name: known.get(name, value) for name, value in case.path_parameters.items()}
            if isinstance(case.body, dict) and "agent" in case.body:
                case.body["agent"] = "desk"
            if isinstance(case.query, dict) and "thread" in case.query:
                case.query["thread"] = known["thread"]
        _shorten(case)
        response = case.call(timeout=60)
        case.validate_response(response, checks=CHECKS)

    check()


def _shorten(case: Any) -> None:
    """Keep a request from waiting for a run, or for events that don't come."""
    if isinstance(case.body, dict) and "wait" in case.body:
        case.body["wait"] = 0
    query = case.query if isinstance(case.query, dict) else {}
    short = {"follow": "false", "wait": "0", "seconds": "0"}
    case.query = {**query, **{name: value for name, value in short.items() if name in query}}
    if case.path.endswith("/events"):
        case.query["follow"] = "false"
    if case.path == "/v1/watch":
        case.query["seconds"] = "0"
