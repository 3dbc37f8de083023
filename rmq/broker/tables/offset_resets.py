"""Which consumer offsets were moved on purpose, and when. Pure.

A slave does not let an offset fall because its master says so: the master may have been restarted
with an old file, or be an old master that came back. But when an operator resets a group, or a
topic is deleted and created again, a slave that keeps the old offset would skip messages once it is
a master. So each such reset gets a number. Numbers are sent and saved with the offsets, and a
broker that gets a larger one than it knows applies the offset that comes with it.

Numbers only ever grow, over restarts and changes of the master, too: they are times, or one more
than the largest that is known if the clock is behind that. To be forgotten (the group or topic was
deleted) is a reset as well; then there is a number and no offset.

A consumer that commits less than is stored is no reset: another one has consumed what lies between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.model import fastjson
from rmq.model.clock import system_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, KeysView, Mapping
    from collections.abc import Set as AbstractSet

RESETS_MAX: Final = 50_000
"""How many are kept; a slave that was away while more happened misses the oldest."""


@final
class OffsetResets:
    """The numbers of resets by `topic@group` and queue."""

    def __init__(
        self, now_ms: Callable[[], int] = system_ms, *, count_max: int = RESETS_MAX
    ) -> None:
        self._now_ms = now_ms
        self._count_max = count_max
        self._numbers: dict[str, dict[int, int]] = {}
        self._count = 0
        self._last = 0
        self.removed = 0
        """How many keys have been forgotten so far."""

    def __len__(self) -> int:
        """How many queues have a number."""
        return self._count

    def note(self, key: str, queues: Iterable[int]) -> None:
        """Give these queues a new number."""
        number = max(self._last + 1, self._now_ms())
        self.take(key, dict.fromkeys(queues, number))

    def newer(self, key: str, numbers: Mapping[int, int]) -> dict[int, int]:
        """Return those that are larger than what is known here."""
        known = self._numbers.get(key, {})
        return {queue: number for queue, number in numbers.items() if number > known.get(queue, 0)}

    def take(self, key: str, numbers: Mapping[int, int]) -> None:
        """Add these numbers."""
        if not numbers:
            return
        self._last = max(self._last, *numbers.values())
        known = self._numbers.setdefault(key, {})
        self._count -= len(known)
        known.update(numbers)
        self._count += len(known)
        if self._count > self._count_max:
            self._forget_older_half()

    def clear(self) -> None:
        self.removed += len(self._numbers)
        self._numbers.clear()
        self._count = self._last = 0

    def keys(self) -> KeysView[str]:
        """Return all that have numbers, in the order in which they got their first."""
        return self._numbers.keys()

    def queues(self, key: str) -> AbstractSet[int]:
        """Return the queues that have a number."""
        return self._numbers.get(key, {}).keys()

    def row(self, key: str, queues: Iterable[int] | None = None) -> bytes | None:
        """Return the numbers of a key as a member of a JSON object, or those of some queues; None
        if there are none.
        """
        known = self._numbers.get(key, {})
        if queues is not None:
            known = {queue: known[queue] for queue in queues if queue in known}
        return self._row("", key, known).encode() if known else None

    def table(self) -> dict[str, dict[int, int]]:
        """Return a copy of all numbers."""
        return {key: dict(sorted(known.items())) for key, known in self._numbers.items()}

    def text(self, before: str) -> str:
        """Return the members of a JSON object of them, with `before` in front of each and of its
        end.
        """
        return ",".join(self._row(before, key, known) for key, known in self._numbers.items())

    @staticmethod
    def _row(before: str, key: str, known: Mapping[int, int]) -> str:
        numbers = ",".join(f"{queue}:{number}" for queue, number in sorted(known.items()))
        return f"{before}{fastjson.dumps(key).decode()}:{{{numbers}{before}}}"

    def _forget_older_half(self) -> None:
        numbers = sorted(number for known in self._numbers.values() for number in known.values())
        oldest = numbers[len(numbers) // 2]
        kept = {
            key: {queue: number for queue, number in known.items() if number >= oldest}
            for key, known in self._numbers.items()
        }
        self._numbers = {key: known for key, known in kept.items() if known}
        self.removed += len(kept) - len(self._numbers)
        self._count = sum(map(len, self._numbers.values()))
