"""The tables, made by numbered migrations that SQLite and Postgres share.

Tables that belong to a thread refer to it by its row number, which keeps rows small. Only `threads`, `runs` and
tables that are looked up by an id of their own lead with the tenant. The log holds messages and events under the
thread's one sequence. Payloads are JSON, possibly encoded by a codec. Migrations only add: tables and columns that
an older reader needs stay until `MIN_READER`, the oldest version that can read the store, has passed it.
"""

from __future__ import annotations

__all__ = ["APPLICATION_ID", "MIGRATIONS", "MIN_READER", "NUMBER_BLOCK", "VERSION", "statements"]

APPLICATION_ID = 0x77616B65  # "wake", in the header of a SQLite file
MIN_READER = 1

NUMBER_BLOCK = 64
"""The row numbers of threads and runs that one `nextval` reserves in Postgres: it and the 63 that follow."""

# {block} is a row number that a commit gives, {number} one that the database gives, {int} a 64-bit integer, {text}
# sorts by its bytes, {bytes} is a payload, {rowless} makes SQLite cluster a table by its key. The log and the
# ledger of SQLite are not clustered: concurrent runs append to shared pages instead of writing a page each.
#
# threads: `handed` is the version at the last change of owner, `last_commit` the id of the last commit without
# fence and claim, `base` the thread that this one is a fork of.
# runs: `principal` is the owner, `outcome` and `waits` are why it ended or waits. `bare` is when the run had
# finished whose events were pruned; a run that is retried has new ones. The payload is last: Postgres logs an
# update without the beginning and the end that a row has in common with the old.
# tickets: `names` are those who may answer it, and `barred` the requester if it may not; `due` is its deadline.
# log: a row has one entry and, in `more`, the `size` - 1 events that follow it.
# dispatches: found by lanes of (tenant, agent, priority), without those that are held, so that a flood in one lane
# costs the others nothing. `mark` is the step that the run had when it was claimed.
# usage_log: one row for each request to a model. It refers to no thread, and stays when threads are deleted.
# inbox: `digest` is that of the request whose id the item has.
# records: what belongs to no thread, such as API keys and the audit, as payloads without blobs.
# memory_index: the words of memories, for their search. With a codec it stays empty, since it is not encoded.
# turns: the order in which tenants were served.
_FIRST = """
CREATE TABLE meta (name {text} PRIMARY KEY, value {text} NOT NULL) {rowless};

CREATE TABLE threads (
    no {block},
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    version {int} NOT NULL DEFAULT 0,
    head {int} NOT NULL DEFAULT 0,
    epoch {int} NOT NULL DEFAULT 0,
    claim {text},
    handed {int} NOT NULL DEFAULT 0,
    inbox_head {int} NOT NULL DEFAULT 0,
    wakes {text} NOT NULL DEFAULT 'queue steer',
    open_run {int},
    last_run {int},
    last_commit {text},
    parent {text},
    base {int},
    base_seq {int} NOT NULL DEFAULT 0,
    principal {text},
    title {text},
    metadata {bytes},
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    UNIQUE (tenant, id)
);
CREATE INDEX threads_claim ON threads (claim) WHERE claim IS NOT NULL;
CREATE INDEX threads_parent ON threads (tenant, parent) WHERE parent IS NOT NULL;
CREATE INDEX threads_newest ON threads (tenant, created_at, no) WHERE parent IS NULL;
CREATE INDEX threads_principal ON threads (tenant, principal, created_at, no)
    WHERE principal IS NOT NULL AND parent IS NULL;
CREATE INDEX threads_base ON threads (base) WHERE base IS NOT NULL;

CREATE TABLE runs (
    no {block},
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
    root {text},
    parent {text},
    principal {text},
    outcome {text},
    waits {text},
    created_at {int} NOT NULL DEFAULT 0,
    priority {int} NOT NULL DEFAULT 128,
    payload {bytes} NOT NULL,
    UNIQUE (tenant, id)
);
CREATE INDEX runs_thread ON runs (thread, id);
CREATE INDEX runs_status ON runs (tenant, status, id);
CREATE INDEX runs_agent ON runs (tenant, agent, id);
CREATE INDEX runs_principal ON runs (tenant, principal, id) WHERE principal IS NOT NULL;
CREATE INDEX runs_root ON runs (tenant, root, id) WHERE root IS NOT NULL;
CREATE INDEX runs_parent ON runs (tenant, parent, id) WHERE parent IS NOT NULL;
CREATE INDEX runs_outcome ON runs (tenant, outcome, id) WHERE outcome <> 'natural_end';
CREATE INDEX runs_created ON runs (tenant, created_at, id);

CREATE TABLE log (
    thread {int} NOT NULL,
    seq {int} NOT NULL,
    kind {text} NOT NULL,
    run {int} NOT NULL,
    agent {text} NOT NULL,
    at {int} NOT NULL,
    ref {int},
    payload {bytes} NOT NULL,
    size {int} NOT NULL DEFAULT 1,
    more {bytes},
    PRIMARY KEY (thread, seq)
);

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
);

CREATE TABLE tickets (
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    thread {int} NOT NULL,
    run {int} NOT NULL,
    status {text} NOT NULL,
    agent {text} NOT NULL DEFAULT '',
    tool {text} NOT NULL DEFAULT '',
    asked_by {text} NOT NULL DEFAULT '',
    assignee {text},
    requester {text},
    names {text} NOT NULL DEFAULT '',
    barred {text},
    due {int} NOT NULL DEFAULT 0,
    payload {bytes} NOT NULL,
    PRIMARY KEY (tenant, id)
) {rowless};
CREATE INDEX tickets_run ON tickets (run, status, id);
CREATE INDEX tickets_thread ON tickets (thread, id);
CREATE INDEX tickets_status ON tickets (tenant, status, id);
CREATE INDEX tickets_due ON tickets (tenant, status, due, id);
CREATE INDEX tickets_requester ON tickets (tenant, requester, id) WHERE requester IS NOT NULL;

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
    run {text},
    priority {int} NOT NULL DEFAULT 128,
    at {int},
    agent {text},
    digest {text} NOT NULL DEFAULT '',
    payload {bytes},
    PRIMARY KEY (tenant, id)
) {rowless};
CREATE INDEX inbox_thread ON inbox (thread, status, position);
CREATE INDEX inbox_run ON inbox (tenant, run) WHERE run IS NOT NULL;

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
    tenant {text} NOT NULL,
    agent {text} NOT NULL,
    priority {int} NOT NULL DEFAULT 128,
    due_at {int} NOT NULL,
    attempts {int} NOT NULL DEFAULT 0,
    held {int} NOT NULL DEFAULT 0,
    mark {int} NOT NULL DEFAULT 0,
    dead_at {int},
    error {text}
);
CREATE INDEX dispatches_ready ON dispatches (tenant, agent, priority, due_at, thread)
    WHERE held = 0 AND dead_at IS NULL;
CREATE INDEX dispatches_dead ON dispatches (tenant, dead_at) WHERE dead_at IS NOT NULL;

CREATE TABLE relays (
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    thread {int} NOT NULL,
    run {text},
    kind {text} NOT NULL,
    status {text} NOT NULL,
    cursor {int} NOT NULL,
    due_at {int} NOT NULL,
    owner {text},
    until {int} NOT NULL,
    revision {int} NOT NULL,
    payload {bytes} NOT NULL,
    PRIMARY KEY (tenant, id)
) {rowless};
CREATE INDEX relays_due ON relays (tenant, status, due_at);
CREATE INDEX relays_thread ON relays (thread);

CREATE TABLE usage_log (
    number {number},
    tenant {text} NOT NULL,
    at {int} NOT NULL,
    agent {text} NOT NULL,
    model {text} NOT NULL,
    failed {int} NOT NULL,
    duration {int} NOT NULL,
    input {int} NOT NULL,
    output {int} NOT NULL,
    cached {int} NOT NULL,
    cache_write {int} NOT NULL,
    reasoning {int} NOT NULL,
    cost {int} NOT NULL,
    searches {int} NOT NULL
);
CREATE INDEX usage_log_at ON usage_log (tenant, at);

CREATE TABLE records (
    tenant {text} NOT NULL,
    kind {text} NOT NULL,
    id {text} NOT NULL,
    at {int} NOT NULL,
    revision {int} NOT NULL,
    digest {text} NOT NULL DEFAULT '',
    payload {bytes} NOT NULL,
    PRIMARY KEY (tenant, kind, id)
) {rowless};
CREATE INDEX records_at ON records (tenant, kind, at, id);
CREATE UNIQUE INDEX records_key ON records (id) WHERE kind = 'key';

{memory_index};

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

CREATE TABLE turns (tenant {text} PRIMARY KEY, turn {int} NOT NULL) {rowless};
"""

