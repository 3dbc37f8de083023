"""Messages with numbers, written in turn by both sides, and the ledger of what must be there.

Numbers go in runs of eight, each to one queue, as a batch if the run is even. Everything of a
message follows from its number, so that a reader can tell what is missing, double or out of order,
whoever wrote it.
"""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Final

from interop.support.cases import MismatchError, expect
from rmq.model.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from rmq.model.record import NewMessage, pack_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stored_message import Address, Readings, StoredMessage

NUMBERS: Final = "Numbers"
SINGLE: Final = "Single-Queue"
ADDRESSES: Final[Sequence[Address]] = (*((NUMBERS, queue) for queue in range(4)), (SINGLE, 0))
RUN_LENGTH: Final = 8

_LONG_EVERY: Final = 89
_LONG_BYTES: Final = 40_000
_BORN_HOST: Final = pack_host("127.0.0.1", 50_000)


def is_batch(run: int) -> bool:
    return run % 2 == 0


def address_of(number: int) -> Address:
    return ADDRESSES[number // RUN_LENGTH % len(ADDRESSES)]


def numbers_of(runs: Iterable[int]) -> list[int]:
    return [
        number for run in runs for number in range(run * RUN_LENGTH, run * RUN_LENGTH + RUN_LENGTH)
    ]


def begun_behind(numbers: Sequence[int], count: int) -> list[int]:
    """Return what a writer may have begun who has put `count` of these: a batch, or one message."""
    first = numbers[count]
    run = first // RUN_LENGTH
    return numbers_of([run]) if is_batch(run) else [first]


def body_of(number: int) -> bytes:
    length = _LONG_BYTES if number % _LONG_EVERY == 0 else number * 7919 % 2000
    pattern = f"message {number} ".encode()
    return pattern + (pattern * (length // len(pattern) + 1))[:length]


def key_of(number: int) -> str:
    return f"number-{number}"


def new_messages(run: int) -> list[NewMessage]:
    """Return the messages of a run for our engine."""
    topic, queue_id = address_of(run * RUN_LENGTH)
    born_ms = time.time_ns() // 1_000_000
    return [
        NewMessage(
            topic,
            queue_id,
            body_of(number),
            encode_properties(
                {
                    KEYS: _keys_of(number),
                    UNIQ_KEY: f"{number:032X}",
                    TAGS: _tags_of(number),
                    "number": str(number),
                }
            ),
            flag=number,
            born_ms=born_ms,
            born_host=_BORN_HOST,
        )
        for number in numbers_of([run])
    ]


def send_line(run: int) -> dict[str, object]:
    """Return a run for `java/interop/Sending`."""
    topic, queue_id = address_of(run * RUN_LENGTH)
    return {
        "topic": topic,
        "queueId": queue_id,
        "batch": is_batch(run),
        "messages": [
            {
                "body": base64.b64encode(body_of(number)).decode(),
                "tags": _tags_of(number),
                "keys": _keys_of(number),
                "properties": {"number": str(number)},
            }
            for number in numbers_of([run])
        ],
    }


def _keys_of(number: int) -> str:
    return f"{key_of(number)} run-{number // RUN_LENGTH}"


def _tags_of(number: int) -> str:
    return f"tag-{number % 3}"


class Ledger:
    """Which numbers were acknowledged, queue by queue, in the order of writing."""

    def __init__(self) -> None:
        self._numbers: dict[Address, list[int]] = {address: [] for address in ADDRESSES}

    def acknowledge(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._numbers[address_of(number)].append(number)

    @property
    def count(self) -> int:
        return sum(map(len, self._numbers.values()))

    def all_numbers(self) -> list[int]:
        return sorted(number for numbers in self._numbers.values() for number in numbers)

    def expect_in(self, readings: Readings) -> None:
        """Raise `MismatchError` unless every queue has its numbers, all, in order, once."""
        for address, numbers in self._numbers.items():
            found = _checked_numbers(address, readings.get(address, []))
            if found != numbers:
                raise MismatchError(f"queue {address}: {_difference(found, numbers)}")

    def settle(self, readings: Readings, begun: Sequence[int]) -> list[int]:
        """The same after the writer was killed while it wrote the numbers `begun`.

        Of these there may be some from the first on; they are returned and acknowledged from now
        on.
        """
        present = {
            number
            for address in ADDRESSES
            for number in _checked_numbers(address, readings.get(address, []))
        }
        late = [number for number in begun if number in present]
        expect("unacknowledged messages", late, list(begun[: len(late)]))
        self.acknowledge(late)
        self.expect_in(readings)
        return late


def _checked_numbers(address: Address, messages: Sequence[StoredMessage]) -> list[int]:
    """Return the numbers in a queue; raise `MismatchError` if a message is not what it should."""
    numbers: list[int] = []
    for queue_offset, message in enumerate(messages):
        number = int(message.properties["number"])
        expect(f"queue offset of {message}", message.queue_offset, queue_offset)
        expect(f"queue of {message}", address_of(number), address)
        expect(f"body of {message}", message.body, body_of(number))
        expect(f"keys of {message}", message.keys, _keys_of(number))
        expect(f"tags of {message}", message.tags, _tags_of(number))
        numbers.append(number)
    return numbers


def _difference(found: Sequence[int], wanted: Sequence[int]) -> str:
    missing = sorted(set(wanted) - set(found))
    unexpected = sorted(set(found) - set(wanted))
    double = len(found) - len(set(found))
    return (
        f"{len(found)} messages instead of {len(wanted)}; {len(missing)} missing"
        f" ({missing[:5]} ...), {len(unexpected)} not expected ({unexpected[:5]} ...),"
        f" {double} double"
    )
