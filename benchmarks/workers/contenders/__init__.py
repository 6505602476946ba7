"""The compared queues and workflow engines; each module is imported in its own environment."""
