"""A store in a Postgres database.

`store.py` is the store. A commit goes through `queue.py` (which commits share a batch), `batch.py` (load, decide,
write, repeat), `facts.py` (what is loaded), `statements.py` (the guarded statement) and `outcomes.py` (whether a
statement was executed whose reply was lost). `claims.py` takes dispatches.
"""

from .store import PostgresStore as PostgresStore
