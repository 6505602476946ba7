"""Crash tests: processes are killed and the store is checked."""
