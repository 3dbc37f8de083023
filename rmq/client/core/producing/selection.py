"""Which queue a message goes to. Pure; the time is an argument.

- `QueueRing`: all queues in turn, and on a retry those of another broker first.
- `BrokerFaults`: brokers that were slow or failed, and for how long they are left alone.
- Selectors: messages with the same sharding key go to the same queue. `by_hash` chooses the queue
  that a stock Java producer chooses for the same text or number.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar, final

from rmq.errors import IllegalMessageError
from rmq.model.java import string_hash
from rmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from rmq.client.core.messages import Message

ShardingKey: TypeAlias = str | int
Selector: TypeAlias = Callable[[Sequence[MessageQueue], "Message", ShardingKey], MessageQueue]
"""Chooses one of the queues; it must choose the same for the same key."""

_ISOLATION_MS: Final = 30_000
"""A failure counts like an answer that took this long."""
_LEFT_ALONE_MS: Final = (
    (15_000, 600_000),
    (3_000, 180_000),
    (2_000, 120_000),
    (1_000, 60_000),
    (550, 30_000),
)
"""Pairs: an answer took at least this long; the broker is avoided for this long."""

_REFUSED_S: Final = 0.5
"""How long a broker is avoided that is no master at the moment."""


# --- in turn ---------------------------------------------------------------------------------


class HasBroker(Protocol):
    """Something that belongs to a broker: a queue."""

    @property
    def broker_name(self) -> str: ...


Q = TypeVar("Q", bound=HasBroker)


@final
class QueueRing:
    """Deals out the queues of a topic in turn."""

    __slots__ = ("_position",)

    def __init__(self, position: int = 0) -> None:
        """`position` spreads producers over queues: start with a random one."""
        self._position = position

    def next(self, queues: Sequence[Q], avoided: str | None = None) -> Q:
        """Return the next queue; not one of the broker `avoided`, if there is another."""
        count = len(queues)
        position = self._position = (self._position + 1) % count
        queue = queues[position]
        if avoided is None or queue.broker_name != avoided:
            return queue
        for step in range(1, count):
            other = queues[(position + step) % count]
            if other.broker_name != avoided:
                self._position = (position + step) % count
                return other
        return queue

    def next_available(self, queues: Sequence[Q], faults: BrokerFaults, now: float) -> Q:
        """Return the next queue of a broker that is not avoided now.

        If all are avoided, it is a queue of one of the faster half of them.
        """
        count = len(queues)
        position = self._position = (self._position + 1) % count
        for step in range(count):
            queue = queues[(position + step) % count]
            if faults.is_available(queue.broker_name, now):
                return queue
        least_bad = faults.least_bad(now)
        own = [queue for queue in queues if queue.broker_name == least_bad]
        return own[position % len(own)] if own else queues[position]


class _Fault:
    __slots__ = ("available_at", "broker_name", "took_ms")

    def __init__(self, broker_name: str, took_ms: float, available_at: float) -> None:
        self.broker_name = broker_name
        self.took_ms = took_ms
        self.available_at = available_at


@final
class BrokerFaults:
    """Brokers that answered slowly or not at all."""

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}
        self._picked = 0

    def note(self, broker_name: str, took_s: float, now: float, *, failed: bool = False) -> None:
        """Take in how long a send took, and whether it failed; `now` is in seconds."""
        took_ms = took_s * 1000
        counted_ms = _ISOLATION_MS if failed else took_ms
        self._faults[broker_name] = _Fault(
            broker_name, took_ms, now + left_alone_ms(counted_ms) / 1000
        )

    def note_refused(self, broker_name: str, now: float) -> None:
        """Note that a broker was no master; avoid it briefly, as its name may soon have one."""
        self._faults[broker_name] = _Fault(broker_name, 0.0, now + _REFUSED_S)

    def is_available(self, broker_name: str, now: float) -> bool:
        """Tell whether a broker is not avoided now."""
        fault = self._faults.get(broker_name)
        return fault is None or now >= fault.available_at

    def least_bad(self, now: float) -> str | None:
        """Return one of the faster half of all noted brokers, another each time."""
        ranked = sorted(
            self._faults.values(),
            key=lambda fault: (now < fault.available_at, fault.took_ms, fault.available_at),
        )
        if not ranked:
            return None
        self._picked += 1
        return ranked[self._picked % max(1, len(ranked) // 2)].broker_name

    def keep_only(self, broker_names: set[str]) -> None:
        """Forget brokers that are no longer there."""
        self._faults = {name: fault for name, fault in self._faults.items() if name in broker_names}


def left_alone_ms(took_ms: float) -> int:
    """Return how long to avoid a broker that took `took_ms` to answer."""
    for limit_ms, alone_ms in _LEFT_ALONE_MS:
        if took_ms >= limit_ms:
            return alone_ms
    return 0


# --- by key ----------------------------------------------------------------------------------


def by_hash(
    queues: Sequence[MessageQueue],
    message: Message,
    key: ShardingKey,
) -> MessageQueue:
    """Choose by the hash that Java gives the key: both languages choose the same queue."""
    return queues[abs(java_hash(key)) % len(queues)]


def by_random(
    queues: Sequence[MessageQueue],
    message: Message,
    key: ShardingKey,
) -> MessageQueue:
    """Choose any queue."""
    return random.choice(queues)


def by_machine_room(rooms: Sequence[str], within: Selector = by_hash) -> Selector:
    """Return a selector for brokers named `room@name`: it chooses among those of some rooms.

    While none of these has a queue it chooses among all.
    """
    wanted = frozenset(rooms)

    def select(queues: Sequence[MessageQueue], message: Message, key: ShardingKey) -> MessageQueue:
        near = [queue for queue in queues if _room_of(queue.broker_name) in wanted]
        return within(near or queues, message, key)

    return select


def java_hash(key: ShardingKey) -> int:
    """Return `hashCode` of a String, an Integer or a Long; raise `IllegalMessageError`.

    Numbers of 32 bits are taken for Integers: a Java Long hashes alike only if it is not negative.
    """
    if isinstance(key, str):
        return string_hash(key)
    if not isinstance(key, int) or isinstance(key, bool):
        raise IllegalMessageError(f"a sharding key is text or a number, not {type(key).__name__}")
    if -(1 << 31) <= key < 1 << 31:
        return key
    if not -(1 << 63) <= key < 1 << 63:
        raise IllegalMessageError(f"sharding key {key} needs more than 64 bits")
    folded = (key ^ key >> 32) & 0xFFFFFFFF
    return folded - (1 << 32) if folded & 0x80000000 else folded


def _room_of(broker_name: str) -> str | None:
    room, separator, _ = broker_name.partition("@")
    return room if separator else None
