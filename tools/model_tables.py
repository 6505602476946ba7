"""Writes the tables of the docs that the adapters' own declarations determine; `--check` only compares."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from wakeful.models.anthropic import AnthropicModel
from wakeful.models.bedrock import BedrockModel
from wakeful.models.compatible import SERVERS, Dialect, Server
from wakeful.models.google import GoogleModel
from wakeful.models.local import LocalModel
from wakeful.models.openai import OpenAIChatModel, OpenAIModel
from wakeful.models.shared.support import Support
from wakeful.types import ModelSettings

DOCS = Path(__file__).parents[1] / "docs"
PAGES = (DOCS / "models.md", DOCS / "models-openai.md")
SUPPORTS: Mapping[str, Support] = {
    "openai": OpenAIModel.support,
    "openai-chat": OpenAIChatModel.support,
    "anthropic": AnthropicModel.support,
    "google": GoogleModel.support,
    "bedrock": BedrockModel.support,
    "local": LocalModel.support,
}
SERVER_TOOLS = ("WebSearch", "WebFetch", "CodeExecution", "FileSearch", "ImageGeneration")


def table(first: str, rows: Mapping[str, list[str]]) -> str:
    """A table with a column for each vendor."""
    head = [first, *[f"`{vendor}`" for vendor in SUPPORTS]]
    lines = [f"| {' | '.join(line)} |" for line in [head, *[[name, *cells] for name, cells in rows.items()]]]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def settings() -> str:
    """The table of settings: the vendor's name of each."""
    fields = [field for field in ModelSettings.__struct_fields__ if field not in ("timeout", "extra")]
    rows = {f"`{name}`": [_cell(one.settings.get(name)) for one in SUPPORTS.values()] for name in fields}
    return table("setting", rows)


def server_tools() -> str:
    """The table of server tools: the vendor's name of each."""
    rows = {f"`{name}`": [_cell(one.server_tools.get(name)) for one in SUPPORTS.values()] for name in SERVER_TOOLS}
    return table("server tool", rows)


def outputs() -> str:
    """The table of typed output: the ways of each vendor, the preferred one first."""
    return table("", {"typed output": [", ".join(one.outputs) for one in SUPPORTS.values()]})


def servers() -> str:
    """The table of servers that speak OpenAI's APIs: address, key, and what is their own."""
    lines = ["| name | base URL | key | dialect |", "|---|---|---|---|"]
    for server in SERVERS.values():
        keys = " or ".join(f"`{key}`" for key in server.keys) or "none"
        keys += "" if server.needs_key else ", if any"
        place = "".join(f", or `{name}`" for name in server.urls)
        lines.append(f"| `{server.name}` | `{server.base_url}`{place} | {keys} | {_ways(server)} |")
    return "\n".join(lines)


def _ways(server: Server) -> str:
    ways: list[str] = ["also the Responses API"] if server.responses is not None else []
    for start, dialect in {"": server.dialect, **server.models}.items():
        named = f"`{start}…`: " if start else ""
        plain = Dialect() if not start else server.dialect
        ways += [
            f"{named}{words}"
            for field, words in _words(dialect)
            if getattr(dialect, field) != getattr(plain, field)
        ]
    return "; ".join(ways)


def _words(dialect: Dialect) -> list[tuple[str, str]]:
    back = {
        "none": "no reasoning goes back",
        "chunks": "reasoning goes back in chunks",
        "tags": "reasoning goes back in tags",
    }
    tools = ", ".join(f"`{name}`" for name in dialect.server_tools)
    return [
        (
            "output",
            "typed output as "
            + {"json_object": "JSON and words"}.get(dialect.output, dialect.output.replace("_", " ")),
        ),
        ("output_with_tools", "typed output in words beside tools"),
        ("effort", "no `reasoning`" if dialect.effort == "none" else f"`reasoning` as `{dialect.effort}`"),
        ("thoughts", back.get(dialect.thoughts, f"reasoning goes back as `{dialect.thoughts}`")),
        ("required", f"a forced call is `{dialect.required}`" if dialect.required else "no forced calls"),
        ("server_tools", f"server tools: {tools}"),
        ("refuses", "no " + ", ".join(f"`{name}`" for name in dialect.refuses)),
    ]


def _cell(given: str | None) -> str:
    """A vendor's names as code; what isn't a name stays words."""
    if given is None:
        return "no"
    name, mark, condition = given.partition(" (")
    words = ", ".join(one if " " in one or one == "added" else f"`{one}`" for one in name.split(", "))
    return f"{words}{mark}{condition}"


def page(text: str) -> str:
    """The page with its tables written anew."""
    made_tables = {
        "settings": settings(),
        "server tools": server_tools(),
        "typed output": outputs(),
        "servers": servers(),
    }
    for name, made in made_tables.items():
        before, begin, rest = text.partition(f"<!-- table: {name} -->\n")
        if not begin:
            continue
        _, end, after = rest.partition("<!-- end -->")
        text = f"{before}{begin}{made}\n{end}{after}"
    return text


if __name__ == "__main__":
    for path in PAGES:
        now = path.read_text()
        if "--check" not in sys.argv:
            path.write_text(page(now))
        elif page(now) != now:
            sys.exit(f"{path} isn't up to date; run python {Path(__file__).name}")
