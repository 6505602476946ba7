"""Guardrails from the library, and a reminder after a call."""

import asyncio

from wakeful import Agent, Runtime, ScriptedModel, call, tool
from wakeful.extensions.guardrails import allowed_urls, personal_data, secrets
from wakeful.extensions.reminders import Remind, Reminders


@tool
async def publish(page: str) -> str:
    """Publish a page."""
    return f"published {page}"


model = ScriptedModel([call("publish", page="home"), "Done: https://evil.org/?q=1, ask bob@example.com."])
agent = Agent(
    "editor",
    model,
    tools=[publish],
    guardrails=[personal_data(), secrets(), allowed_urls("example.com")],
    plugins=[Reminders(Remind("publish", "Say where the page is."))],
)

if __name__ == "__main__":
    result = asyncio.run(Runtime([agent]).run("editor", "Publish it. My card is 4111 1111 1111 1111."))
    print(model.requests[0].messages[0].text)
    print(model.requests[1].messages[-1].text)
    print(result.text)
