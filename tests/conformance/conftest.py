"""Every test of the contract runs on every store."""

from __future__ import annotations

import pytest
from store_suite import STORES, StoreFactory


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest) -> StoreFactory:
    """Opens a fresh store: `async with open_store() as store`."""
    return STORES[request.param]
