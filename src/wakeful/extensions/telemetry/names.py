"""The names of OpenTelemetry's conventions for generative AI, as `opentelemetry-util-genai` emits them.

The conventions are in development: a change of theirs is a change of this module. Our own names begin with
`wakeful.`.
"""

from __future__ import annotations

from typing import Final

# Operations, which begin the names of spans.
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

# Attributes of all spans.
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT_NAME: Final = "gen_ai.agent.name"
AGENT_DESCRIPTION: Final = "gen_ai.agent.description"
CONVERSATION: Final = "gen_ai.conversation.id"
COMPACTED: Final = "gen_ai.conversation.compacted"
SESSION: Final = "session.id"
USER: Final = "user.id"
ERROR_TYPE: Final = "error.type"

# Requests to models.
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
TEMPERATURE: Final = "gen_ai.request.temperature"
TOP_P: Final = "gen_ai.request.top_p"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
STOP_SEQUENCES: Final = "gen_ai.request.stop_sequences"
SEED: Final = "gen_ai.request.seed"
REASONING_LEVEL: Final = "gen_ai.request.reasoning.level"
OUTPUT_TYPE: Final = "gen_ai.output.type"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"

# Tool calls.
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"

# Content, which is recorded on request.
SYSTEM: Final = "gen_ai.system_instructions"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
CAPTURE_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

# Ours. The usage of a whole run has names of ours: back ends add up the standard ones, and would count it twice.
RUN_ID: Final = "wakeful.run.id"
STATUS: Final = "wakeful.status"
WAITS_FOR: Final = "wakeful.waits_for"
TRIGGER: Final = "wakeful.trigger"
RECOVERED: Final = "wakeful.recovered"
ATTEMPT: Final = "wakeful.attempt"
CALL_STATE: Final = "wakeful.call.state"
PURPOSE: Final = "wakeful.purpose"
RUN_INPUT_TOKENS: Final = "wakeful.usage.input_tokens"
RUN_OUTPUT_TOKENS: Final = "wakeful.usage.output_tokens"
RUN_COST: Final = "wakeful.usage.cost"

# Metrics.
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
TIME_PER_CHUNK: Final = "gen_ai.client.operation.time_per_output_chunk"
TOOL_DURATION: Final = "gen_ai.execute_tool.duration"
AGENT_DURATION: Final = "gen_ai.invoke_agent.duration"

# The conventions' names of providers, by our vendors' names; others are called by ours.
_PROVIDERS: Final = {
    "openai-chat": "openai",
    "azure": "azure.ai.openai",
    "azure-responses": "azure.ai.openai",
    "anthropic-bedrock": "aws.bedrock",
    "bedrock": "aws.bedrock",
    "anthropic-vertex": "gcp.vertex_ai",
    "google-vertex": "gcp.vertex_ai",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}

_FINISH: Final = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_call"}


def model_names(name: str) -> tuple[str, str]:
    """The provider and the model of a model's name, such as `openai:gpt-5`."""
    vendor, colon, model = name.partition(":")
    if not colon:
        return "wakeful", name
    vendor = vendor.removesuffix("-responses") if vendor not in _PROVIDERS else vendor
    return _PROVIDERS.get(vendor, vendor), model


def finish_reason(stop: str) -> str:
    """The conventions' word for a stop reason."""
    return _FINISH.get(stop, stop)
