"""The commands of `wakeful`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from .. import __version__
from ..errors import UsageError
from ..runtime import Runtime
from ..types.codec import encode
from ..types.events import AnyEvent
from ..types.ids import new_id
from .acp import acp
from .agents import agents_app
from .assistant import PLAIN, runtime_for
from .chat import Chat, choose_agent
from .exit_codes import ExitCode, exit_code, reported
from .grants import grants_app
from .keys import audit, keys_app
from .mail import mail_app
from .memories import memories_app
from .models import models_app
from .policy import policy_app
from .prompts import ask_terminal
from .render import Renderer
from .runs import runs_app
from .schedules import schedules_app
from .serve import serve
from .session import Session, Turn
from .store import store_app
from .tasks import tasks_app
from .threads import threads_app
from .tickets import tickets_app
from .top import top
from .up import up
from .usage import usage
from .waits import WITHDRAWN, explain_queued, explain_waiting
from .worker import worker
from .workers import workers_app

__all__ = ["app"]

app = typer.Typer(
    name="wakeful",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for noun in (
    runs_app,
    threads_app,
    tickets_app,
    grants_app,
    policy_app,
    tasks_app,
    mail_app,
    schedules_app,
    memories_app,
    workers_app,
    agents_app,
    models_app,
    keys_app,
    store_app,
):
    app.add_typer(noun)

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:RUNTIME", help="Where the runtime is, such as app:runtime.", show_default=False
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="Talk to a plain assistant on this model; no module is needed."),
]
Thread = Annotated[str | None, typer.Option("--thread", metavar="ID", help="The thread; a new one by default.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"wakeful {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run durable agents."""


@app.command()
def run(
    target: Target = None,
    agent: Annotated[
        str | None, typer.Argument(metavar="AGENT", help="The agent's id.", show_default=False)
    ] = None,
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="What to say to it.", show_default=False)
    ] = None,
    model: ModelName = None,
    thread: Thread = None,
    json: Annotated[bool, typer.Option("--json", help="Print every event as a line of JSON.")] = False,
) -> None:
    """Run an agent once and show what it does.

    With --model the prompt alone is enough: wakeful run --model local:smollm2 "Hello"

    The exit code says how the run ended: 0 done, 1 failed, 2 wrong usage,
    3 waiting for an answer, 4 stopped by a policy or limit, 5 blocked,
    130 cancelled.
    """
    renderer = Renderer()
    with reported(renderer):
        if model is not None and target is not None and agent is None:
            target, agent, prompt = None, PLAIN, target
        runtime = runtime_for(target, model)
        if model is not None and prompt is None:
            raise UsageError(f'say what to ask it: wakeful run --model {shlex.quote(model)} "Hello"')
        if agent is None or prompt is None:
            known = ", ".join(sorted(runtime.agents))
            raise UsageError(
                "say which agent to run, and what to say to it: "
                f'wakeful run {shlex.quote(target or "app:runtime")} AGENT "Hello" (agents: {known})'
            )
        show = _print_json if json else renderer.show
        with _session(runtime, renderer, show) as session:
            turn = session.prompt(agent, prompt, thread)
        if not json and turn.waiting is not None:
            explain_waiting(renderer, turn, target or "app:runtime", kept=runtime.store.durable)
    if turn.withdrawn:
        renderer.status("cancelled", WITHDRAWN)
        raise typer.Exit(ExitCode.CANCELLED)
    raise typer.Exit(exit_code(turn.finish))


@app.command()
def chat(
    target: Target = None,
    agent: Annotated[
        str | None, typer.Argument(metavar="AGENT", help="The agent's id; not needed if there is only one.")
    ] = None,
    model: ModelName = None,
    thread: Thread = None,
) -> None:
    """Talk to an agent, and answer its runs' tickets in place."""
    renderer = Renderer()
    with reported(renderer):
        runtime = runtime_for(target, model)
        with _session(runtime, renderer, renderer.show) as session:
            last = session.last_run(thread) if thread is not None else None
            chosen = choose_agent(runtime, agent, None if last is None else last.agent_id)
            runtime.agents.check_credentials(chosen)
            Chat(session, renderer, ask_terminal, chosen, thread or new_id()).run()


for command in (serve, acp, worker, up, top, usage, audit):
    app.command()(command)


def _print_json(event: AnyEvent) -> None:
    sys.stdout.buffer.write(encode(event) + b"\n")
    sys.stdout.buffer.flush()


def _session(runtime: Runtime, renderer: Renderer, show: Callable[[AnyEvent], None]) -> Session:
    def cancelling(turn: Turn) -> None:
        does = "cancelling the run" if turn.behind is None else "taking the prompt back"
        renderer.interrupted()
        renderer.warn(f"{does}; ctrl-C again leaves at once")

    return Session(runtime, show, lambda behind: explain_queued(renderer, behind), cancelling)
