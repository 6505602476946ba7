"""Bedrock's wire format: Converse's events in the framing of AWS event streams.

Sources: the API reference of `ConverseStream` (events, and exceptions with their status), the user guide's page on
Converse (the order of events), "Troubleshooting Amazon Bedrock API error codes", and "Event stream encoding" of
Amazon Transcribe and Smithy (prelude, headers, both checksums), which the encoder here follows. The SDK's model of
the service checks requests.
"""

from __future__ import annotations

import base64
import itertools
import json
import struct
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from zlib import crc32

from wire_script import Calls, Can, FaultKind, Says, Script, Seen, Thinks, json_reply
from wire_server import Reply

from wakeful.models import Model

KEY = "bedrock-api-key-YmVkcm9jay5hbWF6b25hd3MuY29tsecretsecret"
REQUEST_ID = "a3f2c1d4-7b6e-4c5d-9f8a-0123456789ab"
STREAM = {"content-type": "application/vnd.amazon.eventstream", "x-amzn-requestid": REQUEST_ID}

ERRORS: dict[FaultKind, tuple[int, str, str]] = {
    "rate_limited": (429, "ThrottlingException", "Too many requests, please wait before trying again."),
    "quota": (400, "ServiceQuotaExceededException", "Your request exceeds the service quota for your account."),
    "overloaded": (503, "ServiceUnavailableException", "The service isn't currently available. Try again later."),
    "unavailable": (500, "InternalServerException", "An internal server error occurred. Retry your request."),
    "timeout": (408, "ModelTimeoutException", "The request took too long to process."),
    "bad_key": (
        403,
        "UnrecognizedClientException",
        f"The security token included in the request is invalid: {KEY}",
    ),
    "forbidden": (403, "AccessDeniedException", "You don't have access to the model with the specified model ID."),
    "not_found": (404, "ResourceNotFoundException", "Could not resolve the foundation model from the identifier."),
    "overflow": (400, "ValidationException", "Input is too long for requested model."),
    "filtered": (400, "ValidationException", "Output blocked by content filtering policy"),
    "invalid": (400, "ValidationException", "A conversation must start with a user message. Try again."),
}


