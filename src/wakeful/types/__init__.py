"""Plain data: what threads, runs, messages and events are made of. No I/O."""
