"""The pytest plugin, run in generated test suites."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\naddopts = -q --strict-markers -p no:cacheprovider\nfilterwarnings = error")
    return pytester


def outcomes(suite: pytest.Pytester, code: str, *lines: str) -> dict[str, int]:
    """Run a test file, check that its output has these lines, and count its outcomes."""
    suite.makepyfile(code)
    result = suite.runpytest_inprocess()
    if lines:
        result.stdout.fnmatch_lines([f"*{line}*" for line in lines])
    return result.parseoutcomes()


# -- scripted ------------------------------------------------------------------------------------------------


def test_scripted_fails_test_with_unused_turns(suite: pytest.Pytester) -> None:
    code = """
        def test_it(scripted):
            scripted("used by nobody", name="clerk")
    """
    assert outcomes(suite, code, "ScriptError: clerk: 1 of 1 turns were not used") == {"passed": 1, "errors": 1}


def test_scripted_models_play_their_turns(suite: pytest.Pytester) -> None:
    code = """
        import pytest
        from wakeful import Agent, Runtime

        @pytest.mark.wakeful
        async def test_it(scripted):
            one, two = scripted("one"), scripted("two", name="second")
            assert (one.name, two.name) == ("scripted", "second")
            async with Runtime([Agent("a", model=one), Agent("b", model=two)]) as runtime:
                assert (await runtime.run("a", "go")).text == "one"
                assert (await runtime.run("b", "go")).text == "two"
    """
    assert outcomes(suite, code) == {"passed": 1}


# -- async tests ---------------------------------------------------------------------------------------------


def test_marked_async_test_gets_loop_fixtures_and_parameters(suite: pytest.Pytester) -> None:
    code = """
        import asyncio
        import pytest

        @pytest.fixture
        def word():
            return "hello"

        @pytest.mark.wakeful
        @pytest.mark.parametrize("n", [1, 2])
        async def test_function(word, n, fake_clock):
            asyncio.get_running_loop()
            assert (word, n in (1, 2)) == ("hello", True)
            await fake_clock.advance(n)

        class TestClass:
            @pytest.mark.wakeful
            async def test_method(self, word):
                assert word == "hello"

        @pytest.mark.wakeful
        async def test_failure():
            await asyncio.sleep(0)
            assert False, "as it should"
    """
    assert outcomes(suite, code, "as it should") == {"passed": 3, "failed": 1}


def test_leaked_task_fails_test(suite: pytest.Pytester) -> None:
    code = """
        import asyncio
        import pytest

        kept = []  # A task that nobody holds may be gone any time.

        @pytest.mark.wakeful
        async def test_it():
            kept.append(asyncio.create_task(asyncio.Event().wait(), name="straggler"))
    """
    assert outcomes(suite, code, "LeakError: still running", "task straggler") == {"failed": 1}


def test_task_ending_with_test_is_no_leak(suite: pytest.Pytester) -> None:
    code = """
        import asyncio
        import pytest

        @pytest.mark.wakeful
        async def test_it():
            task = asyncio.create_task(asyncio.Event().wait())
            await asyncio.sleep(0)
            task.cancel()
    """
    assert outcomes(suite, code) == {"passed": 1}


def test_leaked_thread_fails_test(suite: pytest.Pytester) -> None:
    code = """
        import threading
        import pytest

        release = threading.Event()

        @pytest.mark.wakeful
        async def test_async():
            threading.Thread(target=release.wait, name="straggler").start()

        def test_release():
            release.set()
    """
    assert outcomes(suite, code, "thread straggler") == {"failed": 1, "passed": 1}


def test_asyncio_executor_threads_are_no_leak(suite: pytest.Pytester) -> None:
    code = """
        import asyncio
        import pytest

        @pytest.mark.wakeful
        async def test_it():
            assert await asyncio.to_thread(lambda: 1) == 1
    """
    assert outcomes(suite, code) == {"passed": 1}


def test_unmarked_async_test_is_left_to_other_plugins(suite: pytest.Pytester) -> None:
    code = """
        import pytest

        async def test_it():
            raise AssertionError("not ours to run")

        @pytest.mark.wakeful
        def test_sync():
            pass
    """
    suite.makeconftest(
        """
        import pytest

        @pytest.hookimpl
        def pytest_pyfunc_call(pyfuncitem):
            if pyfuncitem.name == "test_it":
                print("another plugin's")
                return True
        """
    )
    suite.makepyfile(code)
    result = suite.runpytest_inprocess("-s")
    result.stdout.fnmatch_lines(["*another plugin's*"])
    assert result.parseoutcomes() == {"passed": 2}


# -- the other fixtures --------------------------------------------------------------------------------------


def test_no_leaks_fails_sync_test_with_leaked_thread(suite: pytest.Pytester) -> None:
    code = """
        import threading

        release = threading.Event()

        def test_leak(no_leaks):
            threading.Thread(target=release.wait, name="straggler").start()

        def test_release():
            release.set()
    """
    assert outcomes(suite, code, "LeakError", "thread straggler") == {"passed": 2, "errors": 1}


LIVE = """
    import pytest
    from wakeful import Agent, Runtime
    from wakeful.models import StopChunk, TextChunk, check_live

    class Live:
        name, live = "acme:large", True

        async def stream(self, request):
            yield TextChunk("for money")
            yield StopChunk("end_turn")

    async def ask():
        async with Runtime([Agent("a", model=Live())]) as runtime:
            return await runtime.run("a", "go", check=False)
"""


def test_no_live_models_forbids_live_models_for_one_test(suite: pytest.Pytester, no_live_models: None) -> None:
    code = f"""{LIVE}
    from wakeful.testing import forbid_live_models

    @pytest.fixture(autouse=True, scope="module")
    def allowed():
        before = forbid_live_models(False)
        yield
        forbid_live_models(before)

    @pytest.mark.wakeful
    async def test_forbidden(no_live_models):
        assert (await ask()).termination.error == "LiveModelForbidden"

    @pytest.mark.wakeful
    async def test_allowed_again():
        assert (await ask()).text == "for money"
    """
    assert outcomes(suite, code) == {"passed": 2}


def test_fixtures_are_listed_with_descriptions(suite: pytest.Pytester) -> None:
    result = suite.runpytest_inprocess("--fixtures")
    for name in ("scripted", "fake_clock", "no_leaks", "no_live_models"):
        result.stdout.fnmatch_lines([f"{name} *"])


def test_wakeful_marker_is_registered(suite: pytest.Pytester) -> None:
    suite.runpytest_inprocess("--markers").stdout.fnmatch_lines(["@pytest.mark.wakeful: run this async test*"])
