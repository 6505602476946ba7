"""A conversation at the terminal: prompts, answers and decisions."""

from __future__ import annotations

from ..errors import InvalidDecision, UnknownAgent, UsageError, WakefulError
from ..runtime import Runtime
from .prompts import Ask, decide
from .render import Renderer
from .session import Session, Turn
from .waits import WITHDRAWN, outlook

__all__ = ["Chat", "choose_agent"]

_HELP = "/exit or ctrl-D leaves, ctrl-C cancels a run, everything else goes to the agent"


class Chat:
    """A conversation with an agent on one thread."""

    def __init__(self, session: Session, renderer: Renderer, ask: Ask, agent: str, thread: str) -> None:
        self._session = session
        self._renderer = renderer
        self._ask = ask
        self._agent = agent
        self._thread = thread

    def run(self) -> None:
        """Talk until the person leaves. A run that waits on the thread is settled first."""
        self._renderer.line(f"{self._agent} on thread {self._thread}", "bold")
        self._renderer.note(_HELP)
        turn = self._session.waiting(self._thread)
        try:
            if turn is not None:
                self._settle(turn)
            while True:
                try:
                    self._round()
                except KeyboardInterrupt:
                    self._interrupted("/exit or ctrl-D leaves")
        except EOFError:
            self._renderer.end_line()

    def _round(self) -> None:
        """Run one prompt until its run is done or left open."""
        line = self._line("> ", "").strip()
        if line.startswith("/"):
            self._renderer.note(_HELP)
        elif line:
            self._talk(line)

    def _talk(self, line: str) -> None:
        try:
            turn = self._session.prompt(self._agent, line, self._thread)
        except WakefulError as error:
            self._renderer.error(str(error))
        else:
            self._settle(turn)

    def _settle(self, turn: Turn) -> None:
        """Ask about the run's tickets until it is done, or the person leaves them open."""
        later: set[str] = set()
        try:
            while ticket := next((t for t in turn.tickets if t.id not in later), None):
                decision = decide(ticket, self._line, self._renderer)
                try:
                    if decision is None:
                        later.add(ticket.id)
                    else:
                        self._session.answer(turn, decision)
                except InvalidDecision as error:
                    self._renderer.error(str(error))
                except WakefulError as error:
                    self._renderer.error(str(error))
                    later.add(ticket.id)
        except KeyboardInterrupt:
            self._interrupted("left for later")
        self._agent = turn.agent_id or self._agent
        if turn.withdrawn:
            self._renderer.status("cancelled", WITHDRAWN)
        elif turn.waiting is not None:
            self._renderer.note(outlook(turn, turn.waiting))

    def _line(self, label: str, begun: str) -> str:
        """Read the next line. The person may leave at any prompt, as with ctrl-D."""
        line = self._ask(label, begun)
        if line.strip() in ("/exit", "/quit"):
            raise EOFError
        return line

    def _interrupted(self, hint: str) -> None:
        self._renderer.interrupted()
        self._renderer.note(hint)


def choose_agent(runtime: Runtime, asked: str | None, last: str | None) -> str:
    """The agent to talk to: the one asked for, else the thread's last one, else the only one."""
    known = sorted(runtime.agents)
    if asked is not None and asked not in runtime.agents:
        raise UnknownAgent(f"unknown agent {asked!r} (known: {', '.join(known)})")
    if asked is not None:
        return asked
    if last is not None and last in runtime.agents:
        return last
    if len(known) == 1:
        return known[0]
    raise UsageError(f"this runtime has {len(known)} agents; say which one to talk to: {', '.join(known)}")
