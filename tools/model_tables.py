"""Writes the tables of the docs that the adapters' own declarations determine; `--check` only compares."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib import import_module
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
WIRE = Path(__file__).parents[1] / "tests/wire"
# Features that the suite verifies for each vendor: the capability of its codec, if not all have it, and the test.
SUITE: Mapping[str, tuple[str, str]] = {
    "streamed text": ("", "test_text_is_streamed_in_chunks"),
    "tool calls": ("", "test_call_has_name_arguments_and_vendor_id"),
    "parallel calls": ("parallel", "test_parallel_calls_are_separate"),
    "partial arguments": ("partial_arguments", "test_arguments_are_streamed_in_chunks"),
    "reasoning": ("reasoning", "test_reasoning_precedes_the_text"),
    "signed reasoning goes back": ("signed_reasoning", "test_reasoning_is_sent_back_in_a_tool_turn"),
    "usage with caches": ("", "test_usage_includes_cached_and_reasoning_tokens"),
    "images": ("images", "test_media_is_sent_or_refused_by_name"),
    "audio": ("audio", "test_media_is_sent_or_refused_by_name"),
    "video": ("video", "test_media_is_sent_or_refused_by_name"),
    "documents": ("documents", "test_media_is_sent_or_refused_by_name"),
    "images in results": ("images_in_results", "test_image_in_a_result_reaches_the_model"),
    "typed output": ("", "test_typed_output_uses_the_vendors_feature"),
    "filtered answers are errors": ("filtered_stop", "test_filtered_answer_is_an_error"),
    "errors map to ours": ("", "test_fault_maps_to_its_error_without_sdk_retries"),
    "errors within a stream": ("errors_in_stream", "test_error_within_a_stream_maps_to_its_error"),
    "a cut stream is no answer": ("", "test_stream_cut_at_any_byte_is_broken_or_complete"),
}
# Features with a test of each vendor's own.
OWN: Mapping[str, Mapping[str, str]] = {
    "server tools are content": {
        "openai": "test_server_tool_is_kept_and_sent_back",
        "vllm": "test_groq_executed_tools_are_server_tools",
        "anthropic": "test_server_tool_block_is_read",
        "google": "test_code_execution_is_a_server_tool",
        "bedrock": "test_system_tool_is_content_with_citations",
    },
    "citations are content": {
        "openai": "test_annotations_are_citations_of_the_whole_text",
        "openai-chat": "test_url_citations_have_their_span",
        "vllm": "test_search_results_are_citations_once",
        "anthropic": "test_citation_has_source_and_location",
        "google": "test_grounding_is_a_search_with_citations",
        "bedrock": "test_citation_has_its_location",
    },
    "every member of the SDK's unions": {
        "openai": "test_every_item_of_responses_is_content",
        "openai-chat": "test_every_field_of_a_chat_delta_is_content",
        "anthropic": "test_every_block_of_anthropic_is_content",
        "google": "test_every_part_of_gemini_is_content",
        "bedrock": "test_every_delta_of_converse_is_content",
    },
    "odd values are read or typed errors": {
        "openai": "test_any_odd_value_of_a_response_is_read_or_an_error",
        "openai-chat": "test_any_odd_value_is_read_or_a_typed_error",
        "vllm": "test_any_odd_value_is_read_or_a_typed_error",
        "anthropic": "test_every_mutation_is_read_or_a_typed_error",
        "google": "test_every_mutation_is_read_or_a_typed_error",
        "bedrock": "test_every_mutation_is_read_or_a_typed_error",
    },
}
# What is verified for every server of the table in models-openai.md.
OF_SERVERS = (
    "test_server_answers_are_read",
    "test_server_gets_a_valid_tool_turn",
    "test_server_gets_settings_or_refuses_them",
    "test_server_is_asked_for_typed_output",
    "test_server_gets_back_only_its_own_reasoning",
)
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


def verified() -> str:
    """The matrix of features and vendors, with the tests that verify them."""
    sys.path.insert(0, str(WIRE))
    codecs = {codec.name: codec.can for codec in import_module("wire_vendors").VENDORS}
    sys.path.remove(str(WIRE))
    places: dict[str, list[str]] = {}
    for path in sorted(WIRE.glob("test_*.py")):
        for name in re.findall(r"^async def (test_\w+)", path.read_text(), re.MULTILINE):
            places.setdefault(name, []).append(path.name)
    heads = ["other servers" if name == "vllm" else f"`{name}`" for name in codecs]
    lines = [f"| feature | {' | '.join(heads)} | test |", "|" + "---|" * (len(codecs) + 2)]

    def add(feature: str, has: Mapping[str, bool], tests: Mapping[str, str]) -> None:
        cells = ["yes" if has[name] else "no" for name in codecs]
        files = {
            test: next((file for file in places[test] if of in file), places[test][0])
            for test, of in tests.items()
        }
        links = ", ".join(f"[`{test[5:]}`](../tests/wire/{file})" for test, file in files.items())
        lines.append(f"| {feature} | {' | '.join(cells)} | {links} |")

    for feature, (ability, test) in SUITE.items():
        add(feature, {name: not ability or getattr(can, ability) for name, can in codecs.items()}, {test: ""})
    for feature, tests in OWN.items():
        add(feature, {name: name in tests for name in codecs}, {test: name for name, test in tests.items()})
    every = dict.fromkeys(codecs, False) | {"vllm": True}
    add(f"each of the {len(SERVERS)} named servers", every, dict.fromkeys(OF_SERVERS, ""))
    return "\n".join(lines)


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
    """The page with updated tables."""
    made_tables = {
        "settings": settings(),
        "server tools": server_tools(),
        "typed output": outputs(),
        "servers": servers(),
        "verified": verified(),
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
