"""The metrics of the conventions: durations and tokens of agents, model requests and tool calls."""

from __future__ import annotations

from opentelemetry.metrics import MeterProvider, get_meter_provider

from . import names

__all__ = ["Instruments", "Labels"]

Labels = dict[str, str]

_SECONDS = [0.01 * 2**power for power in range(14)]
_AGENT_SECONDS = [0.1 * 2**power for power in range(13)]
_TOKENS = [4**power for power in range(14)]


class Instruments:
    """The instruments of one meter."""

    def __init__(self, provider: MeterProvider | None) -> None:
        meter = (provider or get_meter_provider()).get_meter("wakeful")

        def histogram(name: str, text: str, unit: str = "s", bounds: list[float] = _SECONDS):
            return meter.create_histogram(name, unit, text, explicit_bucket_boundaries_advisory=bounds)

        self.agent = histogram(names.AGENT_DURATION, "Duration of an agent's activation.", bounds=_AGENT_SECONDS)
        self.operation = histogram(names.OPERATION_DURATION, "Duration of a request to a model.")
        self.first_chunk = histogram(names.TIME_TO_FIRST_CHUNK, "Time to the first chunk of an answer.")
        self.next_chunk = histogram(names.TIME_PER_CHUNK, "Time from one chunk of an answer to the next.")
        self.tool = histogram(names.TOOL_DURATION, "Duration of a tool call.")
        self.tokens = histogram(names.TOKEN_USAGE, "Tokens of a request to a model.", "{token}", [*_TOKENS])
