"""Clients from npm talk to `wakeful acp`; every line of the agent fits the protocol's published schema."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from node_clients import NodeClient, node_client

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-m", "wakeful.cli", "acp", "acp_sample:runtime"]
PATHS = {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}


async def prompt(client: NodeClient, folder: Path, say: str, *arguments: str, **given: Any) -> Any:
    """Send a prompt to a process of its own; each of its lines is valid."""
    command = [*COMMAND, *arguments]
    answer = await client.ask("prompt", command=command, cwd=str(folder), env=PATHS, say=say, **given)
    assert (answer["faults"], answer["code"]) == ([], 0)
    return answer


async def test_acp_client_of_npm_accepts_every_line(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    async with node_client("acp", "acp.mjs", tmp_path) as client:
        first = await prompt(client, tmp_path, "slow")
        assert (first["stopReason"], first["said"]) == ("end_turn", "half of it, and the rest")
        files = {"fs": {"readTextFile": True}}
        read = await prompt(client, tmp_path, "read", session=first["session"], capabilities=files)
        assert read["said"].endswith("Done: the text.")
        dropped = await prompt(client, tmp_path, "drop", "--as", "ann", choose="allow")
        assert (dropped["said"], len(dropped["asked"])) == ("Done: dropped a; dropped b.", 2)
        refused = await prompt(client, tmp_path, "pay", "--as", "ann", choose="allow")
        assert (refused["stopReason"], refused["asked"]) == ("end_turn", [])
        assert refused["said"].startswith("The run waits for:\n- pay: an approval")
