"""A tool that needs a person's approval: the run waits, without any process, until its ticket is answered."""

import asyncio

from wakeful import Agent, Runtime, ScriptedModel, call, tool

ledger: list[str] = []


@tool(effect="once", approval=lambda arguments: arguments["amount"] > 100)
async def pay(payee: str, amount: float) -> str:
    """Pay somebody. More than 100 needs a person's approval."""
    ledger.append(f"{payee}: {amount:.2f}")
    return f"Paid {amount:.2f} to {payee}."


script = [[call("pay", payee="Ann", amount=20), call("pay", payee="Bob", amount=500)], "Ann and Bob are paid."]
runtime = Runtime([Agent("clerk", model=ScriptedModel(script), tools=[pay])])


async def main() -> None:
    """Pay two people, and answer the ticket of the payment that needs approval."""
    async with runtime:
        result = await runtime.run("clerk", "Pay Ann 20 and Bob 500.")
        print(result.status, ledger)  # Ann's call is done; Bob's waits.
        (ticket,) = result.tickets
        print(ticket.message, ticket.arguments)
        result = await runtime.resume(result.run_id, ticket.edit({"payee": "Bob", "amount": 450}))
        print(result.status, ledger)
        print(result.text)


if __name__ == "__main__":
    asyncio.run(main())
