"""`wakeful models`: installed vendors, their keys, and test calls."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import aclosing
from importlib.util import find_spec
from typing import Annotated, Any, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

import typer
from msgspec import Struct
from msgspec.structs import replace

from ..errors import ModelTimeout, WakefulError
from ..models import (
    Model,
    ModelFacts,
    ModelRegistry,
    ModelRequest,
    StopChunk,
    TextChunk,
    UsageChunk,
    chunks_from,
)
from ..models.local.engine import missing
from ..models.registry import VENDORS
from ..models.shared.secrets import Key, redact
from ..models.shared.vendor import sdk
from ..types.messages import user_message
from ..types.requests import ModelSettings
from ..types.runs import Usage
from .exit_codes import reported
from .locations import Json, show
from .render import Renderer
from .tables import print_list

__all__ = ["models_app"]

REACH_SECONDS = 5.0

models_app = typer.Typer(
    name="models", help="Look at models: what is configured, and whether it answers.", no_args_is_help=True
)

# The extra of each vendor, and a module that shows that it is installed.
_EXTRAS = {
    "anthropic": "anthropic",
    "anthropic-bedrock": "anthropic",
    "anthropic-vertex": "anthropic",
    "google": "google",
    "google-vertex": "google",
    "bedrock": "bedrock",
    "local": "local",
}
_MODULES = {
    "openai": "openai",
    "anthropic": "anthropic",
    "google": "google.genai",
    "bedrock": "boto3",
    "local": "xllamacpp",
}
_PLACES = {
    "openai": "https://api.openai.com",
    "openai-chat": "https://api.openai.com",
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com",
}
_AWS = (
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
)


_AWS_PAIR = ", or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


class Vendor(Struct, frozen=True, omit_defaults=True):
    """A vendor's state. `needs` is the missing part; `reachable` is None unless a connection was tried."""

    vendor: str
    extra: str
    configured: bool
    key: str = ""
    needs: str = ""
    place: str = ""
    reachable: bool | None = None
    problem: str = ""


class Tried(Struct, frozen=True, omit_defaults=True):
    """The result of one test call."""

    model: str
    text: str
    first_ms: int
    total_ms: int
    pieces: int
    usage: Usage
    stop: str
    facts: ModelFacts | None = None


@models_app.command("list")
def list_(
    check: Annotated[bool, typer.Option("--check", help="Also see whether each can be reached.")] = False,
    json: Json = False,
) -> None:
    """List the vendors, and what each lacks: a key, an extra or an address. Keys themselves are never shown."""
    with reported(Renderer()):
        found = [_look(vendor) for vendor in VENDORS]
        if check:
            found = asyncio.run(_reach_all(found))
    print_list(json, found, ("VENDOR", "STATE"), [(one.vendor, _state(one)) for one in found], "no vendors")


@models_app.command("test")
def try_(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name, such as openai:gpt-5-mini.")],
    timeout: Annotated[float, typer.Option(min=0.1, help="How many seconds to wait for the answer.")] = 60.0,
    json: Json = False,
) -> None:
    """Make one small call, and show its duration and the abilities of the model."""
    with reported(Renderer()):
        tried = asyncio.run(_try(model, timeout))
    show(json, tried, _report(tried))


def _look(vendor: str) -> Vendor:
    """The state of a vendor: its key, and the first thing that is missing."""
    extra = _EXTRAS.get(vendor, "openai")
    name = f"{vendor}:{'smollm2' if vendor == 'local' else 'NAME'}"
    made, needs = None, ""
    try:
        made = cast(Any, ModelRegistry().resolve(name))
    except WakefulError as error:
        needs = str(error).removeprefix(f"{name} needs ")
    if not _installed(_MODULES[extra]):
        needs = f"pip install 'wakeful[{extra}]'"
    key, missing_key = _look_for_key(vendor, getattr(made, "_key", None))
    needs = needs or missing_key
    if vendor == "anthropic-vertex" and not needs and not os.environ.get("CLOUD_ML_REGION"):
        needs = "set CLOUD_ML_REGION"
    if vendor.endswith("bedrock") and not needs and not _aws_region():
        needs = "set AWS_REGION"
    if vendor == "local":
        needs = " and ".join(missing())
    where = getattr(made, "_base_url", None) or _PLACES.get(vendor, "")
    return Vendor(vendor, extra, not needs, key, needs, redact(str(where or "")))


