"""Which ports a process of a test run may take, so that two of them never want the same one.

A server that is restarted comes back to its port; meanwhile another process must not find it free.
"""

from __future__ import annotations

import os
from typing import Final

_BLOCK: Final = 100
_MARGIN: Final = 5
"""So near to a block's ends nothing is taken: servers have ports beside their own."""
_SPARE: Final = 2
"""So many shares are left for workers that take the place of one that has died. They are counted
on, and what the dead one had started may still have its ports."""


def own_share(ports: range) -> tuple[int, ...]:
    """Return those of `ports` that are this process's."""
    shares = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) + _SPARE
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return tuple(
        port
        for port in ports
        if port // _BLOCK % shares == number % shares
        and _MARGIN <= port % _BLOCK < _BLOCK - _MARGIN
    )
