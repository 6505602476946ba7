"""A real browser, driven through the command loop of `console/tools/browser.mjs`."""

from __future__ import annotations

import json
import subprocess
import threading
from typing import Any

from tools.build_console import CONSOLE

__all__ = ["Browser", "BrowserError", "Tab"]

PATIENCE = 300  # Only a browser that hangs is killed, not a slow one.


class BrowserError(Exception):
    """A command failed in the browser."""


class Browser:
    """A browser process. Tabs of two names have storage of their own; `a/2` is a second tab beside `a`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", "tools/browser.mjs"],
            cwd=CONSOLE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._last = 0
        self._errors: list[str] = []
        self._stderr = threading.Thread(target=self._read_errors)
        self._stderr.start()
        self.version = self._read(0)

    def tab(self, name: str) -> Tab:
        """A tab, which is opened if it isn't."""
        return Tab(self, name)

    def command(self, **command: Any) -> Any:
        """Run a command, and return its value."""
        self._last += 1
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": self._last, **command}) + "\n")
        self._process.stdin.flush()
        return self._read(self._last)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.join()
        self._process.stdout.close()

    def _read(self, number: int) -> Any:
        assert self._process.stdout is not None
        watchdog = threading.Timer(PATIENCE, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
            watchdog.join()
        if not line:
            raise BrowserError("the browser ended: " + "".join(self._errors)[-2000:])
        reply = json.loads(line)
        assert reply["id"] == number
        if "error" in reply:
            raise BrowserError(reply["error"])
        return reply["value"]

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._errors.append(line)


class Tab:
    """One tab. Waits are for what a person would see, up to 15 seconds."""

    def __init__(self, browser: Browser, name: str) -> None:
        self._browser = browser
        self._name = name

    def run(self, code: str, **arguments: Any) -> Any:
        """Run a script with playwright's `page`, `problems` (errors of the console) and these arguments."""
        return self._browser.command(tab=self._name, code=code, args=arguments)

    def open(self, url: str) -> Tab:
        """Go to a URL."""
        self.run("await page.goto(url)", url=url)
        return self

    def see(self, text: str, within: str = "body", timeout: float = 15) -> None:
        """Wait until a visible element below a selector has a text."""
        self.run(
            "await page.locator(within).getByText(text).filter({ visible: true }).first().waitFor({ timeout })",
            text=text,
            within=within,
            timeout=timeout * 1000,
        )

    def see_none(self, text: str, within: str = "body") -> None:
        """Wait until no visible element below a selector has a text."""
        code = """
        const found = page.locator(within).getByText(text).filter({ visible: true });
        for (let i = 0; await found.count(); i++) {
          if (i > 600) throw new Error(`still there: ${text}`);
          await page.waitForTimeout(50);
        }
        """
        self.run(code, text=text, within=within)

    def click(self, name: str, role: str = "button", within: str = "body") -> None:
        """Click the first element of a role with a name."""
        code = "await page.locator(within).getByRole(role, { name }).filter({ visible: true }).first().click()"
        self.run(code, name=name, role=role, within=within)

    def fill(self, label: str, text: str, within: str = "body") -> None:
        """Fill a field."""
        code = "await page.locator(within).getByLabel(label).filter({ visible: true }).first().fill(text)"
        self.run(code, label=label, text=text, within=within)

    def press(self, *keys: str) -> None:
        """Press keys, such as `j`."""
        self.run("for (const key of keys) await page.keyboard.press(key)", keys=keys)

    def text(self, selector: str = "main") -> str:
        """The visible text of an element."""
        found: str = self.run("return await page.locator(selector).first().innerText()", selector=selector)
        return found

    def count(self, selector: str) -> int:
        """How many elements match at present."""
        found: int = self.run("return await page.locator(selector).count()", selector=selector)
        return found

    def until(self, condition: str, timeout: float = 15, **arguments: Any) -> None:
        """Wait until an expression is true in the page; it may use `given`, the arguments."""
        code = """
        const script = `((given) => ${condition})(${JSON.stringify(given)})`;
        for (const end = Date.now() + timeout; !(await page.evaluate(script)); await page.waitForTimeout(30))
          if (Date.now() > end) throw new Error(`still not true: ${condition}`);
        """
        self.run(code, condition=condition, given=arguments, timeout=timeout * 1000)

    def evaluate(self, script: str, **arguments: Any) -> Any:
        """Evaluate the body of an async function in the page; it may use `given`, the arguments."""
        code = "return await page.evaluate(`(async (given) => { ${script} })(${JSON.stringify(given)})`)"
        return self.run(code, script=script, given=arguments)

    def resize(self, width: int, height: int = 800) -> None:
        """Set the size of the window."""
        self.run("await page.setViewportSize({ width, height })", width=width, height=height)

    @property
    def problems(self) -> list[str]:
        """The errors that the page reported until now."""
        found: list[str] = self.run("return problems.splice(0)")
        return found
