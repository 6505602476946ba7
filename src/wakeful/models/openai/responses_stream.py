"""Reading a Responses API answer: a stream of events, or one response."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

import msgspec
from msgspec import Struct

from ...errors import ContentFiltered
from ...types.content import Audio, Base64, Logprob, Logprobs, ServerTool
from ...types.events import StopReason
from ..protocol import (
    CallDeltaChunk,
    CallStartChunk,
    Chunk,
    PartChunk,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from ..shared.faults import parse_fault, to_error
from ..shared.reader import Reader
from ..shared.sse import DONE
from .logprobs import logprobs_of
from .responses_answers import phase_of
from .responses_items import call_signature, citation, client_call, images_of, is_search, server_tool, tool_id
from .usage import responses_usage

__all__ = ["ResponsesReader"]

# An event, an item or a response, as JSON. Whatever isn't as it should be breaks the stream.
Event = dict[str, Any]


class _Open(Struct, eq=False):
    """The streamed part of an output item. Texts and thoughts are known by the index of their part."""

    texts: set[Any] = set()
    starts: dict[Any, int] = {}
    annotations: list[Any] = []
    thoughts: set[Any] = set()
    summary: Any = None
    has_arguments: bool = False


def _index(event: Event) -> int:
    return event.get("output_index") or 0


def _id(item: Event) -> str:
    return str(item.get("call_id") or item.get("id") or "")


class ResponsesReader(Reader):
    """Reads one answer of `vendor`. If it must be `typed`, a refusal is an error.

    An item that wasn't streamed, or not in full, is read from its last event, or from the response at the end.
    With `runs_custom_tools` the vendor carries out calls of custom tools itself.
    """

    __slots__ = (
        "_audio",
        "_calls",
        "_done",
        "_ended",
        "_given",
        "_items",
        "_logprobs",
        "_moved",
        "_refusal",
        "_runs_custom_tools",
        "_size",
        "_tools",
        "_typed",
        "_vendor",
    )

    def __init__(self, model: str, vendor: str, typed: bool, *, runs_custom_tools: bool = False) -> None:
        super().__init__(model)
        self._vendor = vendor
        self._typed = typed
        self._runs_custom_tools = runs_custom_tools
        self._items: dict[Any, _Open] = {}
        # The ids of the calls by index; the complete items by index and by id, and how many they are.
        self._calls: dict[int, str] = {}
        # The arguments that a call had at its start.
        self._given: dict[int, Any] = {}
        self._done: set[Any] = set()
        self._ended = 0
        # The places of calls that share their index with an earlier one, by their ids.
        self._moved: dict[Any, int] = {}
        self._tools: dict[str, ServerTool] = {}
        self._refusal: list[str] = []
        self._audio: list[bytes] = []
        self._logprobs: list[Logprob] = []
        self._size = 0

    def is_answer(self, body: Mapping[str, Any]) -> bool:
        """Whether a JSON body is a response."""
        return body.get("object") == "response" or isinstance(body.get("output"), list)

    def read(self, event: Any) -> Sequence[Chunk]:
        """Convert an event, or a whole response."""
        if event is DONE:
            return ()
        if not isinstance(event, dict):
            raise self.broken(f"an event is no object ({event!r:.80})")
        found = cast(Event, event)
        kind = found.get("type")
        if kind == "response.output_text.delta":
            return self._text(found, found["delta"])
        if self._moved:
            found = self._with_place(found)
        if (reads := self._READS.get(str(kind))) is not None:
            return reads(self, found)
        if kind in ("error", "response.error") or (kind is None and found.get("error")):
            raise self._error(found)
        if kind is None and self.is_answer(found):
            return self._finish(found)
        return ()

    def end(self) -> Iterable[Chunk]:
        """Return log probabilities and the recording, if any; raises `ContentFiltered` for a typed refusal."""
        super().end()
        if self._refusal and self._typed:
            raise ContentFiltered(f"{self.model} refuses to answer: {''.join(self._refusal)}")
        chunks: list[Chunk] = []
        if self._logprobs:
            chunks.append(PartChunk(Logprobs(tuple(self._logprobs))))
        if self._audio:
            data = b64encode(b"".join(self._audio)).decode()
            chunks.append(PartChunk(Audio(Base64("audio/pcm;rate=24000", data))))
        return chunks

    def _with_place(self, event: Event) -> Event:
        item: Event = event.get("item") or {}
        place = self._moved.get(event.get("item_id") or item.get("id") or item.get("call_id"))
        return event if place is None else {**event, "output_index": place}

    def _str(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self.broken(f"a text is {value!r:.80}")
        return value

    def _open(self, event: Event) -> _Open:
        index = _index(event)
        found = self._items.get(index)
        if found is None:
            found = self._items[index] = _Open()
        return found

    def _text(self, event: Event, text: Any) -> Sequence[Chunk]:
        if not self._str(text):
            return ()
        part, opened = event.get("content_index"), self._open(event)
        if part not in opened.texts:
            opened.texts.add(part)
            opened.starts[part] = self._size
        self._size += len(text)
        return (TextChunk(text),)

    def _refuse(self, event: Event) -> Sequence[Chunk]:
        self._open(event).texts.add(event.get("content_index"))
        self._refusal.append(self._str(event["delta"]))
        if self._typed:
            return ()
        self._size += len(event["delta"])
        return (TextChunk(event["delta"]),)

    def _think(self, event: Event) -> Sequence[Chunk]:
        opened, chunks = self._open(event), list[Chunk]()
        part = event.get("summary_index", event.get("content_index"))
        if opened.thoughts and part != opened.summary:
            chunks += self._next_summary(event.get("item_id"))
        opened.thoughts.add(part)
        opened.summary = part
        if text := self._str(event["delta"]):
            chunks.append(ReasoningChunk(text))
        return chunks

    def _end_text(self, event: Event) -> Sequence[Chunk]:
        """Read a text from its last event, if the server sent no deltas of it."""
        part: Event = event.get("part") or event
        if event.get("content_index") in self._open(event).texts:
            return ()
        if text := part.get("refusal"):
            return self._refuse({**event, "delta": text})
        if part.get("type") == "reasoning_text":
            return self._end_thought(event)
        return self._text(event, part.get("text") or "")

    def _end_thought(self, event: Event) -> Sequence[Chunk]:
        """Read a thought from its last event, as `_end_text` does."""
        part: Event = event.get("part") or event
        seen, place = self._open(event).thoughts, event.get("summary_index", event.get("content_index"))
        return () if place in seen or not part.get("text") else self._think({**event, "delta": part["text"]})

    def _next_summary(self, ident: Any) -> Sequence[Chunk]:
        """End a part of a summary. The next one is set off, for readers who see both as one text."""
        return ReasoningChunk("", str(ident or ""), None, self._vendor), ReasoningChunk("\n\n")

    def _start_item(self, event: Event) -> Sequence[Chunk]:
        item, index = event["item"], _index(event)
        kind = item.get("type")
        if kind == "function_call":
            index = self._add_call(item, index)
            self._given[index] = item.get("arguments")
            return (CallStartChunk(index, self._str(item["name"]), _id(item), call_signature(item)),)
        if kind in ("message", "reasoning") or not item.get("id") or self._client_call(item) is not None:
            return ()
        return (PartChunk(server_tool(item, index, self._vendor, is_over=False)),)

    def _add_call(self, item: Event, index: int) -> int:
        """Note a call, and return its place: another one than `index` if an earlier call has that."""
        if index in self._calls:
            index = -len(self._calls)
            self._moved |= {item.get("id"): index, item.get("call_id"): index}
        self._calls[index] = _id(item)
        return index

    def _add_arguments(self, event: Event) -> Sequence[Chunk]:
        if _index(event) not in self._calls:
            raise self.broken("it has arguments for a tool call that never started")
        self._open(event).has_arguments = True
        return (CallDeltaChunk(_index(event), self._str(event["delta"])),)

    def _all_arguments(self, event: Event) -> Sequence[Chunk]:
        opened = self._open(event)
        if opened.has_arguments or _index(event) not in self._calls:
            return ()
        opened.has_arguments = True
        return (CallDeltaChunk(_index(event), self._str(event.get("arguments") or "")),)

    def _annotate(self, event: Event) -> Sequence[Chunk]:
        opened, raw = self._open(event), event["annotation"]
        if not isinstance(raw, dict) or raw in opened.annotations:
            return ()
        opened.annotations.append(raw)
        raw = cast(Event, raw)
        return (PartChunk(citation(raw, opened.starts.get(event.get("content_index"), self._size), self._vendor)),)

    def _add_audio(self, event: Event) -> Sequence[Chunk]:
        if event["type"] == "response.audio.delta":
            self._audio.append(b64decode(event["delta"]))
            return ()
        return (TextChunk(self._str(event["delta"])),)

    def _end_item(self, event: Event) -> Sequence[Chunk]:
        item, index = event["item"], _index(event)
        self._ended += 1
        self._done |= {index, item.get("id")} - {None}
        kind = item.get("type")
        if kind == "message":
            return self._end_message(item, event)
        if kind == "reasoning":
            return self._end_reasoning(item, event)
        if kind == "function_call":
            return self._end_call(item, event)
        images = [PartChunk(image) for image in images_of(item)]
        if (call := self._client_call(item)) is None:
            tool = self._tools[tool_id(item, index)] = server_tool(item, index, self._vendor, is_over=True)
            return (PartChunk(tool), *images)
        name, arguments = call
        index = self._add_call(item, index)
        signature = msgspec.json.encode({key: value for key, value in item.items() if key != "created_by"})
        text = msgspec.json.encode(arguments).decode()
        return (CallStartChunk(index, name, _id(item), signature.decode()), CallDeltaChunk(index, text))

    def _client_call(self, item: Event) -> tuple[str, dict[str, Any]] | None:
        is_run = self._runs_custom_tools and item.get("type") == "custom_tool_call"
        return None if is_run else client_call(item)

    def _end_message(self, item: Event, event: Event) -> Sequence[Chunk]:
        chunks: list[Chunk] = []
        parts: list[Event] = item.get("content") or []
        for place, part in enumerate(parts):
            at = {**event, "content_index": place}
            text = part.get("refusal") if part.get("type") == "refusal" else part.get("text")
            if not {place, None} & self._open(event).texts and text:
                is_refusal = part.get("type") == "refusal"
                chunks += self._refuse({**at, "delta": text}) if is_refusal else self._text(at, text)
            self._logprobs += logprobs_of(part.get("logprobs"))
            annotations: list[Event] = part.get("annotations") or []
            for raw in annotations:
                chunks += self._annotate({**at, "annotation": raw})
        if item.get("phase"):
            # Sent back with the text before it.
            chunks.append(ReasoningChunk("", None, phase_of(str(item["phase"])), self._vendor))
        return chunks

    def _end_reasoning(self, item: Event, event: Event) -> Sequence[Chunk]:
        chunks: list[Chunk] = []
        content: list[Any] = item.get("content") or []
        if None not in self._open(event).thoughts:
            for place, part in enumerate(item.get("summary") or content):
                at = {**event, "item_id": item.get("id"), "summary_index": place}
                chunks += self._end_thought({**at, "part": part})
        encrypted = item.get("encrypted_content")
        if not encrypted and content:
            # Open models return their reasoning itself, and want it back.
            encrypted = msgspec.json.encode({"content": content}).decode()
        chunks.append(
            ReasoningChunk("", str(item.get("id") or ""), str(encrypted) if encrypted else None, self._vendor)
        )
        return chunks

    def _end_call(self, item: Event, event: Event) -> Sequence[Chunk]:
        started: Sequence[Chunk] = ()
        if self._calls.get(_index(event)) not in (
            "",
            *[item[name] for name in ("call_id", "id") if item.get(name)],
        ):
            started = self._start_item(event)
            event = self._with_place(event)
        return (*started, *self._all_arguments({**event, "arguments": item.get("arguments")}))

    def _complete(self, event: Event) -> Sequence[Chunk]:
        return self._finish(event["response"])

    def _finish(self, response: Event) -> Sequence[Chunk]:
        chunks: list[Chunk] = []
        output: list[Event] = response.get("output") or []
        for index, item in enumerate(output):
            if (tool := self._tools.get(tool_id(item, index))) is not None:
                whole = server_tool(item, index, self._vendor, is_over=True)
                if whole != tool:  # The last event of a tool may lack its result.
                    chunks.append(PartChunk(whole))
            elif len(output) > self._ended and index not in self._done and item.get("id") not in self._done:
                chunks += self._end_item({"item": item, "output_index": index})
        for index, given in self._given.items():
            if given:
                chunks += self._all_arguments({"output_index": index, "arguments": given})
        usage: Any = response.get("usage")
        if isinstance(usage, dict):
            searches = sum(map(is_search, self._tools.values()))
            chunks.append(UsageChunk(responses_usage(cast(dict[str, Any], usage), searches)))
        status = response.get("status") or "completed"
        reason: StopReason = "tool_use" if self._calls else "end_turn"
        if status == "incomplete":
            details: Event = response.get("incomplete_details") or {}
            why = details.get("reason")
            if why == "content_filter":
                raise self.filtered("stopped the answer")
            reason = "max_tokens" if why == "max_output_tokens" else "unknown"
            if reason == "unknown" and not (self._items or self._done or self._calls):
                raise self.empty(str(why or status))
        elif response.get("error"):
            raise self._error(response)
        elif status != "completed":
            raise self.broken(f"the response is {status}")
        self.is_complete = True
        return (*chunks, StopChunk(reason))

    def _fail(self, event: Event) -> Sequence[Chunk]:
        response: Event = event.get("response") or {}
        found = response if response.get("error") else event
        if not any(found.get(name) for name in ("error", "message", "code")):
            raise self.broken(f"the response is {response.get('status') or event['type']}, and it doesn't say why")
        raise self._error(found)

    def _error(self, found: Event) -> Exception:
        error: Any = found.get("error")
        if not isinstance(error, dict):
            error = {name: found.get(name) for name in ("code", "message", "status") if found.get(name)}
        fields = {name: value for name, value in cast(dict[str, Any], error).items() if value is not None}
        return to_error(self.model, parse_fault(None, {"error": fields}))

    _READS: ClassVar[Mapping[str, Callable[..., Sequence[Chunk]]]] = {
        "response.output_item.added": _start_item,
        "response.output_item.done": _end_item,
        "response.function_call_arguments.delta": _add_arguments,
        "response.function_call_arguments.done": _all_arguments,
        "response.reasoning_summary_text.delta": _think,
        "response.reasoning_text.delta": _think,
        "response.refusal.delta": _refuse,
        "response.reasoning_summary_text.done": _end_thought,
        "response.reasoning_summary_part.done": _end_thought,
        "response.reasoning_text.done": _end_thought,
        "response.output_text.done": _end_text,
        "response.refusal.done": _end_text,
        "response.content_part.done": _end_text,
        "response.output_text.annotation.added": _annotate,
        "response.audio.delta": _add_audio,
        "response.audio.transcript.delta": _add_audio,
        "response.completed": _complete,
        "response.incomplete": _complete,
        "response.done": _complete,
        "response.failed": _fail,
        "response.cancelled": _fail,
    }
