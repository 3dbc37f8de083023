"""The kinds of offset, each its own type, so that mixing two of them up does not pass the checker.

At run time they are plain integers and cost nothing. To the checker an offset plus a number is an
offset of the same kind, so that walking along a log or a queue needs no conversion; the difference
of two offsets is a number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NewType

if TYPE_CHECKING:
    from typing import Self

    class _Offset(int):
        def __add__(self, count: int, /) -> Self: ...

    class PhysicalOffset(_Offset):
        """A byte address in the whole CommitLog, across its segments."""

    class QueueOffset(_Offset):
        """The ordinal of an entry in its ConsumeQueue; the first message of a queue has 0."""

    class ConsumerOffset(QueueOffset):
        """The queue offset that a reader of a queue comes to next: a consumer group, or the broker
        itself with delayed and half messages. It serves as a queue offset, not the other way round.
        """

else:
    PhysicalOffset = NewType("PhysicalOffset", int)
    QueueOffset = NewType("QueueOffset", int)
    ConsumerOffset = NewType("ConsumerOffset", QueueOffset)
