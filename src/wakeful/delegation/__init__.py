"""Delegation: agents as tools, and looking after the work that was left to them."""

from __future__ import annotations

from collections.abc import Sequence

from ..agents import Agent, Delegate
from ..tools import Tool
from ._delegate import DelegateTool
from ._task_tools import CancelTool, OutputTool, ResumeTool, StatusTool

__all__ = ["delegation_tools", "task_tools", "tools_inside_tasks"]

_CANCEL = CancelTool()
_LOOKING_AFTER = (StatusTool(), OutputTool(), _CANCEL, ResumeTool())


def delegation_tools(delegates: Sequence[tuple[Agent, Delegate]]) -> list[Tool]:
    """What an agent with these delegates has: a tool for each, and those for work in the background, if it may
    leave any there."""
    tools: list[Tool] = [DelegateTool(agent, how) for agent, how in delegates]
    return [*tools, *_LOOKING_AFTER] if any(how.background for _, how in delegates) else tools


def task_tools() -> list[Tool]:
    """The tools by which a model looks after tasks: `task_status`, `task_output`, `cancel_task`, `resume_task`. An
    agent that may leave work to delegates in the background has them; one whose tools begin tasks can be given
    them."""
    return list(_LOOKING_AFTER)


def tools_inside_tasks() -> list[Tool]:
    """What every agent has that works in the background."""
    return [_CANCEL]
