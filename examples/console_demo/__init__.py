"""A store with living examples for the web console: `make console-demo`."""
