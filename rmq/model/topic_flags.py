"""What may be done with a topic, and whether it belongs to a unit: bits of its settings."""

from __future__ import annotations

from typing import Final

PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1
"""New topics may be made after this one."""
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE

UNIT_FLAG: Final = 1
UNIT_SUB_FLAG: Final = 2
