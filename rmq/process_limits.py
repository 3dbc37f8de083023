"""What the system allows this process: open files and memory.

A limit that is reached in the middle of something is an error in some place that did not expect it.
So what a server takes is derived from these limits beforehand: how many connections, how many bytes
of what peers have sent.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

try:
    import resource
except ImportError:  # not on Windows, where there are no such limits
    resource = None  # type: ignore[assignment]

_CGROUP_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_UNLIMITED: Final = 1 << 60
"""Limits above that are no limits: some kernels write "none" as a large number."""


def raise_open_files_limit() -> tuple[int, int]:
    """Raise the soft limit of open files to the hard one; return the limit before and now.

    No limit is a very large number.
    """
    if resource is None:
        return _UNLIMITED, _UNLIMITED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            # Some systems have a lower limit than the one they tell.
            return _known(soft), _known(soft)
    return _known(soft), _known(hard)


def open_files_limit() -> int:
    """Return how many files this process may have open, connections included."""
    if resource is None:
        return _UNLIMITED
    return _known(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def physical_memory_bytes() -> int:
    """Return how much memory the machine has, or its container may have."""
    try:
        total: int = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        total = _UNLIMITED
    for path in _CGROUP_LIMITS:
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            total = min(total, int(text))
    return total


def memory_limit() -> int:
    """Return how much memory this process may have, by its own limits, too."""
    limits = [physical_memory_bytes()]
    if resource is not None:
        kinds = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
        limits += [_known(resource.getrlimit(kind)[0]) for kind in kinds]
    return min(limits)


def _known(limit: int) -> int:
    assert resource is not None
    return _UNLIMITED if limit in (resource.RLIM_INFINITY, -1) else limit
