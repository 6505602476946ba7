"""Tool calls: gates, execution, recovery, decisions, and the transitions of the ledger."""
