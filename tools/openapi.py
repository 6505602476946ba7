"""Print the OpenAPI document of the HTTP API, from which the console's types are generated.

Usage: python tools/openapi.py > openapi.json
"""

from __future__ import annotations

import json
import sys

from wakeful.server.operations.document import document

if __name__ == "__main__":
    json.dump(document(), sys.stdout)
