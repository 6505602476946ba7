"""Chaos tests: workers, database and bus are killed, paused and restarted under load."""
