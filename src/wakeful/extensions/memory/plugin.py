"""The plugin that gives an agent long-term memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from ...errors import Conflict, ToolError
from ...errors.arguments import checked
from ...plugins import BeforeInference, Plugin
from ...state import AnyKey
from ...tools import Memories, Tool, ToolContext, tool
from ...types.messages import Message, user_message
from ...types.records import MAX_KEY, MAX_TEXT, MemoryNote, MemoryScope, memory_id, memory_prefix
from ...types.runs import Identity, Principal
from ..permissions import Taint
from .recall import choose, show

__all__ = ["Memory"]

SCOPES = ("user", "agent", "thread")
# How many calls a note remembers as its writers, and how often a write that another one overtook is tried.
WRITES = 8
ATTEMPTS = 10
# The most notes that a query returns, and that are looked at for a request.
FOUND = 20
# Texts recalled for the latest runs, so that every request of a run is shown the same.
CACHED = 256

_ABOUT: dict[str, str] = {
    "user": "the user of this conversation, over all conversations",
    "agent": "your own work, for all users",
    "thread": "this conversation",
}


class Memory(Plugin):
    """Gives an agent notes that outlive its runs, each a text under a key.

    - `scope`: notes about the `user`, whom the run's principal is, of the `agent`, or of the `thread`.
    - `recall="tool"`: the model looks notes up with a tool. `"auto"`: the notes that fit the last message are
      shown with each request, up to `budget` tokens.
    - `tools`: the model may write notes. Without it they are read only.
    - `limit`: the most notes of one user, agent or thread.

    Notes that were written where untrusted text was read are marked, and mark the conversations that recall them.
    """

    keys: ClassVar[Sequence[AnyKey]] = (Taint,)

    @checked
    def __init__(
        self,
        scope: MemoryScope = "user",
        *,
        recall: Literal["tool", "auto"] = "tool",
        tools: bool = True,
        budget: int = 800,
        limit: int = 1000,
    ) -> None:
        self._scope: MemoryScope = scope
        self._recall = recall
        self._writes = tools
        self._budget = budget
        self._limit = limit
        self._shown: dict[tuple[str, str], tuple[str, bool]] = {}

    @property
    def label(self) -> str:
        """The plugin's name with its scope."""
        return f"memory.{self._scope}"

    def problems(self, agents: Mapping[str, Mapping[str, Tool]], configs: Mapping[str, Any]) -> Sequence[str]:
        """List the wrong options."""
        found: list[str] = []
        if self._scope not in SCOPES:
            found.append(f"Memory: scope is one of {', '.join(SCOPES)}, not {self._scope!r:.80}")
        if self._recall not in ("tool", "auto"):
            found.append(f"Memory: recall is 'tool' or 'auto', not {self._recall!r:.80}")
        for name, value in (("budget", self._budget), ("limit", self._limit)):
            if type(value) is not int or not 1 <= value <= 100_000:
                found.append(f"Memory: {name} is a whole number from 1 to 100,000, not {value!r:.80}")
        return found

    def tools(self) -> Sequence[Tool]:
        """The tools to write, forget and look up notes."""
        about = _ABOUT.get(self._scope, "")

        @tool(
            name=f"remember_{self._scope}",
            description=f"Keep a note about {about}. A note with the same key is replaced.",
            effect="idempotent",
        )
        async def remember(key: str, text: str, ctx: ToolContext) -> str:
            return await self._remember(ctx, key, text)

        @tool(
            name=f"forget_{self._scope}",
            description=f"Delete the note under a key about {about}.",
            effect="idempotent",
        )
        async def forget(key: str, ctx: ToolContext) -> str:
            return await self._forget(ctx, key)

        @tool(
            name=f"recall_{self._scope}",
            description=f"Look up notes about {about} by words. An empty query lists the newest ones.",
            effect="pure",
        )
        async def recall(query: str, ctx: ToolContext) -> list[dict[str, Any]]:
            return await self._look_up(ctx, query)

        return [*([remember, forget] if self._writes else []), *([recall] if self._recall == "tool" else [])]

    # -- tools -----------------------------------------------------------------------------------------------

    async def _remember(self, ctx: ToolContext, key: str, text: str) -> str:
        if not 1 <= len(key) <= MAX_KEY or not 1 <= len(text) <= MAX_TEXT:
            raise ToolError(
                f"a key has 1 to {MAX_KEY} characters and a note 1 to {MAX_TEXT:,}; these have {len(key):,} and "
                f"{len(text):,}: shorten them, or keep several notes"
            )
        scope_id = self._owner(ctx.run, ctx.principal)
        note_id, call = memory_id(self._scope, scope_id, key), ctx.idempotency_key
        for _ in range(ATTEMPTS):
            found = await ctx.memories.get(note_id)
            if found is not None and call in found.writes:
                return "remembered"  # By an earlier attempt at this call.
            if found is None:
                await self._check_room(ctx.memories, scope_id)
            note = MemoryNote(
                id=note_id,
                scope=self._scope,
                scope_id=scope_id,
                key=key,
                text=text,
                tainted=bool(ctx.state[Taint]),
                agent_id=ctx.run.agent_id,
                run_id=ctx.run.run_id,
                created_at=ctx.now if found is None else found.created_at,
                updated_at=ctx.now,
                writes=(call,) if found is None else (call, *found.writes)[:WRITES],
                revision=1 if found is None else found.revision + 1,
            )
            try:
                await ctx.memories.write(put=note)
            except Conflict:
                continue  # Another run wrote it meanwhile.
            return "remembered"
        raise ToolError(f"the note {key!r} is written by many runs at once; try again later")

    async def _forget(self, ctx: ToolContext, key: str) -> str:
        note_id = memory_id(self._scope, self._owner(ctx.run, ctx.principal), key)
        for _ in range(ATTEMPTS):
            found = await ctx.memories.get(note_id)
            if found is None:
                return f"nothing is remembered under {key!r}"
            try:
                await ctx.memories.write(removed=found)
            except Conflict:
                continue
            return "forgotten"
        raise ToolError(f"the note {key!r} is written by many runs at once; try again later")

    async def _look_up(self, ctx: ToolContext, query: str) -> list[dict[str, Any]]:
        prefix = memory_prefix(self._scope, self._owner(ctx.run, ctx.principal))
        if query.strip():
            notes = await ctx.memories.find(prefix, query, FOUND)
        else:
            notes = await ctx.memories.list(prefix, FOUND)
        if any(note.tainted for note in notes):
            ctx.update(Taint, self.label)
        untrusted = {"source": "untrusted text"}
        return [{"key": n.key, "text": n.text, **(untrusted if n.tainted else {})} for n in notes]

    async def _check_room(self, memories: Memories, scope_id: str) -> None:
        notes = await memories.list(memory_prefix(self._scope, scope_id), self._limit)
        if len(notes) >= self._limit:
            raise ToolError(f"the memory is full, with {self._limit:,} notes; forget some first")

    def _owner(self, run: Identity, principal: Principal | None) -> str:
        found = self._owner_or_none(run, principal)
        if found is None:
            raise ToolError("the user is unknown: the run has no principal, so nothing is kept about a user")
        return found

    def _owner_or_none(self, run: Identity, principal: Principal | None) -> str | None:
        if self._scope == "user":
            return None if principal is None else principal.id
        return run.agent_id if self._scope == "agent" else run.thread_id

    # -- recall ----------------------------------------------------------------------------------------------

    async def before_inference(self, ctx: BeforeInference) -> None:
        """Show the notes that fit the last message, right before it: the prompt's cache keeps what is before."""
        if self._recall != "auto" or ctx.plan.purpose in ("summary", "remote"):
            return
        place = next((n for n in reversed(range(len(ctx.messages))) if _is_question(ctx.messages[n])), None)
        owner = self._owner_or_none(ctx.run, ctx.principal)
        if place is None or owner is None:
            return
        asked = ctx.messages[place]
        text, is_tainted = await self._recalled(ctx, owner, asked)
        if not text:
            return
        if is_tainted and self.label not in ctx.state[Taint]:
            ctx.update(Taint, self.label)
        note = user_message(text, visibility="internal", at=asked.created_at)
        ctx.plan.replace_messages([*ctx.messages[:place], note, *ctx.messages[place:]])

    async def _recalled(self, ctx: BeforeInference, owner: str, asked: Message) -> tuple[str, bool]:
        """The text for a message, the same for every request of a run, and whether it is untrusted."""
        at = (ctx.run.run_id, asked.id)
        if (known := self._shown.get(at)) is not None:
            return known
        found = await ctx.memories.find(memory_prefix(self._scope, owner), asked.text, FOUND)
        notes = choose(found, self._budget)
        shown = (show(notes, _ABOUT[self._scope]) if notes else "", any(note.tainted for note in notes))
        if len(self._shown) >= CACHED:
            del self._shown[next(iter(self._shown))]
        self._shown[at] = shown
        return shown


def _is_question(message: Message) -> bool:
    return message.role == "user" and message.visibility == "all" and bool(message.text.strip())
