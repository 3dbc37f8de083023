"""What a load was told about its messages, and what must therefore be delivered."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

OK: Final = "SEND_OK"
DELAYS_MS: Final = {1: 1000, 2: 5000}
"""The delay levels that are used, and for how long brokers hold back their messages."""


class Kind(Enum):
    """Kinds of messages; a body begins with one."""

    PLAIN = "plain"
    DELAYED = "delayed"
    TRANSACTION = "transaction"

    def body(self, number: int) -> bytes:
        return f"{self.value} {number}".encode()


class Trouble(NamedTuple):
    """What producers felt of one round."""

    longest_s: float
    """The longest time without any answer that says that a message is stored."""
    longest_ok_s: float
    """The longest time without SEND_OK."""
    failed: int
    """Sends that ended with an error."""


class Account:
    """What became of messages; times are those of a clock that never goes back."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        """How many sends ended with each status or error."""
        self.acknowledged: Counter[Kind] = Counter()
        """How many of each kind were answered SEND_OK."""
        self.promised: set[bytes] = set()
        """What consumers must get: messages answered SEND_OK, half messages if committed."""
        self.committed: set[bytes] = set()
        self.rolled_back: set[bytes] = set()
        """What consumers must not get."""
        self._last_at: float | None = None
        self._last_ok_at: float | None = None
        self._longest_s = self._longest_ok_s = 0.0
        self._failed = 0

    @property
    def ok_count(self) -> int:
        return self.acknowledged.total()

    def sent(self, kind: Kind, body: bytes, status: str, at: float) -> None:
        """Note an answer; half messages are promised when they are `decided`."""
        self.answers[status] += 1
        # Threads of a load may report in another order than they were answered in.
        self._longest_s = max(self._longest_s, at - (self._last_at or at))
        self._last_at = max(at, self._last_at or at)
        if status != OK:
            return
        self._longest_ok_s = max(self._longest_ok_s, at - (self._last_ok_at or at))
        self._last_ok_at = max(at, self._last_ok_at or at)
        self.acknowledged[kind] += 1
        if kind is not Kind.TRANSACTION:
            self.promised.add(body)

    def failed(self, error: str) -> None:
        self.answers[error] += 1
        self._failed += 1

    def decided(self, body: bytes, *, is_committed: bool) -> None:
        """Note how the local transaction of a half message ended."""
        if is_committed:
            self.committed.add(body)
            self.promised.add(body)
        else:
            self.rolled_back.add(body)

    def take_trouble(self) -> Trouble:
        """Return what happened since the last time."""
        trouble = Trouble(self._longest_s, self._longest_ok_s, self._failed)
        self._longest_s = self._longest_ok_s = 0.0
        self._failed = 0
        return trouble


class Load(Protocol):
    """Producers that send all the time."""

    def running(
        self, nameserver: str, account: Account
    ) -> AbstractAsyncContextManager[Callable[[], Awaitable[None]]]:
        """Send for the length of a block; give what stops the sends.

        Whoever answers questions about transactions stays until the end of the block.
        """
