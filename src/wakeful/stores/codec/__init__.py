"""Payloads as tables hold them: entries of the log, records, and blobs."""
