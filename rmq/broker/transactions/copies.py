"""Which half messages stand for one another. Pure, in memory only.

A half message that is asked about or put off is stored again at the end of its queue, and what
counts is the copy. But a producer may still decide about what it knows: the message it sent, or
the copy of an earlier question, for instance when its local transaction ends while it is asked.
RocketMQ 4.9.8 then notes the decision for a message whose turn is long over, asks about the copy
again, and stores the message twice when that is committed, too.

So decisions are checked here: they close the copy that counts, and what was committed once is
not committed again. After a restart nothing is known here, and a transaction may be delivered
twice, as with a stock broker at any time. A slave that becomes a master knows nothing either.
"""

from __future__ import annotations

from typing import final


@final
class Transaction:
    """A half message and its copies."""

    __slots__ = ("is_committed", "known", "latest")

    def __init__(self, first_offset: int) -> None:
        self.known = [first_offset]
        """The queue offsets that the producer was told, oldest first."""
        self.latest = first_offset
        """The queue offset of the copy that counts."""
        self.is_committed = False


@final
class HalfCopies:
    """The transactions of one broker that have copies, by every queue offset that stands for them.

    The code that makes copies calls `forget_below` from time to time, so that only transactions
    stay that are open, or were until lately.
    """

    def __init__(self) -> None:
        self._by_offset: dict[int, Transaction] = {}

    def __len__(self) -> int:
        """Return how many queue offsets are known."""
        return len(self._by_offset)

    def clear(self) -> None:
        """Forget all of them."""
        self._by_offset.clear()

    def find(self, offset: int) -> Transaction | None:
        """Return the transaction that a half message belongs to, None if it has no copies."""
        return self._by_offset.get(offset)

    def add_asked(self, offset: int, copy_offset: int) -> None:
        """Note that the producer is asked about a copy of the half message at `offset`."""
        transaction = self._move(offset, offset, copy_offset)
        transaction.known.append(copy_offset)

    def add_put_off(self, offset: int, copy_offset: int, first_offset: int) -> None:
        """Note that a copy of the half message at `offset` is checked later.

        Only the broker knows the copy; the producer knows `first_offset`.
        """
        self._move(offset, first_offset, copy_offset)

    def forget_below(self, offset: int) -> None:
        """Forget transactions of which all copies have had their turn."""
        gone = [known for known, each in self._by_offset.items() if each.latest < offset]
        for known in gone:
            del self._by_offset[known]

    def _move(self, offset: int, first_offset: int, copy_offset: int) -> Transaction:
        transaction = self._by_offset.get(offset)
        if transaction is None:
            transaction = Transaction(first_offset)
            self._by_offset[first_offset] = transaction
        elif transaction.latest not in transaction.known:
            del self._by_offset[transaction.latest]
        transaction.latest = copy_offset
        self._by_offset[copy_offset] = transaction
        return transaction
