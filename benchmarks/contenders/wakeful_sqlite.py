"""wakeful on a SQLite file."""

from functools import partial

from benchmarks.contenders import _wakeful_stores as stores
from benchmarks.contenders._wakeful_long_threads import long_thread as open_long_thread
from benchmarks.contenders._wakeful_tree import open_trees
from benchmarks.measures import Plan, Tally
from wakeful import SqliteStore

PACKAGES = ("wakeful", "msgspec")


def durable(plan: Plan, tally: Tally, address: str):
    return stores.durable(SqliteStore(address), plan, tally)


throughput = durable


def relaxed(plan: Plan, tally: Tally, address: str):
    return stores.durable(SqliteStore(address, synchronous="NORMAL"), plan, tally)


def delegation_durable(plan: Plan, tally: Tally, address: str):
    return stores.delegation(SqliteStore(address), plan, tally)


def cancel_tree(address: str, children: int):
    return open_trees(SqliteStore(address), children)


def growth(plan: Plan, tally: Tally, address: str):
    return stores.growth(SqliteStore(address), plan, tally)


def long_thread(plan: Plan, tally: Tally, address: str, messages: int):
    return open_long_thread(SqliteStore(address), plan, tally, messages)


async def park(address: str, messages: int):
    return await stores.park(SqliteStore(address), messages)


async def view(address: str):
    return await stores.view(partial(SqliteStore, address))


async def answer(address: str, run_id: str, ticket_id: str):
    return await stores.answer(partial(SqliteStore, address), run_id, ticket_id)
