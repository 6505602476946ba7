"""wakeful's encoders for the protocols of front ends."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from benchmarks.encoders import Encoding
from wakeful.events import TextDelta
from wakeful.types.ids import new_id
from wakeful.types.runs import Identity

PACKAGES = ("wakeful", "msgspec", "starlette")


def _encoding(parts: Sequence[str], make: Callable[[str], Callable[[Any], bytes]]) -> Encoding:
    run_id, message_id, offset = new_id(), new_id(), 0
    run = Identity(run_id, new_id(), "assistant", run_id)
    events: list[TextDelta] = []
    for part in parts:
        events.append(TextDelta(run, 4, 1_795_122_652_904, message_id, 0, offset, part))
        offset += len(part)
    encode = msgspec.json.Encoder().encode

    def bare() -> int:
        return sum([len(encode(event)) for event in events])

    def ours() -> int:
        encode_frames = make(run_id)
        return sum([len(encode_frames(event)) for event in events])

    return Encoding(bare, ours)


def encode_agui(parts: Sequence[str]) -> Encoding:
    from wakeful.server.agui import Encoder

    return _encoding(parts, lambda run_id: Encoder("thread", "run", run_id, version="1.0").encode)


def encode_aisdk(parts: Sequence[str]) -> Encoding:
    from wakeful.server.aisdk import Encoder

    return _encoding(parts, lambda run_id: Encoder(run_id, 6).encode)
