"""Writes the table of protocols, stories and clients into docs/protocols.md; `--check` only compares.

Each row is a client in the version under test; a cell says that a test shows the story with it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/protocols.md"
STORIES = ("stream", "client tool", "approvals in parts", "refusal", "cut stream", "duplicate")


class Client(NamedTuple):
    """A client: a package of npm with its folder in tests/clients, or of Python; `long` ones run in test-all."""

    package: str
    folder: str = ""
    long: bool = False

    @property
    def version(self) -> str:
        """The version that the tests run."""
        if self.folder:
            listed = json.loads((ROOT / "tests/clients" / self.folder / "package.json").read_text())
            return str(listed["dependencies"][self.package])
        found = re.search(rf"^{self.package}==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
        assert found is not None, f"{self.package} isn't in constraints.txt"
        return found[1]


class Protocol(NamedTuple):
    """A protocol: its page, the file of its tests, the tests of `STORIES` in order, and its clients."""

    page: str
    file: str
    tests: Sequence[str]
    clients: Sequence[Client]


# A protocol adds itself here. A story that it can't express has an empty test.
PROTOCOLS: Mapping[str, Protocol] = {
    "AG-UI": Protocol(
        "ag-ui.md",
        "tests/server/test_agui_clients.py",
        (
            "test_agui_client_streams_an_answer",
            "test_agui_client_runs_its_own_tool",
            "test_agui_client_approves_in_two_parts",
            "test_agui_requester_may_not_approve",
            "test_agui_cut_answer_is_resumed",
            "test_agui_duplicate_request_runs_once",
        ),
        (Client("@ag-ui/client", "agui"), Client("@ag-ui/client", "agui-0.0.59", long=True)),
    ),
    "AI SDK": Protocol(
        "ai-sdk.md",
        "tests/server/test_aisdk_clients.py",
        (
            "test_aisdk_client_streams_an_answer",
            "test_aisdk_client_runs_its_own_tool",
            "test_aisdk_client_approves_in_two_parts",
            "test_aisdk_requester_may_not_approve",
            "test_aisdk_cut_answer_is_resumed",
            "test_aisdk_duplicate_request_runs_once",
        ),
        (
            Client("ai", "aisdk-v6"),
            Client("ai", "aisdk-v5", long=True),
            Client("ai", "aisdk-v7", long=True),
        ),
    ),
    "OpenAI Responses": Protocol(
        "openai-api.md",
        "tests/server/test_openai_responses.py",
        (
            "test_answer_is_same_whole_streamed_and_read_again",
            "test_client_tool_is_called_and_its_output_continues_the_run",
            "test_approvals_are_answered_in_parts_by_two_servers",
            "test_requester_may_not_approve_a_plain_approval",
            "test_stream_resumes_after_any_of_its_events",
            "",
        ),
        (Client("openai"),),
    ),
    "ACP": Protocol(
        "acp.md",
        "tests/server/test_acp.py",
        (
            "test_acp_prompt_streams_an_answer",
            "test_acp_client_tools_run_at_the_client",
            "test_acp_approvals_are_answered_in_parts_across_a_restart",
            "test_acp_turn_ends_when_others_must_approve",
            "test_acp_session_continues_an_answer_after_a_kill",
            "",  # Its prompts have no ids.
        ),
        (Client("agent-client-protocol"),),
    ),
}


def table() -> str:
    """The table; raises `AssertionError` if a test doesn't exist."""
    lines = [f"| protocol | client | {' | '.join(STORIES)} |", f"|{'---|' * (len(STORIES) + 2)}"]
    for name, protocol in PROTOCOLS.items():
        source = (ROOT / protocol.file).read_text()
        missing = [test for test in protocol.tests if test and f"def {test}(" not in source]
        assert len(protocol.tests) == len(STORIES), f"{name} has a test for each story, or an empty text"
        assert not missing, f"{protocol.file} has no test {', '.join(missing)}"
        for client in protocol.clients:
            mark = "long" if client.long else "yes"
            cells = " | ".join([mark if test else "-" for test in protocol.tests])
            lines.append(f"| [{name}]({protocol.page}) | `{client.package}` {client.version} | {cells} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """A page with its table written anew."""
    return re.sub(
        r"(<!-- stories -->\n).*?(\n<!-- end -->)", lambda m: m[1] + table() + m[2], text, flags=re.DOTALL
    )


def main() -> None:
    text = PAGE.read_text()
    if page(text) == text:
        return
    if "--check" in sys.argv:
        sys.exit("docs/protocols.md is out of date: run python tools/protocol_table.py")
    PAGE.write_text(page(text))


if __name__ == "__main__":
    main()
