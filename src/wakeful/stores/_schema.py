"""The tables, made by numbered migrations that SQLite and Postgres share.

A thread's number stands for it in every table that hangs off it, so that rows stay small; only `threads`, `runs`
and what is found by an id of its own lead with the tenant. The log holds messages and events alike, under the
thread's one sequence. Payloads are JSON, perhaps through a codec. Migrations expand: tables and columns that an
older reader needs stay in the version that stops needing them. What rows hold may be new to it: `min_reader` says
from which version on a store can be read.
"""

from __future__ import annotations

from collections.abc import Sequence

from ._beginnings import BEGIN, BEGIN_ROUTINES
from ._routines import ROUTINES_3, ROUTINES_4, ROUTINES_6, ROUTINES_7

__all__ = ["APPLICATION_ID", "MIGRATIONS", "MIN_READER", "VERSION", "statements"]

APPLICATION_ID = 0x77616B65  # "wake", in SQLite's file header
MIN_READER = 7

# {number} is a row number that the database gives, {int} a 64-bit integer, {text} is sorted by its bytes, {bytes}
# a payload, {rowless} what SQLite needs to keep a table in the order of its key.
_FIRST = """
CREATE TABLE meta (name {text} PRIMARY KEY, value {text} NOT NULL) {rowless};

CREATE TABLE threads (
    no {number},
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    version {int} NOT NULL DEFAULT 0,
    head {int} NOT NULL DEFAULT 0,
    epoch {int} NOT NULL DEFAULT 0,
    claim {text},
    inbox_head {int} NOT NULL DEFAULT 0,
    wakes {text} NOT NULL DEFAULT 'queue steer',
    open_run {int},
    last_run {int},
    last_commit {text},
    parent {text},
    base {int},
    base_seq {int} NOT NULL DEFAULT 0,
    title {text},
    metadata {bytes},
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    UNIQUE (tenant, id)
);
CREATE INDEX threads_claim ON threads (claim) WHERE claim IS NOT NULL;
CREATE INDEX threads_parent ON threads (tenant, parent) WHERE parent IS NOT NULL;
CREATE INDEX threads_newest ON threads (tenant, no) WHERE parent IS NULL;
CREATE INDEX threads_base ON threads (base) WHERE base IS NOT NULL;

CREATE TABLE runs (
    no {number},
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    thread {int} NOT NULL,
    agent {text} NOT NULL,
    status {text} NOT NULL,
    step {int} NOT NULL,
    acting {int} NOT NULL,
    answer {int},
    finished_at {int},
    bare {int} NOT NULL DEFAULT 0,
    payload {bytes} NOT NULL,
    UNIQUE (tenant, id)
);
CREATE INDEX runs_thread ON runs (thread, id);
CREATE INDEX runs_status ON runs (tenant, status, id);
CREATE INDEX runs_agent ON runs (tenant, agent, id);

CREATE TABLE log (
    thread {int} NOT NULL,
    seq {int} NOT NULL,
    kind {text} NOT NULL,
    run {int} NOT NULL,
    agent {text} NOT NULL,
    at {int} NOT NULL,
    ref {int},
    payload {bytes} NOT NULL,
    PRIMARY KEY (thread, seq)
) {rowless};

CREATE TABLE chunks (
    thread {int} NOT NULL,
    message {text} NOT NULL,
    attempt {int} NOT NULL,
    at {int} NOT NULL,
    number {number},
    payload {bytes} NOT NULL
);
CREATE INDEX chunks_thread ON chunks (thread, number);

CREATE TABLE calls (
    run {int} NOT NULL,
    step {int} NOT NULL,
    place {int} NOT NULL,
    id {text} NOT NULL,
    name {text} NOT NULL,
    ref {int},
    arguments {bytes},
    payload {bytes} NOT NULL,
    PRIMARY KEY (run, step, place)
) {rowless};

CREATE TABLE tickets (
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    thread {int} NOT NULL,
    run {int} NOT NULL,
    status {text} NOT NULL,
    assignee {text},
    payload {bytes} NOT NULL,
    PRIMARY KEY (tenant, id)
) {rowless};
CREATE INDEX tickets_run ON tickets (run, status, id);
CREATE INDEX tickets_thread ON tickets (thread, id);
CREATE INDEX tickets_status ON tickets (tenant, status, id);

CREATE TABLE decisions (
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    thread {int} NOT NULL,
    ticket {text} NOT NULL,
    at {int} NOT NULL,
    payload {bytes} NOT NULL,
    PRIMARY KEY (tenant, id)
) {rowless};
CREATE INDEX decisions_ticket ON decisions (tenant, ticket);
CREATE INDEX decisions_thread ON decisions (thread);

CREATE TABLE state (
    thread {int} NOT NULL,
    run {int} NOT NULL,
    name {text} NOT NULL,
    seq {int} NOT NULL,
    payload {bytes} NOT NULL,
    PRIMARY KEY (thread, run, name)
) {rowless};

CREATE TABLE state_log (
    thread {int} NOT NULL,
    name {text} NOT NULL,
    seq {int} NOT NULL,
    at {int} NOT NULL,
    payload {bytes} NOT NULL,
    PRIMARY KEY (thread, name, seq)
) {rowless};

CREATE TABLE inbox (
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    thread {int} NOT NULL,
    kind {text} NOT NULL,
    wake {text} NOT NULL,
    position {int} NOT NULL,
    revision {int} NOT NULL DEFAULT 0,
    status {text} NOT NULL,
    taken_by {text},
    payload {bytes},
    PRIMARY KEY (tenant, id)
) {rowless};
CREATE INDEX inbox_thread ON inbox (thread, status, position);

CREATE TABLE tasks (
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    thread {int} NOT NULL,
    run {text},
    status {text} NOT NULL,
    payload {bytes} NOT NULL,
    PRIMARY KEY (tenant, id)
) {rowless};
CREATE INDEX tasks_thread ON tasks (thread, status, id);

CREATE TABLE dispatches (
    thread {int} PRIMARY KEY,
    agent {text} NOT NULL,
    priority {int} NOT NULL DEFAULT 0,
    due_at {int} NOT NULL,
    attempts {int} NOT NULL DEFAULT 0
);
CREATE INDEX dispatches_due ON dispatches (due_at, thread);

CREATE TABLE budgets (
    tenant {text} NOT NULL,
    root {text} NOT NULL,
    dimension {text} NOT NULL,
    thread {int} NOT NULL,
    spent {int} NOT NULL DEFAULT 0,
    reserved {int} NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, root, dimension)
) {rowless};
CREATE INDEX budgets_thread ON budgets (thread);

CREATE TABLE blobs (
    thread {int} NOT NULL,
    digest {text} NOT NULL,
    payload {bytes} NOT NULL,
    PRIMARY KEY (thread, digest)
);

CREATE TABLE workers (
    id {text} PRIMARY KEY,
    until {int} NOT NULL,
    started_at {int} NOT NULL
) {rowless};
"""

