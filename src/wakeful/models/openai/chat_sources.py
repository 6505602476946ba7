"""Citations and server tools in Chat Completions, in the fields of each server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ...types.content import Citation, ServerTool
from ..protocol import Chunk, PartChunk

__all__ = ["SourceReader"]

# Results of a search: Perplexity's; Z.ai's; Alibaba's.
_RESULTS = ("search_results", "web_search", "search_info")
# Groq's names of its tools.
_TOOLS = {
    "search": "web_search",
    "browser_search": "web_search",
    "visit": "web_fetch",
    "browser_automation": "web_fetch",
    "python": "code_execution",
    "code_interpreter": "code_execution",
}


class SourceReader:
    """Collects the sources of one answer. Servers repeat them with each chunk."""

    __slots__ = ("_found", "_seen", "_vendor")

    def __init__(self, vendor: str) -> None:
        self._vendor = vendor
        self._seen: list[Any] = []
        # The results of searches, by URL, in the order in which the text counts them.
        self._found: dict[str, dict[str, Any]] = {}

    def read_event(self, event: Mapping[str, Any]) -> None:
        """Read the sources beside the choices."""
        for url in _items(event.get("citations")):
            if isinstance(url, str):
                self._found.setdefault(url, {})
            elif isinstance(url, dict):
                self._add(cast(dict[str, Any], url))
        for name in _RESULTS:
            value: Any = event.get(name)
            if isinstance(value, dict):
                value = cast(dict[str, Any], value).get("search_results")
            for result in _items(value):
                if isinstance(result, dict):
                    self._add(cast(dict[str, Any], result))

    def read_delta(self, delta: Mapping[str, Any], chunks: list[Chunk]) -> None:
        """Read the annotations of a delta, and the tools that the server ran."""
        for raw in _items(delta.get("annotations")):
            if isinstance(raw, dict) and raw not in self._seen:
                self._seen.append(raw)
                if (citation := _annotation(cast(dict[str, Any], raw), self._vendor)) is not None:
                    chunks.append(PartChunk(citation))
        for place, tool in enumerate(_items(delta.get("executed_tools"))):
            if isinstance(tool, dict):
                chunks.append(PartChunk(_server_tool(cast(dict[str, Any], tool), place, self._vendor)))

    def end(self) -> list[Chunk]:
        """The results of searches, as citations without a span."""
        return [
            PartChunk(
                Citation(
                    "url",
                    url=url,
                    title=_text(raw, "title"),
                    source=str(number),
                    quote=_text(raw, "snippet", "content"),
                    vendor=self._vendor,
                    raw=raw,
                )
            )
            for number, (url, raw) in enumerate(self._found.items(), 1)
        ]

    def _add(self, result: dict[str, Any]) -> None:
        if url := _text(result, "url", "link"):
            self._found[url] = result


def _annotation(raw: dict[str, Any], vendor: str) -> Citation | None:
    kind = raw.get("type")
    fields: Any = raw.get(str(kind), raw)
    if kind != "url_citation" or not isinstance(fields, dict):
        return None  # OpenRouter also annotates parsed files.
    found = cast(dict[str, Any], fields)
    start, end = found.get("start_index"), found.get("end_index")
    is_span = isinstance(start, int) and isinstance(end, int)
    return Citation(
        "url",
        start if is_span else None,
        end if is_span else None,
        url=_text(found, "url"),
        title=_text(found, "title"),
        quote=_text(found, "content"),
        vendor=vendor,
        raw=raw,
    )


def _server_tool(tool: dict[str, Any], place: int, vendor: str) -> ServerTool:
    name, results = str(tool.get("name") or tool.get("type")), tool.get("search_results")
    result = {"output": tool.get("output"), "search_results": results, "code_results": tool.get("code_results")}
    result = {key: value for key, value in result.items() if value}
    return ServerTool(
        f"executed_{tool.get('index', place)}",
        _TOOLS.get(name, name),
        tool.get("arguments"),
        result or None,
        "done" if result else "running",
        vendor,
    )


def _items(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []


def _text(found: Mapping[str, Any], *names: str) -> str | None:
    return next((found[name] for name in names if isinstance(found.get(name), str) and found[name]), None)
