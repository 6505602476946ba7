"""Tests of the runtime: threads, streams and lifetimes."""
