"""Guardrails for usual needs: personal data, secrets, the length of messages, and the addresses in answers."""

from .library import allowed_urls as allowed_urls
from .library import length_limit as length_limit
from .library import personal_data as personal_data
from .library import secrets as secrets

# The public names.
__all__ = ["allowed_urls", "length_limit", "personal_data", "secrets"]
