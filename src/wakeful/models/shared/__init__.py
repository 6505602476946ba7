"""Parts that all vendor adapters share: history, retries, rate limits, pools, faults, facts."""
