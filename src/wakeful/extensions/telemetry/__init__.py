"""Traces and metrics for OpenTelemetry, by its conventions for generative AI; needs the extra `telemetry`.

Extensions that send requests call `trace_headers` in the call's context, and put the result into their headers or
metadata. It works without the extra, and is empty then.
"""

from ...traces import trace_headers as trace_headers
from .telemetry import Telemetry as Telemetry
