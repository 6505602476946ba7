"""Small complete programs to copy from; run one with `python -m examples.<name>`."""
