"""A traced run that exports its spans over OTLP. `test_phoenix.py` runs it in Phoenix's own environment.

Usage: python phoenix_sample.py URL
"""

from __future__ import annotations

import asyncio
import sys

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from wakeful import Agent, Runtime, ScriptedModel, Turn, Usage, call, tool
from wakeful.extensions.telemetry import Telemetry


@tool
async def weather(city: str) -> str:
    """Today's weather in a city."""
    return f"Sunny in {city}"


async def main(url: str) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
    asked = Turn(calls=[call("weather", city="Rome")], usage=Usage(input_tokens=20, output_tokens=5))
    answered = Turn(text="Sunny.", usage=Usage(input_tokens=40, output_tokens=3, cached_tokens=16))
    agent = Agent("forecaster", model=ScriptedModel([asked, answered], name="openai:gpt-5"), tools=[weather])
    runtime = Runtime([agent], telemetry=Telemetry(content=True, tracer_provider=provider))
    await runtime.run("forecaster", "Rome?", thread="trip")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
