"""The HTTP server against a bare Starlette handler: `python -m benchmarks.http`."""
