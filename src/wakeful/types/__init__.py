"""Plain data: content, messages, runs, tickets, limits and mail. No I/O. Events are in `wakeful.events`."""

from .calls import Call as Call
from .calls import CallOutcome as CallOutcome
from .calls import CallState as CallState
from .calls import Effect as Effect
from .calls import Ruling as Ruling
from .content import Artifact as Artifact
from .content import Audio as Audio
from .content import Base64 as Base64
from .content import Citation as Citation
from .content import Content as Content
from .content import Document as Document
from .content import Image as Image
from .content import Logprob as Logprob
from .content import Logprobs as Logprobs
from .content import ServerTool as ServerTool
from .content import Text as Text
from .content import Thinking as Thinking
from .content import ToolCall as ToolCall
from .content import ToolReply as ToolReply
from .content import Url as Url
from .content import Video as Video
from .content import text_of as text_of
from .inbox import InputPolicy as InputPolicy
from .inbox import Request as Request
from .limits import Capacity as Capacity
from .limits import ConsecutiveErrors as ConsecutiveErrors
from .limits import ContentMatch as ContentMatch
from .limits import CostBudget as CostBudget
from .limits import Limits as Limits
from .limits import LoopDetection as LoopDetection
from .limits import StopOnTool as StopOnTool
from .limits import StopPolicy as StopPolicy
from .limits import TokenBudget as TokenBudget
from .limits import WallTime as WallTime
from .mail import Arriving as Arriving
from .mail import DeadLetter as DeadLetter
from .mail import MailPolicy as MailPolicy
from .mail import OutboundMessage as OutboundMessage
from .mail import Receipt as Receipt
from .mail import Recipient as Recipient
from .mail import Refusal as Refusal
from .messages import Message as Message
from .messages import Producer as Producer
from .messages import Visibility as Visibility
from .messages import user_message as user_message
from .records import ApiKey as ApiKey
from .records import AuditEntry as AuditEntry
from .records import Grant as Grant
from .records import MemoryNote as MemoryNote
from .records import MemoryScope as MemoryScope
from .requests import ModelSettings as ModelSettings
from .requests import OutputSpec as OutputSpec
from .requests import ToolSpec as ToolSpec
from .runs import Author as Author
from .runs import Blocked as Blocked
from .runs import Cancelled as Cancelled
from .runs import EndRequested as EndRequested
from .runs import ErrorDetail as ErrorDetail
from .runs import Failed as Failed
from .runs import Identity as Identity
from .runs import NaturalEnd as NaturalEnd
from .runs import Outcome as Outcome
from .runs import Principal as Principal
from .runs import Right as Right
from .runs import RunRecord as RunRecord
from .runs import RunStatus as RunStatus
from .runs import Stopped as Stopped
from .runs import TaskEvent as TaskEvent
from .runs import TaskOutcome as TaskOutcome
from .runs import TaskRecord as TaskRecord
from .runs import TaskStatus as TaskStatus
from .runs import TaskWake as TaskWake
from .runs import Termination as Termination
from .runs import Usage as Usage
from .runs import Waiting as Waiting
from .runs import WaitReason as WaitReason
from .tickets import Answer as Answer
from .tickets import Approval as Approval
from .tickets import Decision as Decision
from .tickets import Escalation as Escalation
from .tickets import GrantOffer as GrantOffer
from .tickets import GrantScope as GrantScope
from .tickets import NotTaken as NotTaken
from .tickets import OnDeadline as OnDeadline
from .tickets import Remember as Remember
from .tickets import ResumeMode as ResumeMode
from .tickets import Ticket as Ticket
from .tickets import TicketStatus as TicketStatus
from .tickets import Verdict as Verdict
from .tickets import Vote as Vote

__all__ = [
    "Answer",
    "ApiKey",
    "Approval",
    "Arriving",
    "Artifact",
    "Audio",
    "AuditEntry",
    "Author",
    "Base64",
    "Blocked",
    "Call",
    "CallOutcome",
    "CallState",
    "Cancelled",
    "Capacity",
    "Citation",
    "ConsecutiveErrors",
    "Content",
    "ContentMatch",
    "CostBudget",
    "DeadLetter",
    "Decision",
    "Document",
    "Effect",
    "EndRequested",
    "ErrorDetail",
    "Escalation",
    "Failed",
    "Grant",
    "GrantOffer",
    "GrantScope",
    "Identity",
    "Image",
    "InputPolicy",
    "Limits",
    "Logprob",
    "Logprobs",
    "LoopDetection",
    "MailPolicy",
    "MemoryNote",
    "MemoryScope",
    "Message",
    "ModelSettings",
    "NaturalEnd",
    "NotTaken",
    "OnDeadline",
    "OutboundMessage",
    "Outcome",
    "OutputSpec",
    "Principal",
    "Producer",
    "Receipt",
    "Recipient",
    "Refusal",
    "Remember",
    "Request",
    "ResumeMode",
    "Right",
    "Ruling",
    "RunRecord",
    "RunStatus",
    "ServerTool",
    "StopOnTool",
    "StopPolicy",
    "Stopped",
    "TaskEvent",
    "TaskOutcome",
    "TaskRecord",
    "TaskStatus",
    "TaskWake",
    "Termination",
    "Text",
    "Thinking",
    "Ticket",
    "TicketStatus",
    "TokenBudget",
    "ToolCall",
    "ToolReply",
    "ToolSpec",
    "Url",
    "Usage",
    "Verdict",
    "Video",
    "Visibility",
    "Vote",
    "WaitReason",
    "Waiting",
    "WallTime",
    "text_of",
    "user_message",
]
