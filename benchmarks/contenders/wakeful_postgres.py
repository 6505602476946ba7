"""wakeful on Postgres."""

from functools import partial

from benchmarks.contenders import _wakeful_stores as stores
from benchmarks.contenders._wakeful_long_threads import long_thread as open_long_thread
from benchmarks.contenders._wakeful_tree import open_trees
from benchmarks.measures import Plan, Tally
from wakeful import PostgresStore

PACKAGES = ("wakeful", "asyncpg", "msgspec")


def durable(plan: Plan, tally: Tally, address: str):
    return stores.durable(PostgresStore(address), plan, tally)


throughput = durable


def delegation_durable(plan: Plan, tally: Tally, address: str):
    return stores.delegation(PostgresStore(address), plan, tally)


def cancel_tree(address: str, children: int):
    return open_trees(PostgresStore(address), children)


def growth(plan: Plan, tally: Tally, address: str):
    return stores.growth(PostgresStore(address), plan, tally)


def long_thread(plan: Plan, tally: Tally, address: str, messages: int):
    return open_long_thread(PostgresStore(address), plan, tally, messages)


async def park(address: str, messages: int):
    return await stores.park(PostgresStore(address), messages)


async def view(address: str):
    return await stores.view(partial(PostgresStore, address))


async def answer(address: str, run_id: str, ticket_id: str):
    return await stores.answer(partial(PostgresStore, address), run_id, ticket_id)
