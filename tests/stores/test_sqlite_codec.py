"""Payloads of the SQLite store that go through a codec, such as encryption at rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlite_suite import append, told

from wakeful.errors import ConfigurationError, CorruptRow
from wakeful.stores import StateWrite
from wakeful.stores.postgres import PostgresStore
from wakeful.stores.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


class Xor:
    """Not a secret to anybody, but not plain either."""

    def encode(self, data: bytes) -> bytes:
        return bytes([byte ^ 0x5A for byte in data])

    decode = encode


@pytest.mark.parametrize("codec", [3, "zlib", Xor])
def test_codec_needs_encode_and_decode(path: Path, codec: Any) -> None:
    for make in (lambda: SqliteStore(path, codec=codec), lambda: PostgresStore("postgres://h/db", codec=codec)):
        with pytest.raises(ConfigurationError, match=r"codec is an object with the methods encode\(bytes\)"):
            make()
    assert not path.exists()


async def test_payloads_pass_through_codec(path: Path) -> None:
    secret = "s3cret-words" * 4000
    store = SqliteStore(path, codec=Xor())
    await append(store, "t1", "s3cret-words", secret, state=[StateWrite("key", b'"s3cret-words"')])
    assert await told(store) == ["s3cret-words", secret]
    await store.fork("t1", 2, "f")
    view = await store.load("f")
    assert view is not None
    assert view.state == {"key": b'"s3cret-words"'}
    await append(store.tenant("other"), "t1", "s3cret-words")
    await store.close()
    with path.open("rb") as file:
        assert b"s3cret" not in file.read()
    again = SqliteStore(path, codec=Xor())
    assert await told(again) == ["s3cret-words", secret]
    await again.close()


async def test_payload_needs_its_codec(path: Path) -> None:
    store = SqliteStore(path, codec=Xor())
    await append(store, "t1", "hello")
    await store.close()
    plain = SqliteStore(path)
    with pytest.raises(CorruptRow, match="open the store with that codec"):
        await plain.messages("t1")
    await plain.close()


async def test_plain_payload_is_read_with_codec(path: Path) -> None:
    store = SqliteStore(path)
    done = await append(store, "t1", "old")
    await store.close()
    coded = SqliteStore(path, codec=Xor())
    await append(coded, "t1", "new", version=done.version)
    assert await told(coded) == ["old", "new"]
    await coded.close()


async def test_undecodable_payload_is_named(path: Path) -> None:
    class Broken(Xor):
        def decode(self, data: Any) -> bytes:
            raise ValueError("wrong key")

    store = SqliteStore(path, codec=Xor())
    await append(store, "t1", "hello")
    await store.close()
    broken = SqliteStore(path, codec=Broken())
    with pytest.raises(
        CorruptRow, match=r"thread 't1': message 1 can't be read \(the codec refuses it: ValueError: wrong key\)"
    ):
        await broken.messages("t1")
    await broken.close()
