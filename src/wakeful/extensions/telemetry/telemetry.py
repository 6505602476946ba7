"""The configuration of traces and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ConfigurationError
from ...errors.arguments import checked
from ...traces import Tracer

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["Telemetry"]


class Telemetry:
    """Reports runs to OpenTelemetry: `Runtime(agents, telemetry=Telemetry())`.

    Spans and metrics go to the providers, by default to the process's global ones, which the application sets up.
    With `content` the spans have instructions, messages, arguments and results; by default the environment
    variable `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` decides. Raises `ConfigurationError` without the
    extra `telemetry`.
    """

    @checked
    def __init__(
        self,
        *,
        content: bool | None = None,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        if content not in (None, True, False):
            raise ConfigurationError(f"content is True, False or None, not {content!r:.80}")
        self.tracer: Tracer = _load(content, tracer_provider, meter_provider)


def _load(content: bool | None, *providers: Any) -> Tracer:
    try:
        from .tracer import OpenTelemetryTracer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        raise ConfigurationError(
            "Telemetry needs the package 'opentelemetry-api', which isn't installed: "
            "pip install 'wakeful[telemetry]'"
        ) from None
    return OpenTelemetryTracer(content, *providers)
