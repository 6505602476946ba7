"""The demo, `make demo`: a tour of the runtime, with a run that survives the kill of its process."""
