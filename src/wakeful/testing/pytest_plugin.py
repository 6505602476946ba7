"""The pytest plugin: fixtures and a marker for tests of agents."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..models import ScriptedModel
    from . import FakeClock

__all__ = ["fake_clock", "no_leaks", "no_live_models", "scripted"]


def pytest_configure(config: pytest.Config) -> None:
    """Register the `wakeful` marker."""
    config.addinivalue_line("markers", "wakeful: run this async test on an event loop and check for leaks")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test that is marked `wakeful`; leave others to other plugins."""
    if pyfuncitem.get_closest_marker("wakeful") is None or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    from . import Leaks

    names = pyfuncitem._fixtureinfo.argnames  # pyright: ignore[reportPrivateUsage]
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    leaks = Leaks()

    async def body() -> None:
        await pyfuncitem.obj(**arguments)
        await asyncio.sleep(0)
        await asyncio.get_running_loop().shutdown_default_executor()
        leaks.check()

    asyncio.run(body())
    return True


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedModel]]:
    """Factory of scripted models, `scripted("hello")`; the test fails if a model has unused turns."""
    from ..models import ScriptedModel

    made: list[ScriptedModel] = []

    def make(*turns: Any, name: str = "scripted") -> ScriptedModel:
        made.append(ScriptedModel(turns, name=name))
        return made[-1]

    yield make
    for model in made:
        model.verify()


@pytest.fixture
def fake_clock() -> FakeClock:
    """A fake clock."""
    from . import FakeClock

    return FakeClock()


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Fail a test that leaves threads running; async tests marked `wakeful` also check tasks."""
    from . import Leaks

    leaks = Leaks()
    yield
    leaks.check()


@pytest.fixture
def no_live_models() -> Iterator[None]:
    """Fail every call to a live model."""
    from ..models import forbid_live_models

    before = forbid_live_models()
    yield
    forbid_live_models(before)
