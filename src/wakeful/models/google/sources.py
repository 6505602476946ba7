"""Sources of Gemini's answers: grounding, pages that were read, and recited texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from ...types.content import Citation, ServerTool
from .tools import VENDOR

__all__ = ["Sources"]

_READ = "URL_RETRIEVAL_STATUS_SUCCESS"


class Sources:
    """The sources of one answer. Later metadata replace earlier ones, which they repeat."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._grounding: dict[str, Any] = {}
        self._pages: dict[str, Any] = {}
        self._recited: list[Mapping[str, Any]] = []

    def add_text(self, text: str) -> None:
        """Note the text, in whose bytes the vendor counts spans."""
        self._texts.append(text)

    def add(self, candidate: Mapping[str, Any]) -> None:
        """Read the metadata of a candidate."""
        grounding: dict[str, Any] = candidate.get("groundingMetadata") or {}
        self._grounding |= {name: value for name, value in grounding.items() if value}
        read: dict[str, Any] = candidate.get("urlContextMetadata") or {}
        self._pages |= {page.get("retrievedUrl") or "": page for page in read.get("urlMetadata") or ()}
        cited: Mapping[str, Any] = candidate.get("citationMetadata") or {}
        self._recited += [
            one for one in cited.get("citations") or cited.get("citationSources") or () if one not in self._recited
        ]

    @property
    def searches(self) -> int:
        """The number of searches, which Google bills by the query."""
        return len(self._grounding.get("webSearchQueries") or ())

    def end(self) -> Iterator[ServerTool | Citation]:
        """The tools that found the sources, and the citations."""
        chunks: list[Mapping[str, Any]] = self._grounding.get("groundingChunks") or []
        sources = [source for chunk in chunks if (source := _source_of(chunk)) is not None]
        if queries := [*(self._grounding.get(name) or () for name in ("webSearchQueries", "imageSearchQueries"))]:
            found = [query for some in queries for query in some]
            if found:
                results = [{key: value for key, value in one.items() if key != "raw"} for one in sources]
                yield ServerTool("google_search", "web_search", {"queries": found}, results, vendor=VENDOR)
        if self._pages:
            pages = [*self._pages.values()]
            status: Literal["done", "failed"] = (
                "done" if any(page.get("urlRetrievalStatus") == _READ for page in pages) else "failed"
            )
            yield ServerTool("url_context", "web_fetch", {"urls": [*self._pages]}, pages, status, VENDOR)
        yield from self._citations([_source_of(chunk) for chunk in chunks])

    def _citations(self, sources: list[Any]) -> Iterator[Citation]:
        text = "".join(self._texts)
        spans = _Spans(text)
        named: set[int] = set()
        for support in self._grounding.get("groundingSupports") or ():
            segment: Mapping[str, Any] = support.get("segment") or {}
            start, end = spans.of(segment.get("startIndex"), segment.get("endIndex"), segment.get("text"))
            for index in support.get("groundingChunkIndices") or ():
                if 0 <= index < len(sources) and (source := sources[index]) is not None:
                    named.add(index)
                    yield Citation(start=start, end=end, vendor=VENDOR, **source)
        for index, source in enumerate(sources):
            if index not in named and source is not None:
                yield Citation(vendor=VENDOR, **source)
        for one in self._recited:
            start, end = spans.of(one.get("startIndex"), one.get("endIndex"), None)
            yield Citation("url", start, end, one.get("uri"), one.get("title"), vendor=VENDOR, raw=dict(one))


def _source_of(chunk: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fields of a citation of a grounding chunk."""
    for name, value in chunk.items():
        one: dict[str, Any] = value or {}
        url = one.get("uri") or one.get("sourceUri")
        if name == "retrievedContext":
            source = one.get("documentName") or one.get("mediaId") or url
            page = {"page_number": one["pageNumber"]} if one.get("pageNumber") is not None else {}
            found: Mapping[str, Any] = one.get("ragChunk") or {}
            pages: Mapping[str, Any] = found.get("pageSpan") or {}
            ends = {"first_page": pages.get("firstPage"), "last_page": pages.get("lastPage")}
            page |= {name: number for name, number in ends.items() if number is not None}
            return {
                "kind": "document",
                "url": url,
                "title": one.get("title"),
                "source": source,
                "quote": one.get("text") or found.get("text"),
                "location": page,
                "raw": dict(chunk),
            }
        return {
            "kind": "url",
            "url": url,
            "title": one.get("title") or one.get("domain"),
            "source": one.get("placeId"),
            "quote": one.get("text"),
            "raw": dict(chunk),
        }
    return None


class _Spans:
    """Spans in characters of a text, from spans in its bytes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._bytes = text.encode(errors="surrogatepass")

    def of(self, start: int | None, end: int | None, quoted: str | None) -> tuple[int | None, int | None]:
        """The span in characters; `quoted` is the text that it should have, if the vendor repeats it."""
        if end is None:
            return None, None
        first, last = self._characters(start or 0), self._characters(end)
        if quoted and self._text[first:last] != quoted and (at := self._text.find(quoted)) >= 0:
            return at, at + len(quoted)  # Some models count characters, or from another part.
        return first, last

    def _characters(self, place: int) -> int:
        return len(self._bytes[: max(0, place)].decode(errors="ignore"))
