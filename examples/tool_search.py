"""Sixty tools, of which the model is shown two: it searches for the one that it needs."""

import asyncio

from wakeful import Agent, ClientTool, FunctionModel, ModelRequest, Runtime, call, tool
from wakeful.extensions.tool_search import ToolSearch


@tool(effect="pure")
async def read_order(order: str) -> str:
    """Read an order."""
    return f"{order}: one lamp"


@tool
async def create_refund(order: str, amount: int) -> str:
    """Give the customer the money back."""
    return f"refunded {amount} for {order}"


def answer(request: ModelRequest):
    names = [tool.name for tool in request.tools]
    print(f"{len(names)} tools: {', '.join(names)}")
    if (reply := request.messages[-1].reply) is not None and reply.name == "create_refund":
        return "The lamp is refunded."
    found = "create_refund" in names
    return (
        call("create_refund", order="A7", amount=20) if found else call("tool_search", query="refund the customer")
    )


others = [ClientTool(f"report_{number}", f"Make the report number {number}.") for number in range(58)]
search = ToolSearch(eager=["read_*"])
runtime = Runtime(
    [Agent("desk", FunctionModel(answer), tools=[read_order, create_refund, *others], plugins=[search])]
)

if __name__ == "__main__":
    print(asyncio.run(runtime.run("desk", "Refund A7")).text)
