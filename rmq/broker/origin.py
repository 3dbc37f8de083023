"""What marks messages as stored by this broker. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Origin:
    """The address and the clock that go into records and message ids of this broker."""

    store_host: bytes
    """Packed as records hold it (`pack_host`)."""
    now_ms: Callable[[], int]
