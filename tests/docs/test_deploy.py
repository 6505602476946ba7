"""The files in `deploy/` can be read, hold no secrets, and call commands that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from wakeful.cli.app import app

FOLDER = Path(__file__).parents[2] / "deploy"


def compose() -> dict[str, Any]:
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]


def kubernetes() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))


def pods() -> dict[str, dict[str, Any]]:
    found = [one for one in kubernetes() if one["kind"] == "Deployment"]
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in found}


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (one,) = pod["containers"]
    return one


COMMANDS = {
    "compose server": compose()["server"]["command"],
    "compose worker": compose()["worker"]["command"],
    **{name: [*container(pod)["command"], *container(pod)["args"]] for name, pod in pods().items()},
}


def options(name: str) -> dict[str, Any]:
    """The options of a command, by its parameters; fails if there is no such command or option."""
    program, word, *args = COMMANDS[name]
    assert program == "wakeful"
    group: Any = typer.main.get_command(app)
    command = group.commands[word]
    return command.make_context(word, args).params


@pytest.mark.parametrize("name", COMMANDS)
def test_deployed_commands_and_options_exist(name: str) -> None:
    told = options(name)
    assert told["target"] == "app:runtime"
    if "server" in name:
        assert (told["workers"], told["port"], told["token_env"]) == (False, 8000, ["API_TOKEN"])
    else:
        assert (told["health"], told["concurrency"]) == ("0.0.0.0:9000", 16)


def test_termination_grace_covers_drain() -> None:
    assert pods()["wakeful-worker"]["terminationGracePeriodSeconds"] > options("wakeful-worker")["grace"]
    assert int(compose()["worker"]["stop_grace_period"].removesuffix("s")) > options("compose worker")["grace"]


def test_probes_use_served_ports_and_paths() -> None:
    for name, pod in pods().items():
        one = container(pod)
        (port,) = one["ports"]
        told = options(name)
        asked = told["port"] if "port" in told else int(told["health"].rpartition(":")[2])
        assert port["containerPort"] == asked
        assert one["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
        assert one["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}
    for name in ("server", "worker"):
        (path,) = re.findall(r"http://127\.0\.0\.1:\d+(/\w+)", str(compose()[name]["healthcheck"]))
        assert path in ("/healthz", "/readyz")


def test_images_have_plain_names() -> None:
    images = [one["image"] for one in compose().values()] + [container(pod)["image"] for pod in pods().values()]
    assert all(re.fullmatch(r"[a-z-]+(:\d+)?|\$\{WAKEFUL_IMAGE:\?[^}]*\}", image) for image in images), images


def test_manifests_contain_no_secret() -> None:
    for pod in pods().values():
        assert all("secretKeyRef" in variable["valueFrom"] for variable in container(pod)["env"])
    text = (FOLDER / "compose.yaml").read_text()
    for found in re.findall(r"^\s+\w*(?:PASSWORD|TOKEN):\s*(.*)$", text, re.MULTILINE):
        assert re.fullmatch(r"\$\{\w+:\?set it\}", found), found
    assert not re.findall(r"://\w+:(?!\$\{)[^@\s]+@", text)


def test_required_settings_are_listed_at_top() -> None:
    for name in ("compose.yaml", "kubernetes.yaml"):
        text = (FOLDER / name).read_text()
        head = text[: re.search(r"^(?!#)", text, re.MULTILINE).start()]  # type: ignore[union-attr]
        assert "# Set these" in head
        wanted = set(re.findall(r"\$\{(\w+):\?", text)) | set(re.findall(r"key: ([\w-]+)\}", text))
        assert all(word in head for word in wanted), wanted
