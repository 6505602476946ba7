"""A fixed set of tools, as a company's MCP servers have them, and queries with the tools that answer them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from wakeful import ClientTool

__all__ = ["QUERIES", "TOOLS", "toolbox"]

_DATA: dict[str, list[Any]] = msgspec.json.decode(Path(__file__).with_name("toolbox.json").read_bytes())
TOOLS: list[dict[str, Any]] = _DATA["tools"]
QUERIES: list[list[str]] = _DATA["queries"]


def toolbox() -> list[ClientTool]:
    """The tools, with a nested schema each."""

    def schema(parameters: dict[str, str]) -> dict[str, Any]:
        fields = {name: {"type": "string", "description": text} for name, text in parameters.items()}
        return {"type": "object", "properties": {"request": {"type": "object", "properties": fields}}}

    return [ClientTool(each["name"], each["description"], schema(each["parameters"])) for each in TOOLS]
