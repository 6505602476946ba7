"""SQL that SQLite and Postgres share: the tables, the operations of a commit, and how its writes become rows."""
