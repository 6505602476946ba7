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
        "ConfigurationError",
        "ConsecutiveErrors",
        "ContentMatch",
        "ContextMessage",
        "CostBudget",
        "Decision",
        "Delegate",
        "Dispatch",
        "Document",
        "Done",
        "Escalation",
        "Failed",
        "FunctionModel",
        "GateAnswer",
        "GateTool",
        "HookContext",
        "Identity",
        "Image",
        "InvalidArguments",
        "Ledger",
        "Limits",
        "LoopDetection",
        "MemoryStore",
        "Message",
        "Model",
        "ModelError",
        "ModelRequest",
        "ModelSettings",
        "NaturalEnd",
        "NotDone",
        "Overloaded",
        "Plugin",
        "PostgresStore",
        "Principal",
        "Receipt",
        "Retention",
        "RunEnd",
        "RunFailed",
        "RunHandle",
        "RunRecord",
        "RunResult",
        "Runtime",
        "ScriptedModel",
        "Snapshot",
        "SqliteStore",
        "StateKey",
        "Step",
        "StopOnTool",
        "Stopped",
        "Store",
        "StoreError",
        "Text",
        "ThreadRecord",
        "Ticket",
        "TokenBudget",
        "Tool",
        "ToolContext",
        "ToolDenied",
        "ToolError",
        "ToolResult",
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
        "tool",
    ]


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