def _look_for_key(vendor: str, found: Any) -> tuple[str, str]:
    """The variable that holds a vendor's key, and the problem with it, if there is one."""
    if not isinstance(found, Key) or not found.names or vendor.endswith("-vertex"):
        return "", ""  # Google's credentials are found by its own tools.
    key = ""
    if found.found is not None:
        key = next((name for name in found.names if os.environ.get(name, "").strip()), "given")
    elif vendor.endswith("bedrock") and _aws():
        key = "AWS credentials"
    if not key and not found.is_required:
        return "", ""
    if not key:
        return "", "set " + " or ".join(found.names) + (_AWS_PAIR if vendor.endswith("bedrock") else "")
    try:
        found.check(vendor)
    except WakefulError as error:
        return key, str(error)
    return key, ""


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _aws() -> bool:
    """Whether AWS credentials may exist; only AWS's own tools can tell whether they are valid."""
    pair = os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY")
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    return bool(pair) or any(os.environ.get(n) for n in _AWS) or os.path.exists(os.path.expanduser(file))


def _aws_region() -> bool:
    """Whether a region is set, in the environment or in a profile."""
    if os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        return True
    session: Any = sdk("botocore.session", "bedrock").Session()
    try:
        return bool(session.get_config_variable("region"))
    except Exception:  # A missing profile, for example, has no region.
        return False


async def _reach_all(found: list[Vendor]) -> list[Vendor]:
    return list(await asyncio.gather(*[_reach(one) for one in found]))


async def _reach(one: Vendor) -> Vendor:
    """Whether a connection to the vendor or its proxy can be opened; nothing is sent."""
    if not one.configured or not one.place:
        return one
    url = urlsplit(one.place)
    if (proxy := getproxies().get(url.scheme)) and url.hostname not in ("localhost", "127.0.0.1"):
        url = urlsplit(proxy)
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        async with asyncio.timeout(REACH_SECONDS):
            _, writer = await asyncio.open_connection(url.hostname, port, ssl=url.scheme == "https" or None)
        writer.close()
    except (OSError, TimeoutError) as error:
        return replace(one, reachable=False, problem=str(error) or "it took too long")
    return replace(one, reachable=True)


def _state(one: Vendor) -> str:
    how = f" ({one.key})" if one.key else ""
    if one.place and (not one.key or one.place != _PLACES.get(one.vendor, one.place)):
        how += f" at {one.place}"
    state = f"ready{how}" if one.configured else f"needs: {one.needs}"
    if one.reachable is not None:
        state += ", reachable" if one.reachable else f", can't be reached: {one.problem}"
    return state


async def _try(name: str, timeout: float) -> Tried:
    models = ModelRegistry()
    model = models.resolve(name)
    try:
        async with asyncio.timeout(timeout):
            return await _asked(name, model, models)
    except TimeoutError:
        problem = f"{redact(name)} gave no answer within {timeout:g} s; wait longer with --timeout"
        raise ModelTimeout(problem) from None
    finally:
        await models.close()


async def _asked(name: str, model: Model, models: ModelRegistry) -> Tried:
    request = ModelRequest(
        "", [user_message("Answer with the one word: ready")], settings=ModelSettings(max_tokens=1024)
    )
    began, first, texts, usage, stop = time.monotonic(), 0.0, list[str](), Usage(), "unknown"
    async with aclosing(chunks_from(model, request)) as chunks:
        async for chunk in chunks:
            first = first or time.monotonic()
            match chunk:
                case TextChunk(text):
                    texts.append(text)
                case UsageChunk(usage):
                    pass
                case StopChunk(stop):
                    pass
                case _:
                    pass
    ended = time.monotonic()
    early, total = round(((first or ended) - began) * 1000), round((ended - began) * 1000)
    text, usage = "".join(texts).strip()[:200], models.with_cost(model, usage)
    return Tried(redact(name), text, early, total, len(texts), usage, stop, models.facts_of(model))


def _price(usage: Usage, facts: ModelFacts | None) -> str:
    known = facts is not None and None not in (facts.input_price, facts.output_price)
    return f"{usage.cost / 1_000_000:.6f} dollars" if usage.cost or known else "at a price that isn't known"


def _report(tried: Tried) -> str:
    usage, facts = tried.usage, tried.facts
    lines = [
        f"{tried.model} answers: {tried.text or '(no text)'}",
        f"  first piece after {tried.first_ms} ms, all {tried.pieces} after {tried.total_ms} ms ({tried.stop})",
        f"  {usage.input_tokens} tokens in, {usage.output_tokens} out, {_price(usage, facts)}",
    ]
    if facts is None:
        return "\n".join([*lines, "  nothing is known about this model; give Runtime(facts=...) what you know"])
    if facts.context_window is not None:
        lines.append(f"  reads {facts.context_window:,} tokens and writes {facts.max_output or 0:,}")
    into, out = ", ".join(facts.input_modalities or ("?",)), ", ".join(facts.output_modalities or ("?",))
    return "\n".join([*lines, f"  takes {into}; gives {out}"])
