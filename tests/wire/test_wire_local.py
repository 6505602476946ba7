"""Two adapters against the HTTP endpoints of the local model, with real tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from wire_suite import listen

from wakeful.models import ModelRequest
from wakeful.models.anthropic import AnthropicModel
from wakeful.models.compatible import CompatibleModel
from wakeful.models.local.engine import _preserve_signals, weights
from wakeful.types.messages import user_message
from wakeful.types.requests import ModelSettings

pytestmark = pytest.mark.long

ASKED = ModelRequest("Answer briefly.", [user_message("Say hello.")], settings=ModelSettings(max_tokens=8))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.n_ctx, params.n_parallel, params.port, params.verbosity = 2048, 1, 0, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.api_keys = ["key-1"]
    params.warmup = params.ui = False
    with _preserve_signals():
        server = xllamacpp.Server(params)
    yield server.listening_address
    del server


@pytest.mark.parametrize("vendor", ["openai-compatible", "anthropic"])
async def test_adapter_reads_a_real_server(url: str, vendor: str) -> None:
    model: Any
    if vendor == "anthropic":
        model = AnthropicModel("smollm2", base_url=url, api_key="key-1")
    else:
        model = CompatibleModel("smollm2", base_url=f"{url}/v1", api_key="key-1")
    heard = await listen(model, ASKED)
    await model.close()
    assert len(heard.texts) > 1
    assert heard.stop in ("max_tokens", "end_turn")
    assert heard.usage.input_tokens > 5
    assert 0 < heard.usage.output_tokens <= 8
