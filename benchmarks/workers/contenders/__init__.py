"""The queues and workflow engines that are compared; each module is imported in an environment of its own."""
