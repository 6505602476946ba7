"""Anthropic's wire format.

Sources: the pages "Streaming messages" (event types; the examples with tool use and with extended thinking),
"Errors" (HTTP errors, the shape of an error, errors in streams) and "Rate limits" (headers) of the API
documentation. The fields are those of `anthropic.types` in the SDK, which also checks requests here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from wire_script import Calls, Can, FaultKind, Says, Script, Seen, Thinks, json_reply, sse
from wire_server import Reply

from wakeful.models import Model

KEY = "sk-ant-api03-Wx7secretsecretsecretZ9"
STREAM = {"content-type": "text/event-stream; charset=utf-8", "request-id": "req_018EeWyXxfu5pfWkrYcMdjWG"}

# Page "Errors": the status, type and message of each.
ERRORS: dict[FaultKind, tuple[int, str, str]] = {
    "rate_limited": (429, "rate_limit_error", "This request would exceed your organization's rate limit"),
    "quota": (400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "unavailable": (500, "api_error", "Internal server error"),
    "timeout": (504, "timeout_error", "The request timed out while processing"),
    "bad_key": (401, "authentication_error", f"invalid x-api-key: {KEY}"),
    "forbidden": (403, "permission_error", "Your API key does not have permission to use the specified resource"),
    "not_found": (404, "not_found_error", "model: claude-9"),
    "overflow": (400, "invalid_request_error", "prompt is too long: 212345 tokens > 200000 maximum"),
    "filtered": (400, "invalid_request_error", "Output blocked by content filtering policy"),
    "invalid": (400, "invalid_request_error", "messages.0.content: Input should be a valid list"),
}


CAN = Can(errors_marked=True, temperature=False, interleaved=False)


@dataclass(frozen=True)
class Anthropic:
    """The Messages API."""

    name: str = "anthropic"
    can: Can = CAN
    key: str = KEY
    request_id: str = "req_018EeWyXxfu5pfWkrYcMdjWG"

    def model(self, url: str, **options: Any) -> Model:
        from wakeful.models.anthropic import AnthropicModel

        return AnthropicModel("claude-sonnet-5", **{"base_url": url, "api_key": self.key, **options})

    def answer(self, script: Script) -> Reply:
        return Reply([sse(event, event["type"]) for event in self._events(script)], headers=dict(STREAM))

    def _events(self, script: Script) -> list[dict[str, Any]]:
        usage = script.usage
        fresh = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
        counts: dict[str, Any] = {
            "input_tokens": fresh,
            "cache_creation_input_tokens": usage.cache_write_tokens,
            "cache_read_input_tokens": usage.cached_tokens,
        }
        message = {
            "id": "msg_1nZdL29xx5MUA1yADyHTEsnR8uuvGzszyY",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": "claude-sonnet-5",
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**counts, "output_tokens": 1},
        }
        events: list[dict[str, Any]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
        for index, part in enumerate(script.parts):
            block, deltas = _block(part)
            events.append({"type": "content_block_start", "index": index, "content_block": block})
            events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            events.append({"type": "content_block_stop", "index": index})
        stop = {"filtered": "refusal"}.get(script.stop, script.stop)
        out: dict[str, Any] = {"output_tokens": usage.output_tokens}
        if usage.reasoning_tokens:
            out["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
        delta: dict[str, Any] = {"stop_reason": stop, "stop_sequence": None}
        if stop == "refusal":
            delta["stop_details"] = {"type": "refusal", "category": "cyber", "explanation": "It could do harm."}
        events.append({"type": "message_delta", "delta": delta, "usage": {**counts, **out}})
        events.append({"type": "message_stop"})
        return events

    def fault(self, kind: FaultKind, headers: dict[str, str] | None = None) -> Reply:
        return json_reply(ERRORS[kind][0], self._error(kind), {"request-id": self.request_id, **(headers or {})})

    def _error(self, kind: FaultKind) -> dict[str, Any]:
        _, type_, message = ERRORS[kind]
        error = {"type": type_, "message": message}
        return {"type": "error", "error": error, "request_id": self.request_id}

    def fault_in_stream(self, script: Script, kind: FaultKind) -> Reply:
        begun = [sse(e, e["type"]) for e in self._events(script)[:-3]]
        return Reply([*begun, sse(self._error(kind), "error")], headers=dict(STREAM))

    def odd(self, kind: Literal["malformed", "duplicate_index", "empty", "unknown_event"]) -> Reply:
        whole = self.answer(Script([Says(["Hel", "lo"])]))
        pieces = list(whole.pieces)
        if kind == "malformed":
            pieces.insert(4, b'event: content_block_delta\ndata: {"type": "content_bl\n\n')
        elif kind == "duplicate_index":
            reply = self.answer(
                Script([Calls("look", id="toolu_a"), Calls("look", id="toolu_b")], stop="tool_use")
            )
            pieces = [p.replace(b'"index": 1', b'"index": 0') for p in reply.pieces]
        elif kind == "empty":
            empty = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}}
            pieces.insert(4, sse(empty, "content_block_delta"))
        else:
            pieces.insert(4, sse({"type": "telepathy", "thought": "?"}, "telepathy"))
        return replace(whole, pieces=pieces)

    def check(self, body: dict[str, Any]) -> None:
        from anthropic.types.message_create_params import MessageCreateParamsStreaming
        from wire_openai import _validate  # pyright: ignore[reportPrivateUsage]

        _validate(MessageCreateParamsStreaming, body)

    def read(self, body: dict[str, Any]) -> Seen:
        thinking = body.get("thinking", {})
        config = body.get("output_config", {})
        seen = Seen(
            system="\n\n".join(block["text"] for block in body.get("system", [])),
            tools=[(tool["name"], tool["input_schema"]) for tool in body.get("tools", [])],
            output=config.get("format", {}).get("schema"),
            settings={
                "max_tokens": body["max_tokens"],
                "stop": body.get("stop_sequences"),
                "reasoning": thinking.get("budget_tokens", config.get("effort")),
            },
        )
        for message in body["messages"]:
            seen.parts.extend([_read_block(message["role"], block) for block in message["content"]])
        return seen


def _block(part: Says | Thinks | Calls) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if isinstance(part, Says):
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in part.pieces]
    if isinstance(part, Calls):
        block = {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
        pieces = ["", *part.pieces]
        return block, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    if part.encrypted is not None:
        return {"type": "redacted_thinking", "data": part.encrypted}, []
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in part.pieces]
    if part.signature is not None:
        deltas.append({"type": "signature_delta", "signature": part.signature})
    return {"type": "thinking", "thinking": "", "signature": ""}, deltas


def _read_block(role: str, block: dict[str, Any]) -> tuple[str, str, Any]:
    match block["type"]:
        case "text":
            return role, "text", block["text"]
        case "image" | "document":
            source = block["source"]
            return role, block["type"], source.get("data") or source["url"]
        case "thinking":
            return role, "thinking", (block["thinking"], block["signature"], None)
        case "redacted_thinking":
            return role, "thinking", ("", None, block["data"])
        case "tool_use":
            return role, "call", (block["id"], block["name"], block["input"])
        case "tool_result":
            content = block["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            inner = [_read_block(role, each)[1:] for each in blocks]
            return "tool", "error" if block.get("is_error") else "result", (block["tool_use_id"], inner)
        case other:
            raise AssertionError(f"unknown block {other}")
