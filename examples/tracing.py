"""Traces of a run that waits for an approval: each activation is a span of its own, in one trace."""

import asyncio

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from wakeful import Agent, Runtime, ScriptedModel, call, tool
from wakeful.extensions.telemetry import Telemetry


class Printer(SpanExporter):
    """Prints each span; an `OTLPSpanExporter` would send it."""

    def export(self, spans) -> SpanExportResult:
        for span in spans:
            print(span.name, (span.attributes or {}).get("wakeful.status", "-"), len(span.links))
        return SpanExportResult.SUCCESS


@tool(effect="idempotent", approval=True)
async def pay(payee: str) -> str:
    """Pay somebody."""
    return f"{payee} is paid"


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Printer()))
clerk = Agent("clerk", model=ScriptedModel([call("pay", payee="Ann"), "Ann is paid."]), tools=[pay])
runtime = Runtime([clerk], telemetry=Telemetry(tracer_provider=provider))


async def main() -> None:
    waiting = await runtime.run("clerk", "Pay Ann.")
    await runtime.resume(waiting.run_id, waiting.tickets[0].approve())


if __name__ == "__main__":
    asyncio.run(main())
