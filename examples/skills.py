"""A skill in a directory: the model loads its instructions, and a file of it."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from wakeful import Agent, Runtime, ScriptedModel, call
from wakeful.extensions.skills import Skills

SKILL = """---
name: refunds
description: How we refund orders. Use it when a customer wants money back.
---
Read references/rules.md, then answer in one sentence.
"""


async def main(folder: Path) -> None:
    (folder / "refunds" / "references").mkdir(parents=True)
    (folder / "refunds" / "SKILL.md").write_text(SKILL)
    (folder / "refunds" / "references" / "rules.md").write_text("Orders under 50 are refunded at once.")
    load = call("skill", name="refunds")
    read = call("skill_file", name="refunds", path="references/rules.md")
    model = ScriptedModel([load, read, "Your order is refunded at once."])
    async with Runtime([Agent("desk", model, plugins=[Skills(folder)])]) as runtime:
        result = await runtime.run("desk", "I want my money back")
        print(model.requests[0].system)
        for message in model.requests[-1].messages:
            if message.reply is not None:
                print("->", message.reply.content[0].text)
        print(result.text)


with TemporaryDirectory() as place:
    asyncio.run(main(Path(place)))
