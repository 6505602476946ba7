"""Benchmarks of worker fleets: throughput, dispatch latency and idle cost."""
