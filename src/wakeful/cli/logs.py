"""The runtime's log on the terminal."""

from __future__ import annotations

import logging

__all__ = ["show_log"]


def show_log() -> None:
    """Write the runtime's log to standard error, from INFO on: a process that serves says what it recovered."""
    log = logging.getLogger("wakeful")
    if not log.handlers:
        log.addHandler(logging.StreamHandler())
    log.setLevel(logging.INFO)
