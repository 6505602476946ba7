"""The public names, all of them: a change here is a change for users."""

from __future__ import annotations

from types import ModuleType

import wakeful
import wakeful.backends
import wakeful.server
import wakeful.testing


def public(module: ModuleType) -> list[str]:
    hidden = {"annotations", "import_module", "TYPE_CHECKING", "Any"}
    names = [name for name in dir(module) if not name.startswith("_") and name not in hidden]
    return sorted(name for name in names if not isinstance(getattr(module, name), ModuleType))


def test_wakeful() -> None:
    assert public(wakeful) == [
        "AfterInference",
        "AfterTool",
        "Agent",
        "Answer",
        "Artifact",
        "Audio",
        "Base64",
        "BeforeInference",
        "BeforeTool",
        "BehaviourRequested",
        "Blocked",
        "Cancelled",
        "Capacity",
        "ClientTool",
        "Clock",
        "Codec",
        "Compaction",
        "ConfigurationError",
        "ConsecutiveErrors",
        "ContentMatch",
        "Context",
        "ContextMessage",
        "CostBudget",
        "DeadLetter",
        "Decision",
        "Delegate",
        "Dispatch",
        "Document",
        "Done",
        "Escalation",
        "Failed",
        "FunctionModel",
        "FunctionTask",
        "GateAnswer",
        "GateTool",
        "HookContext",
        "Identity",
        "Image",
        "InvalidArguments",
        "Ledger",
        "Limits",
        "LoopDetection",
        "Member",
        "MemoryStore",
        "Message",
        "Messages",
        "Model",
        "ModelError",
        "ModelFacts",
        "ModelRequest",
        "ModelSettings",
        "NaturalEnd",
        "NotDone",
        "OutboundMessage",
        "Overloaded",
        "Patience",
        "PendingInput",
        "Plugin",
        "Pool",
        "PostgresStore",
        "Principal",
        "RateLimit",
        "Receipt",
        "Recipient",
        "Retention",
        "Retry",
        "RunEnd",
        "RunFailed",
        "RunHandle",
        "RunRecord",
        "RunResult",
        "Runtime",
        "Schedule",
        "ScriptedModel",
        "Snapshot",
        "SqliteStore",
        "StateKey",
        "Step",
        "StopOnTool",
        "Stopped",
        "Store",
        "StoreError",
        "TaskContext",
        "TaskHandle",
        "TaskRecord",
        "Text",
        "ThreadRecord",
        "Ticket",
        "TokenBudget",
        "Tool",
        "ToolContext",
        "ToolDenied",
        "ToolError",
        "ToolResult",
        "Transport",
        "Turn",
        "UnknownOutcome",
        "Url",
        "Usage",
        "UsageError",
        "Video",
        "WakefulError",
        "WallTime",
        "action",
        "call",
        "notice",
        "task",
        "task_tools",
        "tool",
    ]


def test_a_star_brings_all_public_names() -> None:
    found: dict[str, object] = {}
    exec("from wakeful import *", found)  # A star is allowed at a module's level only.
    assert sorted(found.keys() - {"__builtins__"}) == wakeful.__all__ == public(wakeful)
    assert found["Runtime"] is wakeful.Runtime


def test_wakeful_server() -> None:
    assert public(wakeful.server) == ["Auth", "ServerLimits", "Webhooks", "app", "lifespan"]


def test_wakeful_testing() -> None:
    assert public(wakeful.testing) == [
        "BackendCheck",
        "CrashFailed",
        "CrashReport",
        "CrashRow",
        "CrashSite",
        "FakeClock",
        "FunctionModel",
        "LeakError",
        "Leaks",
        "Recorder",
        "ScriptedModel",
        "Turn",
        "backend_checks",
        "call",
        "crash_matrix",
        "forbid_live_models",
    ]


def test_wakeful_backends() -> None:
    assert public(wakeful.backends) == [
        "AbortRequest",
        "AgentNotFound",
        "Artifact",
        "BackendConfig",
        "BackendError",
        "BackendFactory",
        "BackendOutput",
        "BackendResult",
        "BackendStatus",
        "Cancellation",
        "CancelledStatus",
        "Capabilities",
        "Completed",
        "Control",
        "DelegatePolicy",
        "DelegateRequest",
        "ExecutionBackend",
        "ExecutionFailed",
        "FailedStatus",
        "InvalidConfig",
        "LocalBackend",
        "Parent",
        "Question",
        "RemoteError",
        "RootRequest",
        "Suspended",
        "TimedOut",
        "WaitingAuth",
        "WaitingInput",
        "backend_of",
        "can_abort",
        "check_delegate",
        "check_root",
        "durable_reason",
        "durable_status",
        "is_cooperative",
        "label",
    ]
