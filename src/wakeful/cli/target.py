"""Import of the runtime that `module:runtime` names."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from types import ModuleType
from typing import Any

from ..errors import UsageError, WakefulError
from ..runtime import Runtime
from ..stores.factory import replace_store

__all__ = ["TargetError", "load_runtime"]


MAX_NAMES = 20


class TargetError(UsageError):
    """`module:runtime` doesn't lead to a runtime."""


def load_runtime(target: str, store: str | None = None) -> Runtime:
    """Import the module, with the current directory on the path, and return its runtime.

    The name may also be that of a function without arguments that returns a runtime. With a `store`, the runtime
    uses that one, and a store that the module names by its path or URL isn't opened.
    """
    if store:
        with replace_store(store) as is_replaced:
            runtime = load_runtime(target)
        return runtime if is_replaced(runtime.store) else runtime.as_worker(store=store)
    module_name, _, name = target.partition(":")
    dotted = _dotted(module_name)
    if not module_name or not name:
        raise TargetError(f"{target!r} names no runtime; write module:name, such as {dotted or 'app'}:runtime")
    if dotted != module_name:
        raise TargetError(f"{module_name!r} is not a module's name; write it with dots: {dotted}:{name}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return _runtime_of(_import(module_name), name)


def _dotted(path: str) -> str:
    """The module name for the path of a file."""
    return path.removesuffix(".py").replace("\\", "/").replace("/", ".").strip(".")


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise TargetError(_not_found(name, error.name)) from None
        raise TargetError(_failed(f"module {name!r} can't be imported", error)) from error
    except (Exception, SystemExit) as error:
        raise TargetError(_failed(f"module {name!r} can't be imported", error)) from error


def _not_found(name: str, missing: str) -> str:
    part = "" if name == missing else f" for {name!r}"
    return f"no module named {missing!r}{part}, neither in the current directory nor installed"


def _failed(what: str, error: BaseException) -> str:
    """The reason why the application's code failed, with the location for exceptions that aren't wakeful's."""
    text = f"{what}: {type(error).__name__}: {error}"
    if isinstance(error, WakefulError):
        return text
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename != __file__ and not f.filename.startswith("<frozen importlib")]
    own = [f for f in own if f.filename != importlib.__file__]
    if isinstance(error, SyntaxError) or not own:
        return text
    return f"{text}\n{''.join(traceback.format_list(own)).rstrip()}"


def _runtime_of(module: ModuleType, name: str) -> Runtime:
    if not hasattr(module, name):
        raise TargetError(f"module {module.__name__!r} has no {name!r}; {_inventory(module)}")
    found: Any = getattr(module, name)
    where = f"{module.__name__}:{name}"
    if inspect.isfunction(found):
        found = _call(found, where)
        where += "()"
    if inspect.iscoroutine(found):
        found.close()
        raise TargetError(f"{where} is a coroutine; the function must not be async, and return the runtime")
    if not isinstance(found, Runtime):
        raise TargetError(f"{where} is {_describe(found)}, not a Runtime; {_inventory(module)}")
    return found


def _call(function: Any, where: str) -> Any:
    needed = [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed:
        raise TargetError(
            f"{where} is a function that needs {', '.join(needed)}; one without arguments that returns a Runtime "
            "would be called"
        )
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise TargetError(_failed(f"{where}() failed", error)) from error


def _describe(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else f"of type {type(value).__name__}"


def _inventory(module: ModuleType) -> str:
    """The runtimes of a module, and the other names that it defines."""
    public = {n: v for n, v in vars(module).items() if not n.startswith("_") and _defined_in(module, v)}
    runtimes = sorted(n for n, v in public.items() if isinstance(v, Runtime))
    others = sorted(n for n in public if n not in runtimes)
    more = f" and {len(others) - MAX_NAMES} more" if len(others) > MAX_NAMES else ""
    listed = f"; other names: {', '.join(others[:MAX_NAMES])}{more}" if others else ""
    return f"runtimes there: {', '.join(runtimes) or 'none'}{listed}"


def _defined_in(module: ModuleType, value: Any) -> bool:
    if isinstance(value, type) or inspect.isroutine(value):
        return value.__module__ == module.__name__
    return not isinstance(value, ModuleType)
