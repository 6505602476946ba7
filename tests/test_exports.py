"""The public names of each package: a change here is a change for users."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest

import wakeful

PUBLIC = {
    "wakeful": """
        Agent Approval Capacity ClientTool Compaction ConfigurationError CostBudget Decision Delegate Document
        FunctionModel Image Limits MailPolicy MemoryStore Message Model ModelError ModelRequest
        ModelSettings Plugin Pool PostgresStore Principal RateLimit Retention RetryPolicy RunFailed
        RunContext RunHandle RunResult Runtime ScriptedModel SqliteStore StateKey StopOnTool TaskContext TaskHandle
        Text Ticket TokenBudget Tool ToolContext ToolError ToolResult Turn Usage UsageError WakefulError
        WallTime WindowPolicy call task tool
    """,
    "wakeful.agents": "Agent BackendConfig Delegate RunContext",
    "wakeful.backends": """
        AbortRequest AgentNotFound Artifact BackendConfig BackendError BackendFactory BackendOutput
        BackendResult BackendStatus Cancellation CancelledStatus Capabilities Completed Control
        DelegatePolicy DelegateRequest Emitter ExecutionBackend ExecutionFailed FailedStatus InvalidConfig
        LocalBackend Parent PollRequest Question RemoteError RootRequest Suspended TimedOut WaitingAuth
        WaitingInput can_abort check_delegate check_root durable_reason durable_status is_cooperative label
    """,
    "wakeful.bus": """
        Bus Channel INTEREST_SECONDS Link Listener LiveUpdate LocalBus LogAdvanced Reader StreamAdvanced
        Subscription Update Wake open_bus
    """,
    "wakeful.client": "Client RunHandle Unreachable",
    "wakeful.context": "Compaction WindowPolicy count_tokens",
    "wakeful.delegation": "task_tools",
    "wakeful.extensions.guardrails": "allowed_urls length_limit personal_data secrets",
    "wakeful.extensions.permissions": """
        GrantPolicy Permissions Policy Preview PreviewChange Rule RunGrants Taint load_policy preview_policy
    """,
    "wakeful.extensions.skills": """
        LoadedSkills Prompt PromptSource ScriptRunner Skill SkillProblem Skills Subprocess
    """,
    "wakeful.extensions.reminders": "Remind Reminders",
    "wakeful.extensions.tool_search": "FoundTools ToolIndex ToolSearch",
    "wakeful.extensions.mcp": "MCP McpPrompt McpResource PromptArgument PromptMessage",
    "wakeful.extensions.telemetry": "Telemetry trace_headers",
    "wakeful.extensions.memory": "Memory MemoryNote",
    "wakeful.identity": """
        AUTHENTICATED Allow ApiKeys Authenticator Authorize Caller Deny Filter Incoming JWT LOCAL PUBLIC ROLES
        Resource SCOPES Tokens Verdict admits authenticate check_scopes create_key owners_only revoke_key
    """,
    "wakeful.messaging": "DeliveryPolicy PendingInput Transport",
    "wakeful.models": """
        CallChunk CallDeltaChunk CallStartChunk Chunk CodeExecution FileSearch FunctionModel
        ImageGeneration LongPrices Member Model ModelFacts ModelRequest PartChunk Pool RateLimit
        ReasoningChunk RetryPolicy ScriptedCall ScriptedModel StopChunk TextChunk Turn UsageChunk
        VendorFactory WebFetch WebSearch call chunks_from forbid_live_models shipped_facts
    """,
    "wakeful.plugins": """
        AfterInference AfterTool BeforeInference BeforeTool Block ContextMessage GateAnswer GateTool Guardrail
        HookContext InferencePlan PlanEdits Plugin Purpose Rewrite RunEnd Step Supply Suspend action notice
    """,
    "wakeful.runtime": "Ledger ParkedProblem RunHandle RunResult RunTree Runtime TaskHandle TenantRuntime",
    "wakeful.server": "ConsoleLogin Grpc ServerLimits Webhooks app http_protocol is_loopback lifespan",
    "wakeful.state": "AnyKey Snapshot StateKey",
    "wakeful.stores": """
        About Backlog ChildPolicy Chunk Claimed Claims Codec Commit Committed DeadSeen Dispatch Due Fence
        Lease MemoryStore OutcomeKind Overview PostgresStore Pruned QueueSeen Records Relay RelayStatus
        Renewals Retention RunFilters RunSeen SqliteStore StateWrite Store Tally TaskSeen ThreadRecord
        ThreadView TicketFilters TicketOrder TicketSeen UsageEntry UsageKey UsageRow WorkerSeen open_store
    """,
    "wakeful.tasks": "Cron FunctionTask Schedule TaskContext task",
    "wakeful.testing": """
        BackendCheck CrashFailed CrashReport CrashRow CrashSite FakeClock FunctionModel LeakError Leaks
        Recorded RecordedTool Recorder ScriptedModel Turn backend_checks call crash_matrix forbid_live_models
        write_test
    """,
    "wakeful.tools": """
        ClientTool Done FunctionTool Mail NotDone Offer SourceScope Tool ToolContext ToolResult ToolSource
        UnknownOutcome tool
    """,
    "wakeful.types": """
        Answer ApiKey Approval Arriving Artifact Audio AuditEntry Author Base64 Blocked Call CallOutcome
        CallState Cancelled Capacity Citation
        ConsecutiveErrors Content ContentMatch CostBudget DeadLetter Decision Document Effect EndRequested
        ErrorDetail
        Escalation Failed Grant GrantOffer GrantScope
        Identity Image InputPolicy Limits Logprob Logprobs LoopDetection MailPolicy Message
        MemoryNote MemoryScope
        ModelSettings NaturalEnd NotTaken OnDeadline OutboundMessage Outcome OutputSpec Principal Producer Receipt
        Recipient Refusal Remember Request ResumeMode Right Ruling
        RunRecord RunStatus ServerTool StopOnTool StopPolicy Stopped
        TaskEvent
        TaskOutcome
        TaskRecord TaskStatus TaskWake Termination Text Thinking Ticket TicketStatus TokenBudget ToolCall
        ToolReply ToolSpec Url Usage Verdict Video Visibility Vote WaitReason Waiting WallTime text_of
        user_message
    """,
}


def public(module: ModuleType) -> list[str]:
    """The names in `__all__`, or else all that aren't private or modules."""
    if (names := getattr(module, "__all__", None)) is not None:
        return sorted(names)
    hidden = {"annotations", "import_module", "TYPE_CHECKING", "Any"}
    found = [name for name in dir(module) if not name.startswith("_") and name not in hidden]
    return sorted(name for name in found if not isinstance(getattr(module, name), ModuleType))


@pytest.mark.parametrize("package", PUBLIC)
def test_package_exports_these_names(package: str) -> None:
    module = import_module(package)
    assert public(module) == sorted(PUBLIC[package].split())
    assert [name for name in public(module) if not hasattr(module, name)] == []


def test_top_level_names_are_those_of_packages() -> None:
    for package, names in wakeful._PACKAGES.items():
        assert set(names.split()) <= set(public(import_module(f"wakeful{package}"))), package


def test_star_import_brings_all_public_names() -> None:
    found: dict[str, object] = {}
    exec("from wakeful import *", found)  # A star is allowed at a module's level only.
    assert sorted(found.keys() - {"__builtins__"}) == wakeful.__all__
    assert found["Runtime"] is wakeful.Runtime
    assert set(wakeful.__all__) <= set(dir(wakeful))
