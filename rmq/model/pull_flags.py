"""Bits of the sysFlag of a pull request."""

from __future__ import annotations

from typing import Final

FLAG_COMMIT_OFFSET: Final = 0x1
"""The request carries an offset to store."""
FLAG_SUSPEND: Final = 0x2
"""It may be held until there are messages."""
FLAG_SUBSCRIPTION: Final = 0x4
"""It carries what the consumer subscribes to."""
FLAG_LITE_PULL: Final = 0x10
