"""Delegation: agents as tools, and the tools that manage background tasks."""

from __future__ import annotations

from collections.abc import Sequence

from ..agents import Agent, Delegate
from ..tools import Tool
from .delegate import DelegateTool
from .task_tools import CancelTool, OutputTool, ResumeTool, StatusTool

# The public name. The others are for the runtime.
__all__ = ["task_tools"]

_CANCEL = CancelTool()
_TASK_TOOLS = (StatusTool(), OutputTool(), _CANCEL, ResumeTool())


def delegation_tools(delegates: Sequence[tuple[Agent, Delegate]]) -> list[Tool]:
    """One tool for each delegate, and the task tools if a delegate may run in the background."""
    tools: list[Tool] = [DelegateTool(agent, how) for agent, how in delegates]
    return [*tools, *_TASK_TOOLS] if any(how.background for _, how in delegates) else tools


def task_tools() -> list[Tool]:
    """The task tools: `task_status`, `task_output`, `cancel_task`, `resume_task`.

    An agent with background delegates has them. Give them to an agent whose own tools start tasks.
    """
    return list(_TASK_TOOLS)


def tools_inside_tasks() -> list[Tool]:
    """The tools of every background agent."""
    return [_CANCEL]
