"""Where a store is and how it is divided, in the words of both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.model.record import pack_host
from rmq.store.config import GIB, MIB, StoreConfig

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Geometry:
    """Sizes that both sides must know, because the files do not say them."""

    segment_bytes: int
    queue_segment_bytes: int
    index_slots: int
    index_entries: int


SMALL: Final = Geometry(MIB, 6_000, 500, 2_000)
"""So small that a few thousand messages fill several files of every kind."""
DEFAULT: Final = Geometry(GIB, 6_000_000, 5_000_000, 20_000_000)


@dataclass(frozen=True)
class StorePlace:
    """A store directory that our engine and a stock broker use in turn."""

    root: Path
    port: int
    """Of the broker; it is part of every message id."""
    geometry: Geometry = SMALL

    @property
    def store_host(self) -> bytes:
        return pack_host("127.0.0.1", self.port)

    @property
    def abort(self) -> Path:
        return self.root / "abort"

    def config(self, *, recovery_point_interval_ms: int = 10_000) -> StoreConfig:
        """Return the settings of our engine."""
        sizes = self.geometry
        return StoreConfig(
            root=self.root,
            segment_bytes=sizes.segment_bytes,
            queue_segment_bytes=sizes.queue_segment_bytes,
            index_slots=sizes.index_slots,
            index_entries=sizes.index_entries,
            recovery_point_interval_ms=recovery_point_interval_ms,
        )

    def broker_settings(self) -> dict[str, str]:
        """Return the lines of the stock broker's configuration file."""
        sizes = self.geometry
        return {
            "storePathRootDir": str(self.root),
            "storePathCommitLog": str(self.root / "commitlog"),
            "mappedFileSizeCommitLog": str(sizes.segment_bytes),
            "mappedFileSizeConsumeQueue": str(sizes.queue_segment_bytes),
            "maxHashSlotNum": str(sizes.index_slots),
            "maxIndexNum": str(sizes.index_entries),
        }
