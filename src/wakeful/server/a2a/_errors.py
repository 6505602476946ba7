"""Our errors as A2A's: what went wrong and what to do, and nothing of the inside."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

from a2a.utils.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from ...errors import CannotResume, RunNotWaiting, RuntimeClosed, StoreError, UnknownRun, UsageError, report
from ...types.ids import new_id
from .._serving import TooManyStreams

__all__ = ["no_task", "told"]

_log = logging.getLogger("wakeful.server")


def no_task(task_id: str) -> TaskNotFoundError:
    """Also for a task of somebody else's: whoever asks can't tell the two apart."""
    return TaskNotFoundError(f"no task {task_id!r:.80}; the server chooses ids: send a message without one")


@contextmanager
def told() -> Generator[None]:
    """Errors that leave this are A2A's. One that isn't foreseen is logged; its caller is told where to look."""
    try:
        yield
    except A2AError:
        raise
    except UnknownRun as error:
        raise TaskNotFoundError(str(error)) from None
    except (TooManyStreams, RunNotWaiting, CannotResume) as error:
        raise UnsupportedOperationError(str(error)) from None
    except RuntimeClosed:
        raise InternalError("the server is stopping; send the message again, with the same id") from None
    except UsageError as error:
        raise InvalidParamsError(str(error)) from None
    except Exception as error:
        number = new_id()
        report(_log, error, "request failed (%s)", number)
        why = "the store didn't answer" if isinstance(error, StoreError) else "the server failed"
        raise InternalError(f"{why}; try again, or look for {number} in the server's log") from None