MIGRATIONS: tuple[str, ...] = (_FIRST,)
VERSION = len(MIGRATIONS)

_DIALECTS = {
    "sqlite": {
        "block": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "number": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "int": "INTEGER",
        "text": "TEXT",
        "bytes": "BLOB",
        "rowless": "WITHOUT ROWID",
        "memory_index": "CREATE VIRTUAL TABLE memory_index USING fts5(owner, id UNINDEXED, words)",
    },
    "postgres": {
        "block": f"bigint GENERATED BY DEFAULT AS IDENTITY (INCREMENT BY {NUMBER_BLOCK}) PRIMARY KEY",
        "number": "bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        "int": "bigint",
        "text": 'text COLLATE "C"',
        "bytes": "bytea",
        "rowless": "",
        "memory_index": """CREATE TABLE memory_index (
    rowid bigint PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    words text COLLATE "C" NOT NULL,
    vector tsvector GENERATED ALWAYS AS (to_tsvector('simple', words)) STORED
);
CREATE INDEX memory_index_owner ON memory_index (owner);
CREATE INDEX memory_index_vector ON memory_index USING gin (vector)""",
    },
}


def statements(version: int, dialect: str) -> list[str]:
    """The statements that lead to a version from the one before it."""
    script = MIGRATIONS[version - 1].format(**_DIALECTS[dialect])
    return [statement.strip() for statement in script.split(";") if statement.strip()]
