"""One answer of a model: the request, its stream, failures and retries, and the parts of the message."""
