"""The agent loop: where a run stands, what it does next, and doing it."""

from ._activation import Activation as Activation
from ._answer import Answer as Answer
from ._checkpoints import Checkpoints as Checkpoints
from ._environment import Environment as Environment
from ._environment import rules_of as rules_of
from ._ledger import check_value as check_value
from ._ledger import match_decision as match_decision
from ._ledger import reassigned as reassigned
from ._ledger import supersede as supersede
from ._ledger import suspended as suspended
from ._ledger import unknown_ticket as unknown_ticket
from ._moves import NOBODY as NOBODY
from ._moves import Rules as Rules
from ._moves import RunView as RunView
from ._moves import detached_of as detached_of
from ._moves import next_move as next_move
from ._needs import agent_of as agent_of
from ._needs import changes_since as changes_since
from ._policies import Tree as Tree
from ._policies import judge as judge
from ._rides import Ride as Ride
from ._tasks import end_task as end_task
from ._tasks import ended_as as ended_as
from ._tasks import outcome_of as outcome_of
from ._tasks import tell_item as tell_item
from ._watch import Watches as Watches
