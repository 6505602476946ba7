"""Chaos: real processes, whose workers, database and bus are killed, paused and restarted while they work."""
