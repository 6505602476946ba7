"""A first agent: one tool, and a scripted model, so that no key is needed."""

from wakeful import Agent, Runtime, ScriptedModel, call, tool


@tool(effect="pure")
async def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


model = ScriptedModel([call("count_words", text="to be or not to be"), "That is 6 words."])
assistant = Agent("assistant", model=model, instructions="Be brief.", tools=[count_words])
runtime = Runtime([assistant])

if __name__ == "__main__":
    print(runtime.run_sync("assistant", "How many words are in 'to be or not to be'?").text)