def frame(headers: dict[str, str], payload: Any) -> bytes:
    """One message of an event stream: prelude, its checksum, string headers, payload, total checksum."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload, ensure_ascii=False).encode()
    head = b""
    for name, value in headers.items():
        head += struct.pack("!B", len(name)) + name.encode()
        head += struct.pack("!BH", 7, len(value.encode())) + value.encode()
    prelude = struct.pack("!II", 16 + len(head) + len(body), len(head))
    message = prelude + struct.pack("!I", crc32(prelude)) + head + body
    return message + struct.pack("!I", crc32(message))


def event(kind: str, payload: Any) -> bytes:
    return frame({":event-type": kind, ":content-type": "application/json", ":message-type": "event"}, payload)


@dataclass(frozen=True)
class Bedrock:
    """The Converse API."""

    name: str = "bedrock"
    can: Can = field(
        default_factory=lambda: Can(
            audio=True, video=True, image_urls=False, errors_marked=True, reasoning_tokens=False
        )
    )
    key: str = KEY
    request_id: str = REQUEST_ID

    def model(self, url: str, **options: Any) -> Model:
        from wakeful.models.bedrock import BedrockModel

        options = {"base_url": url, "api_key": self.key, "region": "us-east-1", **options}
        return BedrockModel("us.anthropic.claude-sonnet-4-5-20250929-v1:0", **options)

    def answer(self, script: Script) -> Reply:
        return Reply([event(kind, said) for kind, said in self._events(script)], headers=dict(STREAM))

    def _events(self, script: Script) -> list[tuple[str, dict[str, Any]]]:
        usage = script.usage
        counts = {
            "inputTokens": usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens,
            "outputTokens": usage.output_tokens,
            "totalTokens": usage.total_tokens,
            "cacheReadInputTokens": usage.cached_tokens,
            "cacheWriteInputTokens": usage.cache_write_tokens,
        }
        events: list[tuple[str, dict[str, Any]]] = [("messageStart", {"role": "assistant"})]
        blocks: list[list[tuple[str, dict[str, Any]]]] = []
        for index, part in enumerate(script.parts):
            start, deltas = _block(part)
            block: list[tuple[str, dict[str, Any]]] = []
            if start is not None:
                block.append(("contentBlockStart", {"start": start, "contentBlockIndex": index}))
            block += [("contentBlockDelta", {"delta": delta, "contentBlockIndex": index}) for delta in deltas]
            blocks.append([*block, ("contentBlockStop", {"contentBlockIndex": index})])
        if script.interleaved:
            while any(blocks):
                events += [block.pop(0) for block in blocks if block]
        else:
            events += [each for block in blocks for each in block]
        stop = {"filtered": "content_filtered"}.get(script.stop, script.stop)
        events.append(("messageStop", {"stopReason": stop}))
        events.append(("metadata", {"usage": counts, "metrics": {"latencyMs": 551}}))
        return events

    def fault(self, kind: FaultKind, headers: dict[str, str] | None = None) -> Reply:
        status, code, message = ERRORS[kind]
        own = {
            "x-amzn-requestid": self.request_id,
            "x-amzn-errortype": f"{code}:http://internal.amazon.com/coral/",
        }
        return json_reply(status, {"message": message}, {**own, **(headers or {})})

    def fault_in_stream(self, script: Script, kind: FaultKind) -> Reply:
        begun = [event(name, said) for name, said in self._events(script)[:-3]]
        _, code, message = ERRORS[kind]
        headers = {":exception-type": code[0].lower() + code[1:], ":content-type": "application/json"}
        return Reply(
            [*begun, frame({**headers, ":message-type": "exception"}, {"message": message})], headers=dict(STREAM)
        )

    def odd(self, kind: Literal["malformed", "duplicate_index", "empty", "unknown_event"]) -> Reply:
        whole = self.answer(Script([Says(["Hel", "lo"])]))
        pieces = list(whole.pieces)
        if kind == "malformed":
            pieces.insert(2, event("contentBlockDelta", b'{"delta": {"te'))
        elif kind == "duplicate_index":
            calls = self._events(Script([Calls("look", id="a"), Calls("look", id="b")], stop="tool_use"))
            pieces = [
                event(name, {**said, "contentBlockIndex": 0} if "contentBlockIndex" in said else said)
                for name, said in calls
            ]
        elif kind == "empty":
            pieces.insert(2, event("contentBlockDelta", {"delta": {"text": ""}, "contentBlockIndex": 0}))
        else:
            pieces.insert(2, event("telepathy", {"thought": "?"}))
        return replace(whole, pieces=pieces)

    def check(self, body: dict[str, Any]) -> None:
        import botocore.session
        from botocore.validate import ParamValidator

        model = botocore.session.get_session().get_service_model("bedrock-runtime")
        shape = model.operation_model("ConverseStream").input_shape
        report = ParamValidator().validate({"modelId": "m", **_with_bytes(body)}, shape)
        assert not report.has_errors(), report.generate_report()

    def read(self, body: dict[str, Any]) -> Seen:
        config, output = body.get("inferenceConfig", {}), body.get("outputConfig", {})
        held = output.get("textFormat", {}).get("structure", {}).get("jsonSchema")
        fields = body.get("additionalModelRequestFields", {})
        seen = Seen(
            system="\n\n".join(block["text"] for block in body.get("system", []) if "text" in block),
            tools=[
                (tool["toolSpec"]["name"], tool["toolSpec"]["inputSchema"]["json"])
                for tool in body.get("toolConfig", {}).get("tools", [])
                if "toolSpec" in tool
            ],
            output=held and json.loads(held["schema"]),
            settings={
                "max_tokens": config.get("maxTokens"),
                "temperature": config.get("temperature"),
                "top_p": config.get("topP"),
                "stop": config.get("stopSequences"),
                "reasoning": fields.get("thinking", {}).get("budget_tokens", output.get("effort")),
            },
        )
        roles = [message["role"] for message in body["messages"]]
        assert all(one != other for one, other in itertools.pairwise(roles)), roles
        for message in body["messages"]:
            blocks = [block for block in message["content"] if "cachePoint" not in block]
            seen.parts.extend([_read_block(message["role"], block) for block in blocks])
        return seen


def _block(part: Says | Thinks | Calls) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    if isinstance(part, Says):
        return None, [{"text": piece} for piece in part.pieces]
    if isinstance(part, Calls):
        start = {"toolUse": {"toolUseId": part.id, "name": part.name}}
        return start, [{"toolUse": {"input": piece}} for piece in part.pieces]
    if part.encrypted is not None:
        hidden = base64.b64encode(part.encrypted.encode()).decode()
        return None, [{"reasoningContent": {"redactedContent": hidden}}]
    deltas = [{"reasoningContent": {"text": piece}} for piece in part.pieces]
    return None, [*deltas, {"reasoningContent": {"signature": part.signature}}]


def _with_bytes(value: Any) -> Any:
    """The request as the SDK got it: bytes instead of base64."""
    if isinstance(value, list):
        return [_with_bytes(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64decode(each) if key in ("bytes", "redactedContent") else _with_bytes(each)
        for key, each in value.items()
    }


def _read_block(role: str, block: dict[str, Any]) -> tuple[str, str, Any]:
    ((kind, value),) = block.items()
    match kind:
        case "text":
            return role, "text", value
        case "image" | "audio" | "video" | "document":
            source = value["source"]
            return role, kind, source.get("bytes") or source["s3Location"]["uri"]
        case "reasoningContent":
            if "redactedContent" in value:
                return role, "thinking", ("", None, base64.b64decode(value["redactedContent"]).decode())
            text = value["reasoningText"]
            return role, "thinking", (text["text"], text.get("signature"), None)
        case "toolUse":
            return role, "call", (value["toolUseId"], value["name"], value["input"])
        case "toolResult":
            inner = [_read_block(role, each)[1:] for each in value["content"]]
            return "tool", "error" if value.get("status") == "error" else "result", (value["toolUseId"], inner)
        case other:
            raise AssertionError(f"unknown block {other}")
