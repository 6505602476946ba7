"""Delegation: other agents as tools."""

from ._tool import DelegateTool as DelegateTool
