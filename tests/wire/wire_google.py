"""Gemini's wire format.

Sources: the API reference of `models.streamGenerateContent` (GenerateContentResponse, Candidate, FinishReason,
PromptFeedback, UsageMetadata), the guides "Function calling", "Thinking" and "Thought signatures" (which part has
the signature, and that it goes back with that part), "Troubleshooting" (status, code and message of each error)
and Google's error model (ErrorInfo, QuotaFailure and RetryInfo in `details`). The SDK's types check requests here.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from wire_script import Calls, Can, FaultKind, Says, Script, Seen, Thinks, json_reply, sse
from wire_server import Reply

from wakeful.models import Model

KEY = "AIzaSyD-secretsecretsecretsecretZ9"
STREAM = {"content-type": "text/event-stream"}

ERRORS: dict[FaultKind, tuple[int, str, str]] = {
    "rate_limited": (
        429,
        "RESOURCE_EXHAUSTED",
        "You exceeded your current quota, please check your plan.",
    ),
    "quota": (429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan."),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "unavailable": (500, "INTERNAL", "An internal error has occurred. Please retry."),
    "timeout": (504, "DEADLINE_EXCEEDED", "The request timed out. Please try again."),
    "bad_key": (400, "INVALID_ARGUMENT", f"API key not valid. Please pass a valid API key: {KEY}"),
    "forbidden": (403, "PERMISSION_DENIED", "Your API key doesn't have the required permissions."),
    "not_found": (404, "NOT_FOUND", "models/gemini-9 is not found for API version v1beta"),
    "overflow": (
        400,
        "INVALID_ARGUMENT",
        "The input token count (1148577) exceeds the maximum number of tokens allowed (1048576).",
    ),
    "invalid": (400, "INVALID_ARGUMENT", "Invalid JSON payload received. Unknown name 'foo'."),
}


def _violation(period: str) -> list[dict[str, Any]]:
    quota = f"GenerateRequestsPer{period}PerProjectPerModel-FreeTier"
    return [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]}]


DETAILS: dict[FaultKind, list[dict[str, Any]]] = {
    "rate_limited": _violation("Minute"),
    "quota": [
        *_violation("Day"),
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.074824224s"},
    ],
    "bad_key": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}],
}


@dataclass(frozen=True)
class Google:
    """`models.streamGenerateContent` with server-sent events."""

    name: str = "google"
    can: Can = field(
        default_factory=lambda: Can(
            audio=True,
            video=True,
            errors_marked=True,
            interleaved=False,
            partial_arguments=False,
            request_ids=False,
        )
    )
    key: str = KEY
    request_id: str = ""

    def model(self, url: str, **options: Any) -> Model:
        from wakeful.models.google import GoogleModel

        return GoogleModel("gemini-3.8-flash", **{"base_url": url, "api_key": self.key, **options})

    def answer(self, script: Script) -> Reply:
        return Reply([sse(event) for event in self._events(script)], headers=dict(STREAM))

    def _events(self, script: Script) -> list[dict[str, Any]]:
        usage = script.usage
        counts: dict[str, Any] = {
            "promptTokenCount": usage.input_tokens,
            "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
            "totalTokenCount": usage.total_tokens,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input_tokens}],
        }
        if usage.cached_tokens:
            counts["cachedContentTokenCount"] = usage.cached_tokens
        if usage.reasoning_tokens:
            counts["thoughtsTokenCount"] = usage.reasoning_tokens
        parts = [part for each in script.parts for part in _parts(each)]
        stop = {"max_tokens": "MAX_TOKENS", "filtered": "SAFETY"}.get(script.stop, "STOP")
        events = [_response({"parts": [part], "role": "model"}, counts) for part in parts]
        events.append(_response({"parts": [{"text": ""}], "role": "model"}, counts, stop))
        return events

    def fault(self, kind: FaultKind, headers: dict[str, str] | None = None) -> Reply:
        if kind == "filtered":
            return Reply([sse({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})], headers=dict(STREAM))
        return json_reply(ERRORS[kind][0], self._error(kind), headers)

    def _error(self, kind: FaultKind) -> dict[str, Any]:
        code, status, message = ERRORS[kind]
        error: dict[str, Any] = {"code": code, "message": message, "status": status}
        return {"error": error | ({"details": DETAILS[kind]} if kind in DETAILS else {})}

    def fault_in_stream(self, script: Script, kind: FaultKind) -> Reply:
        begun = [sse(event) for event in self._events(script)[:-1]]
        return Reply([*begun, sse(self._error(kind))], headers=dict(STREAM))

    def odd(self, kind: Literal["malformed", "duplicate_index", "empty", "unknown_event"]) -> Reply:
        whole = self.answer(Script([Says(["Hel", "lo"])]))
        pieces = list(whole.pieces)
        if kind == "malformed":
            pieces.insert(1, b'data: {"candidates": [{"content": {"pa\n\n')
        elif kind == "duplicate_index":
            reply = self.answer(Script([Calls("look", id="same"), Calls("look", id="same")], stop="tool_use"))
            pieces = list(reply.pieces)
        elif kind == "empty":
            pieces.insert(1, sse({"candidates": [], "usageMetadata": {"promptTokenCount": 3}}))
            pieces.insert(1, sse({"candidates": [{"index": 0}]}))
        else:
            pieces.insert(1, sse({"telepathy": {"thought": "?"}}))
        return replace(whole, pieces=pieces)

    def check(self, body: dict[str, Any]) -> None:
        from google.genai import types

        for content in body["contents"]:
            types.Content.model_validate_json(json.dumps(content))
        for tool in body.get("tools", []):
            types.Tool.model_validate(tool)
        types.GenerationConfig.model_validate(body.get("generationConfig", {}))
        if "systemInstruction" in body:
            types.Content.model_validate(body["systemInstruction"])
        known = {"contents", "tools", "generationConfig", "systemInstruction", "toolConfig", "safetySettings"}
        assert not set(body) - known, set(body) - known

    def read(self, body: dict[str, Any]) -> Seen:
        body = _camel(body)
        config = body.get("generationConfig", {})
        thinking = config.get("thinkingConfig", {})
        seen = Seen(
            system="".join(part["text"] for part in body.get("systemInstruction", {}).get("parts", [])),
            tools=[
                (declared["name"], declared["parametersJsonSchema"])
                for tool in body.get("tools", [])
                for declared in tool["functionDeclarations"]
            ],
            output=config.get("responseJsonSchema"),
            settings={
                "max_tokens": config.get("maxOutputTokens"),
                "temperature": config.get("temperature"),
                "top_p": config.get("topP"),
                "stop": config.get("stopSequences"),
                "reasoning": thinking.get("thinkingBudget", thinking.get("thinkingLevel")),
            },
        )
        for content in body["contents"]:
            role = {"model": "assistant"}.get(content["role"], content["role"])
            seen.parts.extend([_read_part(role, part) for part in content["parts"]])
        return seen


def _response(content: dict[str, Any], counts: dict[str, Any], stop: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": content, "index": 0}
    if stop is not None:
        candidate["finishReason"] = stop
    return {
        "candidates": [candidate],
        "usageMetadata": counts,
        "modelVersion": "gemini-3.8-flash",
        "responseId": "mAZ9aLqWKtGkkdUPwNKxsQs",
    }


def _parts(part: Says | Thinks | Calls) -> list[dict[str, Any]]:
    if isinstance(part, Says):
        return [{"text": piece} for piece in part.pieces]
    if isinstance(part, Calls):
        call = {"id": part.id, "name": part.name, "args": json.loads("".join(part.pieces))}
        return [{"functionCall": call}]
    signature = part.signature or part.encrypted
    signed = {"thoughtSignature": base64.b64encode(signature.encode()).decode()} if signature else {}
    if not part.pieces:
        return [{"text": "", **signed}]
    thoughts: list[dict[str, Any]] = [{"text": piece, "thought": True} for piece in part.pieces]
    return [*thoughts[:-1], {**thoughts[-1], **signed}]


def _camel(value: Any) -> Any:
    """Convert field names to one style: JSON for protocol buffers has two. User-defined names are kept."""
    if isinstance(value, list):
        return [_camel(each) for each in value]
    if not isinstance(value, dict):
        return value
    own = ("args", "response", "parametersJsonSchema", "responseJsonSchema")
    named = {re.sub("_([a-z])", lambda found: found[1].upper(), key): each for key, each in value.items()}
    return {key: each if key in own else _camel(each) for key, each in named.items()}


def _read_part(role: str, part: dict[str, Any]) -> tuple[str, str, Any]:
    signature = part.get("thoughtSignature")
    signature = base64.urlsafe_b64decode(signature).decode() if signature else None
    if "functionCall" in part:
        call = part["functionCall"]
        return role, "call", (call["id"], call["name"], call["args"])
    if "functionResponse" in part:
        response = part["functionResponse"]
        ((key, text),) = response["response"].items()
        inner = [("text", text), *[_read_part(role, each)[1:] for each in response.get("parts", [])]]
        return "tool", "error" if key == "error" else "result", (response["id"], inner)
    if "inlineData" in part or "fileData" in part:
        data = part.get("inlineData") or part["fileData"]
        kind = data["mimeType"].partition("/")[0]
        value = data.get("fileUri") or base64.b64encode(base64.urlsafe_b64decode(data["data"])).decode()
        return role, kind if kind in ("image", "audio", "video") else "document", value
    if part.get("thought") or signature is not None:
        return role, "thinking", (part["text"], signature, None)
    return role, "text", part["text"]
