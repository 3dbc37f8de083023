"""Which segments of the CommitLog may go, and whether there is room for more messages. Pure.

`Retention` is asked every `cleanResourceInterval` and answers with a `RetentionDecision`; the
caller measures the disks, deletes the files and refuses the appends. `files_behind` then says
which files of a ConsumeQueue or of the index have nothing left to point at.

The rules are those of RocketMQ 4.9.8 CleanCommitLogService and MappedFileQueue. Segments are
deleted in a round that something calls for:

- it is one of the hours of `deleteWhen`,
- a disk is used above `diskMaxUsedSpaceRatio`, or its use is unknown,
- an operator asked for deletion, which holds for 20 rounds.

In such a round a segment goes when its last write is `fileReservedTime` ago. Above the clean ratio
it goes whatever its age, unless `cleanFileForciblyEnable` is off. The oldest go first, the first
one that stays keeps all after it, and the last one always stays.

A disk counts as used *above* a limit, never at it. Of several CommitLog directories the least used
one counts, for as long as one has room the log can grow. An unknown use is a negative ratio and so
the least of all. The disk of the ConsumeQueues counts only while the CommitLog's does not
call for deletion by itself.

One thing differs. In RocketMQ two timers set and clear the mark "disk full" by different rules, so
that it comes and goes every few seconds when only the disk of the ConsumeQueues is full, or when
`diskMaxUsedSpaceRatio` is above the full ratio. Here it holds as long as either rule says so.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from itertools import islice, pairwise, takewhile
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.model.offsets import PhysicalOffset
    from rmq.store.config import StoreConfig

MANUAL_ROUNDS: Final = 20
"""For how many rounds one request of an operator holds."""

_USED_RATIO_LEAST: Final = 0.10
_USED_RATIO_MOST: Final = 0.95
_HOUR_MS: Final = 3_600_000

F = TypeVar("F")


class DeletionCause(enum.Enum):
    """Why segments are deleted."""

    EXPIRED = "expired"
    DISK_PRESSURE = "disk_pressure"
    """A disk is used above a limit, or its use is unknown."""
    MANUAL = "manual"
    """An operator asked for it."""


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """A segment of the CommitLog, as far as its deletion is concerned."""

    first_offset: PhysicalOffset
    modified_ms: int
    """When its file was last written to, in ms since the epoch."""


@dataclass(frozen=True, slots=True)
class DiskState:
    """What the use of the disks calls for."""

    full: bool
    """Appends must be refused."""
    reclaim: bool
    """Expired segments should be deleted now, whatever the hour."""
    clean: bool
    """Segments may be deleted before their time, if the settings allow it."""
    full_log_paths: tuple[int, ...]
    """Which CommitLog directories, by place, should get no new segment while others have room."""
    reason: str
    """Which disk is above which limit, for the log; empty when none is."""


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """What to do in one round."""

    delete: tuple[PhysicalOffset, ...]
    """First offsets of the segments to delete, oldest first."""
    disk_full: bool
    """Whether appends must be refused from now on."""
    clean_immediately: bool
    """Whether this round deletes segments whatever their age."""
    full_log_paths: tuple[int, ...]
    """As in `DiskState`."""
    reason: str
    """What called for deletion, and what is wrong with the disks, for the log; may be empty."""
    cause: DeletionCause
    """Why what is deleted goes now."""


class Retention:
    """Decides round by round; its only state is how many rounds an operator asked for."""

    __slots__ = ("_config", "_manual_rounds", "_used_ratio_max")

    def __init__(self, config: StoreConfig) -> None:
        self._manual_rounds = 0
        self.reconfigure(config)

    def reconfigure(self, config: StoreConfig) -> None:
        """Use other settings for the decisions from now on."""
        self._config = config
        self._used_ratio_max = min(
            max(config.disk_used_ratio_max, _USED_RATIO_LEAST), _USED_RATIO_MOST
        )

    @property
    def manual_rounds_left(self) -> int:
        return self._manual_rounds

    def arm_manual_deletion(self) -> None:
        """Delete expired segments in the next 20 rounds, whatever the hour."""
        self._manual_rounds = MANUAL_ROUNDS

    def decide(
        self,
        *,
        now_ms: int,
        local_hour: int,
        log_used_ratios: Sequence[float],
        queues_used_ratio: float,
        segments: Sequence[SegmentAge],
    ) -> RetentionDecision:
        """Decide one round, and count it if an operator asked for it.

        `segments` are those of the log, oldest first, the last one being written to: a segment
        that is only prepared must not be among them, or the one in use would lose its protection.
        """
        assert all(a.first_offset < b.first_offset for a, b in pairwise(segments)), (
            "segments must come oldest first"
        )
        disks = self.check_disks(
            log_used_ratios=log_used_ratios, queues_used_ratio=queues_used_ratio
        )
        cause = DeletionCause.EXPIRED
        if disks.reclaim:
            cause = DeletionCause.DISK_PRESSURE
        elif self._manual_rounds and local_hour not in self._config.delete_hours:
            cause = DeletionCause.MANUAL
        reasons = self._take_reasons(local_hour)
        armed = bool(reasons) or disks.reclaim
        at_once = armed and disks.clean and self._config.clean_forcibly
        if disks.reason:
            reasons.append(disks.reason)
        return RetentionDecision(
            delete=self._expired(segments, now_ms, at_once=at_once) if armed else (),
            disk_full=disks.full,
            clean_immediately=at_once,
            full_log_paths=disks.full_log_paths,
            reason="; ".join(reasons),
            cause=cause,
        )

    def check_disks(
        self, *, log_used_ratios: Sequence[float], queues_used_ratio: float
    ) -> DiskState:
        """Check the disks only: for a store that has just started and deletes nothing yet."""
        assert log_used_ratios, "a CommitLog has at least one directory"
        clean_ratio = self._config.disk_clean_ratio
        log_used_ratio = min(log_used_ratios)
        disks = [("CommitLog", log_used_ratio)]
        if not self._calls_for_deletion(log_used_ratio):
            disks.append(("ConsumeQueues", queues_used_ratio))
        return DiskState(
            full=any(ratio > self._config.disk_full_ratio for _, ratio in disks),
            reclaim=any(self._calls_for_deletion(ratio) for _, ratio in disks),
            clean=any(ratio > clean_ratio for _, ratio in disks),
            full_log_paths=tuple(
                place for place, ratio in enumerate(log_used_ratios) if ratio > clean_ratio
            ),
            reason="; ".join(filter(None, (self._complaint(*disk) for disk in disks))),
        )

    def _take_reasons(self, local_hour: int) -> list[str]:
        """Return what calls for deletion besides the disks; consumes an operator's round."""
        reasons: list[str] = []
        if local_hour in self._config.delete_hours:
            reasons.append(f"{local_hour:02d} is an hour of deleteWhen")
        if self._manual_rounds:
            # Counted even when something else calls for deletion as well, as RocketMQ does.
            self._manual_rounds -= 1
            reasons.append(f"an operator asked for it, {self._manual_rounds} rounds left")
        return reasons

    def _calls_for_deletion(self, used_ratio: float) -> bool:
        return used_ratio < 0 or used_ratio > self._used_ratio_max

    def _complaint(self, what: str, used_ratio: float) -> str:
        if used_ratio < 0:
            return f"the use of the disk of the {what} is unknown"
        limits = (self._used_ratio_max, self._config.disk_clean_ratio, self._config.disk_full_ratio)
        passed = max((limit for limit in limits if used_ratio > limit), default=None)
        if passed is None:
            return ""
        return f"the disk of the {what} is {used_ratio:.0%} used, above {passed:.0%}"

    def _expired(
        self, segments: Sequence[SegmentAge], now_ms: int, *, at_once: bool
    ) -> tuple[PhysicalOffset, ...]:
        reserved_ms = self._config.reserved_hours * _HOUR_MS
        candidates = segments[:-1][: self._config.delete_batch_max]
        return tuple(
            segment.first_offset
            for segment in takewhile(
                lambda segment: at_once or now_ms >= segment.modified_ms + reserved_ms, candidates
            )
        )


def files_behind(
    log_start: PhysicalOffset, files: Sequence[F], last_offset: Callable[[F], PhysicalOffset]
) -> list[F]:
    """Return the files, given oldest first, that lie wholly before the start of the CommitLog.

    `last_offset` tells the last physical offset a file points at: for a ConsumeQueue segment that
    of the entry in its last place, for an index file its `endPhyOffset`. It is asked of no file
    after the first that stays, and never of the last one, which always stays: it is being written.
    """
    all_but_last = islice(files, max(len(files) - 1, 0))
    return list(takewhile(lambda file: last_offset(file) < log_start, all_but_last))
