"""Translation of wakeful's errors into A2A errors, without internals."""

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

from ...errors import (
    CannotResume,
    NotAllowed,
    Overloaded,
    RunNotWaiting,
    RuntimeClosed,
    StoreError,
    UnknownRun,
    UsageError,
    report,
)
from ...types.ids import new_id

__all__ = ["no_task", "translate_errors"]

_log = logging.getLogger("wakeful.server")


def no_task(task_id: str) -> TaskNotFoundError:
    """The error for an unknown task; it is the same for a task of another principal."""
    return TaskNotFoundError(f"no task {task_id!r:.80}; the server chooses ids: send a message without one")


@contextmanager
def translate_errors() -> Generator[None]:
    """Translate errors into A2A errors; an unexpected one is logged under an id that the caller gets."""
    try:
        yield
    except A2AError:
        raise
    except UnknownRun as error:
        raise TaskNotFoundError(str(error)) from None
    except (Overloaded, RunNotWaiting, CannotResume, NotAllowed) as error:
        raise UnsupportedOperationError(str(error)) from None
    except RuntimeClosed:
        raise InternalError("the server is stopping; send the message again, with the same id") from None
    except UsageError as error:
        raise InvalidParamsError(str(error)) from None
    except Exception as error:
        error_id = new_id()
        report(_log, error, "request failed (%s)", error_id)
        reason = "the store didn't answer" if isinstance(error, StoreError) else "the server failed"
        raise InternalError(f"{reason}; try again, or look for {error_id} in the server's log") from None
