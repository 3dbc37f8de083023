"""Questions about single messages, with the answers our engine's book has for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from our_engine import query
from stored_message import expect_same_messages, from_java, from_record
from varied_messages import EVENTS, LONG_NAME, ORDERS, QUIET, ROCKET_KEY, STEP_MS

from interop.support.cases import expect, expect_true
from rmq.model.record import parse_message_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stored_message import StoredMessage
    from varied_messages import Written

    from rmq.store.core import StoreCore

_MAX: Final = 64
_FOREVER_MS: Final = 2**62


@dataclass(frozen=True)
class Question:
    """Something to ask the stock client, and our engine."""

    line: Mapping[str, Any]
    """As `java/interop/Asking` reads it."""
    wanted: Sequence[StoredMessage] | int

    def check_java(self, answer: Mapping[str, Any]) -> None:
        """Raise `MismatchError` unless the stock client got the right answer."""
        if isinstance(self.wanted, int):
            expect(str(self.line), answer["offset"], self.wanted)
            return
        found = sorted(map(from_java, answer["messages"]), key=lambda found: found.physical_offset)
        expect_same_messages(str(self.line), found, self.wanted)

    def check_ours(self, core: StoreCore) -> None:
        """Raise `MismatchError` unless our engine gives the same answer."""
        line = self.line
        if isinstance(self.wanted, int):
            offset = core.reads.offset_by_time(line["topic"], line["queueId"], line["ms"])
            expect(str(line), offset, self.wanted)
            return
        if line["kind"] == "id":
            _, physical_offset = parse_message_id(line["id"])
            record = core.reads.record_at(physical_offset)
            found = [from_record(record)] if record is not None else []
        elif line["kind"] == "key":
            found = query(
                core, line["topic"], line["key"], begin_ms=line["begin"], end_ms=line["end"]
            )
        else:
            found = query(core, line["topic"], line["key"])
        expect_same_messages(str(line), found, self.wanted)


def by_key(
    topic: str,
    key: str,
    wanted: Sequence[StoredMessage],
    *,
    begin_ms: int = 0,
    end_ms: int = _FOREVER_MS,
) -> Question:
    line = {
        "kind": "key",
        "topic": topic,
        "key": key,
        "max": _MAX,
        "begin": begin_ms,
        "end": end_ms,
    }
    return Question(line, wanted)


def by_unique_key(message: StoredMessage) -> Question:
    line = {"kind": "unique", "topic": message.topic, "key": message.unique_key}
    return Question(line, [message])


def by_id(message: StoredMessage) -> Question:
    return Question({"kind": "id", "id": message.offset_id}, [message])


def by_time(topic: str, queue_id: int, ms: int, wanted: int) -> Question:
    return Question({"kind": "time", "topic": topic, "queueId": queue_id, "ms": ms}, wanted)


def varied_questions(written: Written) -> dict[str, list[Question]]:
    """Return questions about the messages of `varied_messages`, by what is looked for."""
    orders = [message for message in written.queued if message.topic == ORDERS]
    everyone = (*written.queued, *written.hidden)
    return {
        "a key of one message": [
            by_key(topic, key, written.find(topic, key))
            for topic, key in _own_keys(written.queued[::37])
        ],
        "a key of many messages": [
            by_key(topic, key, written.find(topic, key))
            for topic in (EVENTS, ORDERS, LONG_NAME)
            for key in ("customer-0", "customer-7", "customer-33")
        ],
        "a key of a batch": [
            by_key(ORDERS, f"batch-{number}", written.find(ORDERS, f"batch-{number}"))
            for number in (50, 1250, 2350)
        ],
        "a key within a time": _windows(written, "customer-11"),
        "a key nobody has": [
            by_key(ORDERS, "nobody", []),
            by_key(QUIET, "customer-0", []),
            # Rolled back: the record is there, but not in the index.
            *(by_key(ORDERS, message.keys or "", []) for message in written.hidden[1:9:2]),
        ],
        "a unique key": [
            by_unique_key(message) for message in written.queued[::41] if message.unique_key
        ],
        "an id": [by_id(message) for message in (*everyone[::53], everyone[-1], orders[0])],
        "a time": _times(written.readings[EVENTS, 0]),
    }


def _own_keys(messages: Iterable[StoredMessage]) -> list[tuple[str, str]]:
    return [
        (message.topic, key)
        for message in messages
        for key in (message.keys or "").split(" ")
        if key.startswith(("order-", ROCKET_KEY))
    ]


def _windows(written: Written, key: str) -> list[Question]:
    """Return questions for a key whose bounds lie seconds away from any message that has it."""
    messages = written.find(ORDERS, key)
    times = [message.store_ms for message in messages]
    questions: list[Question] = []
    for first, last in ((0, 3), (2, len(times) - 3), (len(times) // 2, len(times) // 2 + 1)):
        begin_ms = (times[first - 1] + times[first]) // 2 if first else 0
        end_ms = (times[last - 1] + times[last]) // 2
        expect_true("windows far from any message", times[last] - end_ms > 20 * STEP_MS)
        wanted = messages[first:last]
        questions.append(by_key(ORDERS, key, wanted, begin_ms=begin_ms, end_ms=end_ms))
    return questions


def _times(messages: Sequence[StoredMessage]) -> list[Question]:
    """Return questions for exact times and for times between two messages, in several files."""
    topic, queue_id = messages[0].topic, messages[0].queue_id
    last = len(messages) - 1
    exact = [
        by_time(topic, queue_id, messages[offset].store_ms, offset)
        for offset in (0, 1, 150, 298, 299, 300, 301, 599, 600, 777, last - 1, last)
    ]
    # Twice as near to the message before as to the one after.
    near = [
        by_time(topic, queue_id, messages[offset].store_ms + STEP_MS // 3, offset)
        for offset in (0, 150, 450, last - 1)
    ]
    # Behind the last message of a file a stock broker looks into the next file only.
    between_files = by_time(topic, queue_id, messages[299].store_ms + STEP_MS // 3, 300)
    before = by_time(topic, queue_id, messages[0].store_ms - 3_600_000, 0)
    after = by_time(topic, queue_id, messages[last].store_ms + 3_600_000, last)
    return [*exact, *near, between_files, before, after]
