"""OpenAI's two wire formats.

Sources: the API reference, pages "Streaming events" (Responses) and "The chat completion chunk object", and the
guides "Streaming API responses", "Reasoning models" (encrypted reasoning items), "Error codes" and "Rate limits"
(headers). The fields are those of `openai.types.responses` and `openai.types.chat` in the SDK, which also checks
requests here. What others add to Chat Completions: vLLM's page "Reasoning Outputs" (reasoning_content).
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from typing import Any, Literal

from wire_script import Calls, Can, FaultKind, Says, Script, Seen, Thinks, json_reply, sse
from wire_server import Reply

from wakeful.models import Model
from wakeful.types.runs import Usage

KEY = "sk-proj-Wx7secretsecretsecretZ9"
RESPONSES_CAN = Can(stop=False)
CHAT_CAN = Can(reasoning=False, signed_reasoning=False, audio=True)
VLLM_CAN = Can(signed_reasoning=False, audio=True, needs_key=False)
STREAM = {"content-type": "text/event-stream; charset=utf-8", "x-request-id": "req_7f3a"}

# Guide "Error codes": status, type, code and the beginning of the message of each.
ERRORS: dict[FaultKind, tuple[int, str, str | None, str]] = {
    "rate_limited": (429, "tokens", "rate_limit_exceeded", "Rate limit reached for gpt-5-mini on tokens per min"),
    "quota": (429, "insufficient_quota", "insufficient_quota", "You exceeded your current quota, please check"),
    "overloaded": (503, "server_error", "slow_down", "The engine is currently overloaded, please try again later"),
    "unavailable": (500, "server_error", None, "The server had an error while processing your request"),
    "timeout": (504, "server_error", None, "Gateway timeout"),
    "bad_key": (401, "invalid_request_error", "invalid_api_key", f"Incorrect API key provided: {KEY}."),
    "forbidden": (403, "request_forbidden", "unsupported_country_region_territory", "Country not supported"),
    "not_found": (404, "invalid_request_error", "model_not_found", "The model `gpt-9` does not exist"),
    "overflow": (
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ),
    "filtered": (400, "invalid_request_error", "content_filter", "The response was filtered"),
    "invalid": (400, "invalid_request_error", "unknown_parameter", "Unknown parameter: 'input[0].foo'."),
}


def error_body(kind: FaultKind) -> dict[str, Any]:
    _, type_, code, message = ERRORS[kind]
    return {"error": {"message": message, "type": type_, "param": None, "code": code}}


def fault(kind: FaultKind, headers: dict[str, str] | None = None) -> Reply:
    return json_reply(ERRORS[kind][0], error_body(kind), {"x-request-id": "req_7f3a", **(headers or {})})


@dataclass(frozen=True)
class Responses:
    """The Responses API."""

    name: str = "openai"
    can: Can = RESPONSES_CAN
    key: str = KEY
    request_id: str = "req_7f3a"

    def model(self, url: str, **options: Any) -> Model:
        from wakeful.models.openai import OpenAIModel

        return OpenAIModel("gpt-5-mini", **{"base_url": f"{url}/v1", "api_key": self.key, **options})

    def answer(self, script: Script) -> Reply:
        return Reply([sse(event, event["type"]) for event in self._events(script)], headers=dict(STREAM))

    def _events(self, script: Script) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []

        def add(type_: str, **fields: Any) -> None:
            events.append({"type": type_, "sequence_number": len(events), **fields})

        add("response.created", response=_response("in_progress"))
        add("response.in_progress", response=_response("in_progress"))
        items: list[dict[str, Any]] = []
        done: list[tuple[str, dict[str, Any]]] = []
        held: list[list[tuple[str, dict[str, Any]]]] = []
        for index, part in enumerate(script.parts):
            at: dict[str, Any] = {"output_index": index}
            if isinstance(part, Says):
                items.append(_say(add, part, at))
            elif isinstance(part, Thinks):
                items.append(_think(add, part, at))
            else:
                item = _call_item(part, index, "completed")
                opened = {**item, "arguments": "", "status": "in_progress"}
                add("response.output_item.added", item=opened, **at)
                at["item_id"] = item["id"]
                deltas = [("response.function_call_arguments.delta", {"delta": p, **at}) for p in part.pieces]
                end = ("response.function_call_arguments.done", {"arguments": item["arguments"], **at})
                last = ("response.output_item.done", {"item": item, "output_index": index})
                items.append(item)
                if script.interleaved:
                    held.append(deltas)
                    done += [end, last]
                else:
                    for type_, fields in [*deltas, end, last]:
                        add(type_, **fields)
        while any(held):
            for waiting in held:
                if waiting:
                    type_, fields = waiting.pop(0)
                    add(type_, **fields)
        for type_, fields in done:
            add(type_, **fields)
        whole = _response("completed", items, script.usage)
        if script.stop in ("max_tokens", "filtered"):
            reason = {"max_tokens": "max_output_tokens", "filtered": "content_filter"}[script.stop]
            whole |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
            add("response.incomplete", response=whole)
        else:
            add("response.completed", response=whole)
        return events

    def fault(self, kind: FaultKind, headers: dict[str, str] | None = None) -> Reply:
        return fault(kind, headers)

    def fault_in_stream(self, script: Script, kind: FaultKind) -> Reply:
        begun = [e for e in self._events(script) if not e["type"].endswith((".done", ".completed"))]
        _, type_, code, message = ERRORS[kind]
        error = {"code": code or type_, "message": message}
        failed = {**_response("failed"), "error": error}
        event = {"type": "response.failed", "sequence_number": len(begun), "response": failed}
        return Reply([sse(e, e["type"]) for e in [*begun, event]], headers=dict(STREAM))

    def odd(self, kind: Literal["malformed", "duplicate_index", "empty", "unknown_event"]) -> Reply:
        whole = self.answer(Script([Says(["Hel", "lo"])]))
        pieces = list(whole.pieces)
        middle = len(pieces) // 2
        if kind == "malformed":
            pieces.insert(middle, b'event: response.output_text.delta\ndata: {"type": "response.out\n\n')
        elif kind == "duplicate_index":
            reply = self.answer(Script([Calls("look", id="call_a"), Calls("look", id="call_b")], stop="tool_use"))
            pieces = [p.replace(b'"output_index": 1', b'"output_index": 0') for p in reply.pieces]
        elif kind == "empty":
            pieces.insert(middle, sse({"type": "keepalive", "sequence_number": 4}, "keepalive"))
        else:
            event = {"type": "response.telepathy.delta", "delta": "?", "sequence_number": 4}
            pieces.insert(middle, sse(event, "response.telepathy.delta"))
        return replace(whole, pieces=pieces)

    def check(self, body: dict[str, Any]) -> None:
        from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

        _validate(ResponseCreateParamsStreaming, body)

    def read(self, body: dict[str, Any]) -> Seen:
        text_format = body.get("text", {}).get("format")
        seen = Seen(
            system=body.get("instructions", ""),
            tools=[(tool["name"], tool["parameters"]) for tool in body.get("tools", [])],
            output=text_format["schema"] if text_format else None,
            settings={
                "max_tokens": body.get("max_output_tokens"),
                "temperature": body.get("temperature"),
                "top_p": body.get("top_p"),
                "reasoning": body.get("reasoning", {}).get("effort"),
            },
        )
        for item in body["input"]:
            kind = item.get("type", "message")
            if kind == "message":
                content = item["content"]
                blocks = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
                seen.parts.extend([(item["role"], *_read_block(block)) for block in blocks])
            elif kind == "function_call":
                call = (item["call_id"], item["name"], json.loads(item["arguments"]))
                seen.parts.append(("assistant", "call", call))
            elif kind == "function_call_output":
                output = item["output"]
                blocks = [{"type": "input_text", "text": output}] if isinstance(output, str) else output
                seen.parts.append(("tool", "result", (item["call_id"], [_read_block(b) for b in blocks])))
            else:
                assert kind == "reasoning"
                value = ("".join(s["text"] for s in item["summary"]), item["id"], item["encrypted_content"])
                seen.parts.append(("assistant", "thinking", value))
        return seen


def _say(add: Any, part: Says, at: dict[str, Any]) -> dict[str, Any]:
    text = "".join(part.pieces)
    item: dict[str, Any] = {"id": f"msg_{at['output_index']}", "type": "message", "role": "assistant"}
    add("response.output_item.added", item={**item, "status": "in_progress", "content": []}, **at)
    within = {**at, "item_id": item["id"], "content_index": 0}
    empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    add("response.content_part.added", part=empty, **within)
    for piece in part.pieces:
        add("response.output_text.delta", delta=piece, logprobs=[], **within)
    add("response.output_text.done", text=text, logprobs=[], **within)
    add("response.content_part.done", part={**empty, "text": text}, **within)
    item |= {"status": "completed", "content": [{**empty, "text": text}]}
    add("response.output_item.done", item=item, **at)
    return item


def _think(add: Any, part: Thinks, at: dict[str, Any]) -> dict[str, Any]:
    text = "".join(part.pieces)
    item: dict[str, Any] = {"id": part.signature or f"rs_{at['output_index']}", "type": "reasoning"}
    add("response.output_item.added", item={**item, "summary": [], "encrypted_content": "unfinished"}, **at)
    within = {**at, "item_id": item["id"], "summary_index": 0}
    summary = []
    if text:
        summary = [{"type": "summary_text", "text": text}]
        add("response.reasoning_summary_part.added", part={"type": "summary_text", "text": ""}, **within)
        for piece in part.pieces:
            add("response.reasoning_summary_text.delta", delta=piece, **within)
        add("response.reasoning_summary_text.done", text=text, **within)
        add("response.reasoning_summary_part.done", part=summary[0], **within)
    item |= {"summary": summary, "encrypted_content": part.encrypted}
    add("response.output_item.done", item=item, **at)
    return item


def _call_item(part: Calls, index: int, status: str) -> dict[str, Any]:
    return {
        "id": f"fc_{index}",
        "type": "function_call",
        "status": status,
        "arguments": "".join(part.pieces),
        "call_id": part.id,
        "name": part.name,
    }


def _response(
    status: str, output: list[dict[str, Any]] | None = None, usage: Usage | None = None
) -> dict[str, Any]:
    counts = usage and {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
    return {
        "id": "resp_67c9fdcecf488190bdd9a0409de3a1ec07b8b0ad4e5eb654",
        "object": "response",
        "created_at": 1741487325,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "model": "gpt-5-mini-2025-08-07",
        "output": output or [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": counts,
        "user": None,
        "metadata": {},
    }


def _read_block(block: dict[str, Any]) -> tuple[str, Any]:
    match block["type"]:
        case "input_text" | "output_text" | "text":
            return "text", block["text"]
        case "input_image":
            return "image", block["image_url"]
        case "image_url":
            return "image", block["image_url"]["url"]
        case "input_file":
            return "document", block.get("file_data") or block["file_url"]
        case "file":
            return "document", block["file"]["file_data"]
        case "input_audio":
            return "audio", block["input_audio"]["data"]
        case other:
            raise AssertionError(f"unknown block {other}")


def _validate(kind: Any, body: dict[str, Any]) -> None:
    import pydantic

    known = {**kind.__annotations__}
    for base in kind.__mro__ if hasattr(kind, "__mro__") else ():
        known |= getattr(base, "__annotations__", {})
    for base in getattr(kind, "__orig_bases__", ()):
        known |= getattr(base, "__annotations__", {})
    assert set(body) <= set(known), set(body) - set(known)
    pydantic.TypeAdapter(kind, config=None).validate_python(body)


@dataclass(frozen=True)
class Chat:
    """Chat Completions, of OpenAI and compatible servers."""

    name: str = "openai-chat"
    can: Can = CHAT_CAN
    key: str = KEY
    request_id: str = "req_7f3a"

    def model(self, url: str, **options: Any) -> Model:
        from wakeful.models.openai import OpenAIChatModel

        return OpenAIChatModel("gpt-5-mini", **{"base_url": f"{url}/v1", "api_key": self.key, **options})

    def answer(self, script: Script) -> Reply:
        pieces = [sse(chunk) for chunk in self._chunks(script)]
        return Reply([*pieces, sse("[DONE]")], headers=dict(STREAM))

    def _chunks(self, script: Script) -> list[dict[str, Any]]:
        chunks = [_chunk({"role": "assistant", "content": "", "refusal": None})]
        calls: list[list[dict[str, Any]]] = []
        for part in script.parts:
            if isinstance(part, Says):
                chunks += [_chunk({"content": piece}) for piece in part.pieces]
            elif isinstance(part, Thinks):
                chunks += [_chunk({"reasoning_content": piece}) for piece in part.pieces]
            else:
                index = len(calls)
                first = {"index": index, "id": part.id, "type": "function"}
                first["function"] = {"name": part.name, "arguments": ""}
                rest = [{"index": index, "function": {"arguments": piece}} for piece in part.pieces]
                calls.append([_chunk({"tool_calls": [call]}) for call in [first, *rest]])
        if script.interleaved:
            while any(calls):
                chunks += [waiting.pop(0) for waiting in calls if waiting]
        chunks += [chunk for waiting in calls for chunk in waiting]
        reason = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}
        reason |= {"filtered": "content_filter", "stop_sequence": "stop"}
        chunks.append(_chunk({}, reason[script.stop]))
        usage = script.usage
        counts = {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "prompt_tokens_details": {
                "cached_tokens": usage.cached_tokens,
                "audio_tokens": 0,
                "cache_write_tokens": usage.cache_write_tokens,
            },
            "completion_tokens_details": {
                "reasoning_tokens": usage.reasoning_tokens,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }
        chunks.append({**_chunk({}), "choices": [], "usage": counts})
        return chunks

    def fault(self, kind: FaultKind, headers: dict[str, str] | None = None) -> Reply:
        return fault(kind, headers)

    def fault_in_stream(self, script: Script, kind: FaultKind) -> Reply:
        begun = [sse(chunk) for chunk in self._chunks(script)[:-2]]
        return Reply([*begun, sse(error_body(kind))], headers=dict(STREAM))

    def odd(self, kind: Literal["malformed", "duplicate_index", "empty", "unknown_event"]) -> Reply:
        whole = self.answer(Script([Says(["Hel", "lo"])]))
        pieces = list(whole.pieces)
        if kind == "malformed":
            pieces.insert(2, b'data: {"id": "chatcmpl-123", "obj\n\n')
        elif kind == "duplicate_index":
            reply = self.answer(Script([Calls("look", id="call_a"), Calls("look", id="call_b")], stop="tool_use"))
            pieces = [p.replace(b'"index": 1', b'"index": 0') for p in reply.pieces]
        elif kind == "empty":
            pieces.insert(2, sse({**_chunk({}), "choices": []}))
        else:
            pieces.insert(2, sse({**_chunk({"telepathy": "?"})}))
        return replace(whole, pieces=pieces)

    def check(self, body: dict[str, Any]) -> None:
        from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

        _validate(CompletionCreateParamsStreaming, body)

    def read(self, body: dict[str, Any]) -> Seen:
        output = body.get("response_format", {}).get("json_schema", {}).get("schema")
        seen = Seen(
            system="\n\n".join(m["content"] for m in body["messages"] if m["role"] in ("system", "developer")),
            tools=[(t["function"]["name"], t["function"]["parameters"]) for t in body.get("tools", [])],
            output=output,
            settings={
                "max_tokens": body.get("max_completion_tokens", body.get("max_tokens")),
                "temperature": body.get("temperature"),
                "top_p": body.get("top_p"),
                "stop": body.get("stop"),
                "reasoning": body.get("reasoning_effort"),
            },
        )
        for message in body["messages"]:
            role, content = message["role"], message.get("content") or []
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if role == "tool":
                value = (message["tool_call_id"], [_read_block(b) for b in blocks])
                seen.parts.append(("tool", "result", value))
            elif role in ("user", "assistant"):
                if message.get("reasoning_content"):
                    seen.parts.append((role, "thinking", (message["reasoning_content"], None, None)))
                seen.parts.extend([(role, *_read_block(block)) for block in blocks])
            for call in message.get("tool_calls", ()):
                value = (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
                seen.parts.append((role, "call", value))
        return seen


@dataclass(frozen=True)
class Vllm(Chat):
    """Chat Completions of vLLM: with reasoning, without a key."""

    name: str = "vllm"
    can: Can = VLLM_CAN

    def model(self, url: str, **options: Any) -> Model:
        from wakeful.models.compatible import CompatibleModel

        given = {"base_url": f"{url}/v1", "api_key": self.key, "server": "vllm", **options}
        return CompatibleModel("Qwen/Qwen3-8B", **given)


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-123",
        "object": "chat.completion.chunk",
        "created": 1694268190,
        "model": "gpt-5-mini-2025-08-07",
        "service_tier": "default",
        "system_fingerprint": "fp_44709d6fcb",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        "usage": None,
    }


def wav(size: int = 32) -> str:
    """A few bytes in place of a recording."""
    return base64.b64encode(b"RIFF" + bytes(size)).decode()
