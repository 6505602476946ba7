"""Small, complete programs to copy from; each runs with `python -m examples.<name>`."""
