"""The client under test of the MCP conformance suite: an agent that makes the calls that a scenario wants.

The suite appends the address of its server. A question of the server is answered by another runtime on the same
store, as after a restart.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from wakeful import Agent, FunctionModel, ModelRequest, Runtime, call
from wakeful.extensions.mcp import MCP

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
VERSION: Any = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION") or "auto"
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")

_SAMPLES: dict[str, Any] = {"string": "x", "integer": 3, "number": 5, "boolean": True, "array": [], "object": {}}


def arguments_for(schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments that fit a plain schema."""
    found: dict[str, Any] = {}
    for name, part in (schema.get("properties") or {}).items():
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, dict) and "default" in part:
            found[name] = part["default"]
        else:
            found[name] = _SAMPLES.get(kind if isinstance(kind, str) else "string", "x")
    return found


def answer(request: ModelRequest) -> Any:
    """Make the calls of the scenario, or call every tool once; then finish."""
    if request.messages[-1].role == "tool" or not request.tools:
        return "done"
    wanted = CONTEXT.get("toolCalls")
    if wanted:
        return [call(f"mcp__suite__{each['name']}", **each["arguments"]) for each in wanted]
    return [call(spec.name, **arguments_for(spec.parameters)) for spec in request.tools]


def runtime(url: str, store: Path) -> Runtime:
    """One life of the client."""
    # The newest version is negotiated, as it is elsewhere.
    version = "auto" if VERSION == "2026-07-28" else VERSION
    source = MCP("suite", url=url, protocol=version, timeout=30, effects={"*": "idempotent"})
    return Runtime([Agent("client", model=FunctionModel(answer), tools=[source])], store=store)


async def main(url: str) -> None:
    """Run the scenario, with a restart for each question."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store.db"
        async with runtime(url, store) as first:
            result = await first.run("client", "go", thread="t")
        while result.tickets:
            async with runtime(url, store) as following:
                ticket = result.tickets[0]
                result = await following.resume(result.run_id, ticket.answer(arguments_for(ticket.schema or {})))
        print(result.text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
