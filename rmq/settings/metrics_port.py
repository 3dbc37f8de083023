"""Which port metrics are served on: what `metricsPort` may say, and what a command takes without
it.
"""

from __future__ import annotations

from typing import Final

UNSET: Final = -1
"""As a setting: the port below, if it is free."""
BROKER: Final = 5557
NAMESERVER: Final = 5556


def wanted(port: int, default: int) -> int:
    """Return the port to open, 0 for none; `default` is for one that is not set."""
    return default if port == UNSET else port
