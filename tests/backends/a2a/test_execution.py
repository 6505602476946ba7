"""A run at a remote agent: streaming, polling, waits, failures, artifacts."""

from __future__ import annotations

from wakeful.backends import Completed

from .requests import thread
from .servers import Turn, serving


async def streams(turn: Turn) -> None:
    await turn.open()
    await turn.write("Sunny ")
    await turn.write("in ", append=True)
    await turn.write(f"{turn.text}.", append=True, last=True)
    await turn.updater.complete()


async def test_streamed_text_is_shown_as_it_comes() -> None:
    with serving(streams) as remote:
        talk = thread(remote.url)
        result = await talk.ask("Paris")
    assert result.status == Completed()
    assert result.text == "Sunny in Paris."
    assert talk.shown == ["Sunny ", "in ", "Paris."]
    assert [saved["stage"] for saved in talk.saved] == ["intent", "sent"]
    assert len(remote.messages) == 1
