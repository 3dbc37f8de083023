"""The progress of a task at certain ends of the log. Pure.

Delayed messages and transaction checks leave their outcome in the log, and their progress says that
it is there. When the end of the log is cut off, outcomes go with it, and progress that rests on
them would skip messages for ever. So each progress is stored with the end of the log that contains
what it rests on. After a cut the last progress counts that rests on what is left.

A bounded number is kept: the later ones all, of earlier ones ever fewer. A cut far back goes back a
little further than it would have to, and some work is done twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.model.offsets import ConsumerOffset, PhysicalOffset

if TYPE_CHECKING:
    from collections.abc import Mapping


PLACES_MAX: Final = 128


@final
class ProgressTrail:
    """Progress, by numbers of what has progressed, and the ends of the log it rests on."""

    def __init__(self, places_max: int = PLACES_MAX) -> None:
        self._places_max = places_max
        self._places: dict[PhysicalOffset, dict[int, ConsumerOffset]] = {}
        """Ascending."""

    def __len__(self) -> int:
        return len(self._places)

    @property
    def last_end(self) -> PhysicalOffset:
        """The end of the log that contains what all progress rests on."""
        return next(reversed(self._places), PhysicalOffset(0))

    def note(self, log_end: PhysicalOffset, progress: Mapping[int, ConsumerOffset]) -> bool:
        """Note that this progress, and all before, rests on the log below `log_end`; tell whether
        it is another one than the last.
        """
        if self._places and progress == self._places[self.last_end]:
            return False
        log_end = max(log_end, self.last_end)
        self._places[log_end] = dict(progress)
        if len(self._places) > self._places_max:
            self._thin_out()
        return True

    def cut(self, log_end: PhysicalOffset) -> dict[int, ConsumerOffset] | None:
        """Forget what rests on more of the log than is below `log_end`.

        Return the progress that is left, an empty one if nothing is known of it; None if all of it
        is left.
        """
        gone = [end for end in self._places if end > log_end]
        if self._places and not gone:
            return None
        for end in gone:
            del self._places[end]
        last = next(reversed(self._places.values()), None)
        return {} if last is None else dict(last)

    def table(self) -> dict[int, dict[int, int]]:
        """Return a copy of it, to be saved."""
        return {end: dict(sorted(progress.items())) for end, progress in self._places.items()}

    def load(self, table: Mapping[int, Mapping[int, int]]) -> None:
        """Load what was saved."""
        self._places = {
            PhysicalOffset(end): {
                number: ConsumerOffset(offset) for number, offset in progress.items()
            }
            for end, progress in sorted(table.items())
        }

    def _thin_out(self) -> None:
        """Forget every second place of the earlier half; the first one stays."""
        for end in list(self._places)[1 : len(self._places) // 2 : 2]:
            del self._places[end]