# What is on its way out of the store; which run a pending input will be; which runs are below one; and what
# claiming needs. Dispatches are found by lanes of (tenant, agent, priority), without those that somebody holds, so
# that a flood in one lane costs others nothing. `mark` is the step that the run had when it was claimed, by which
# progress is seen. `turns` says which tenant was served when.
_SECOND = """
CREATE TABLE relays (
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    thread {int} NOT NULL,
    run {text},
    kind {text} NOT NULL,
    status {text} NOT NULL,
    cursor {int} NOT NULL,
    due_at {int} NOT NULL,
    until {int} NOT NULL,
    revision {int} NOT NULL,
    payload {bytes} NOT NULL,
    PRIMARY KEY (tenant, id)
) {rowless};
CREATE INDEX relays_due ON relays (tenant, status, due_at);
CREATE INDEX relays_thread ON relays (thread);

ALTER TABLE inbox ADD COLUMN run {text};
CREATE INDEX inbox_run ON inbox (tenant, run) WHERE run IS NOT NULL;

ALTER TABLE runs ADD COLUMN root {text};
CREATE INDEX runs_root ON runs (tenant, root, id) WHERE root IS NOT NULL;

ALTER TABLE runs ADD COLUMN priority {int} NOT NULL DEFAULT 128;
ALTER TABLE inbox ADD COLUMN priority {int} NOT NULL DEFAULT 128;
ALTER TABLE inbox ADD COLUMN at {int};
ALTER TABLE inbox ADD COLUMN agent {text};

ALTER TABLE dispatches ADD COLUMN tenant {text} NOT NULL DEFAULT '';
ALTER TABLE dispatches ADD COLUMN held {int} NOT NULL DEFAULT 0;
ALTER TABLE dispatches ADD COLUMN mark {int} NOT NULL DEFAULT 0;
ALTER TABLE dispatches ADD COLUMN dead_at {int};
ALTER TABLE dispatches ADD COLUMN error {text};
UPDATE dispatches SET priority = 128, tenant = (SELECT t.tenant FROM threads t WHERE t.no = dispatches.thread),
    held = (SELECT CASE WHEN t.claim IS NULL THEN 0 ELSE 1 END FROM threads t WHERE t.no = dispatches.thread);
DROP INDEX dispatches_due;
CREATE INDEX dispatches_ready ON dispatches (tenant, agent, priority, due_at, thread)
    WHERE held = 0 AND dead_at IS NULL;
CREATE INDEX dispatches_dead ON dispatches (tenant, dead_at) WHERE dead_at IS NOT NULL;

CREATE TABLE turns (tenant {text} PRIMARY KEY, turn {int} NOT NULL) {rowless};
"""

