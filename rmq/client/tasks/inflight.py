"""The limit on all sends of a producer that are in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from rmq.client.tasks.loop import ParkingLot


@final
class InflightLimit:
    """Bounds how many things are under way, and how many bytes they have together.

    One thing may always go, whatever its size.
    """

    __slots__ = ("_bytes", "_bytes_max", "_count", "_count_max", "_is_waited_for", "_waiting")

    def __init__(self, count_max: int, bytes_max: int, waiting: ParkingLot) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._count = 0
        self._bytes = 0
        self._waiting = waiting
        self._is_waited_for = False
        """Whether a task may be waiting; cheaper to check than the parking lot."""

    @property
    def count(self) -> int:
        """How many things are under way."""
        return self._count

    def has(self, size: int) -> bool:
        """Tell whether one more thing of this size may go."""
        return not self._count or (
            self._count < self._count_max and self._bytes + size <= self._bytes_max
        )

    def take(self, size: int) -> None:
        """Count one more thing in flight, whether there is room or not."""
        self._count += 1
        self._bytes += size

    def give_back(self, size: int) -> None:
        """Release the room of one thing that has ended."""
        self._count -= 1
        self._bytes -= size
        # Waking a task for a single place costs more than what it does; a quarter is worth it.
        if self._is_waited_for and (
            not self._count
            or (self._count * 4 <= self._count_max * 3 and self._bytes * 4 <= self._bytes_max * 3)
        ):
            self.wake_all()

    async def wait(self) -> None:
        """Wait until some room was released; other waiting tasks may take it first."""
        self._is_waited_for = True
        await self._waiting.park()

    def wake_all(self) -> None:
        """Wake all waiting tasks, so that they check again."""
        self._is_waited_for = False
        self._waiting.unpark_all()
