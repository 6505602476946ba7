"""The demo, `make demo`: a run that outlives the processes that run it, and what else the runtime does."""