# A row of the log has several entries: the first one, and `more` events that follow it.
_THIRD = """
ALTER TABLE log ADD COLUMN size {int} NOT NULL DEFAULT 1;
ALTER TABLE log ADD COLUMN more {bytes};
"""

# The tables stay as they are.
_FOURTH = ""

# So they do here: the log's events of every step are written in few words, which older readers don't know.
_FIFTH = ""

# And here: so are those of every run, and what columns say is left out of runs and messages.
_SIXTH = ""

# And here: a thread that is claimed may have no dispatch, and an older reader wouldn't take it over.
_SEVENTH = ""

# And here, but SQLite keeps the rows of the log and of the ledger in the order in which they came: what many runs
# write at once lies together, and a page that is full stays as it is. In the order of their keys each of these has
# pages of its own to write, and one that is full is shared out among three.
_EIGHTH = ""
_IN_ORDER = """
ALTER TABLE log RENAME TO log_7;
CREATE TABLE log (
    thread INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    run INTEGER NOT NULL,
    agent TEXT NOT NULL,
    at INTEGER NOT NULL,
    ref INTEGER,
    payload BLOB NOT NULL,
    size INTEGER NOT NULL DEFAULT 1,
    more BLOB,
    PRIMARY KEY (thread, seq)
);
INSERT INTO log SELECT * FROM log_7 ORDER BY thread, seq;
DROP TABLE log_7;

ALTER TABLE calls RENAME TO calls_7;
CREATE TABLE calls (
    run INTEGER NOT NULL,
    step INTEGER NOT NULL,
    place INTEGER NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    ref INTEGER,
    arguments BLOB,
    payload BLOB NOT NULL,
    PRIMARY KEY (run, step, place)
);
INSERT INTO calls SELECT * FROM calls_7 ORDER BY run, step, place;
DROP TABLE calls_7;
"""

MIGRATIONS: tuple[str, ...] = (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH, _SEVENTH, _EIGHTH)
VERSION = len(MIGRATIONS)

_DIALECTS = {
    "sqlite": {
        "number": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "int": "INTEGER",
        "text": "TEXT",
        "bytes": "BLOB",
        "rowless": "WITHOUT ROWID",
    },
    "postgres": {
        "number": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "int": "bigint",
        "text": 'text COLLATE "C"',
        "bytes": "bytea",
        "rowless": "",
    },
}


def _split(script: str) -> list[str]:
    return [statement.strip() for statement in script.split(";") if statement.strip()]


# What a dialect has of its own in a version, behind the tables.
_OWN: dict[tuple[str, int], Sequence[str]] = {
    ("postgres", 3): ROUTINES_3,
    ("postgres", 4): (*ROUTINES_4, *BEGIN_ROUTINES),
    ("postgres", 6): ROUTINES_6,
    ("postgres", 7): (*ROUTINES_7, BEGIN),
    ("sqlite", 8): _split(_IN_ORDER),
}


def statements(version: int, dialect: str) -> list[str]:
    """The statements that lead to a version from the one before it."""
    return [*_split(MIGRATIONS[version - 1].format(**_DIALECTS[dialect])), *_OWN.get((dialect, version), ())]
