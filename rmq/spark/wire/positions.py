"""Places in queues as Spark stores them and options give them: JSON by topic, broker and queue.

    {"Orders": {"broker-a": {"0": 23, "1": -2}}}

-2 stands for the first message of a queue, -1 for its end. Spark compares offsets as text, so the
keys of what is made here are always sorted: the same places in another order would count as new
data, for ever.

The place where a query starts is marked (`INITIAL`). Spark stores the end of every batch, but not
the start of the first one; it asks for that again whenever it repeats the first batch. So the first
batch is planned to be empty and to end where it starts, which stores the start; the mark tells the
first batch from all others, whenever and in whatever order Spark asks for it. No topic can have the
name of the mark.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from rmq.errors import ConfigError
from rmq.model.limits import QUEUE_ID_MAX
from rmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

EARLIEST: Final = -2
LATEST: Final = -1
INITIAL: Final = "@initial"
OFFSET_MAX: Final = 2**63 - 1
_SHOWN_MAX: Final = 5


def as_offset(places: Mapping[MessageQueue, int], *, is_initial: bool = False) -> dict[str, Any]:
    """Return places as an offset for Spark, always with its keys in the same order."""
    by_topic: dict[str, Any] = {INITIAL: {}} if is_initial else {}
    for queue, place in places.items():
        by_broker = by_topic.setdefault(queue.topic, {})
        by_broker.setdefault(queue.broker_name, {})[str(queue.queue_id)] = place
    return {
        topic: {
            broker: {number: by_queue[number] for number in sorted(by_queue)}
            for broker, by_queue in sorted(by_broker.items())
        }
        for topic, by_broker in sorted(by_topic.items())
    }


def read_offset(offset: Mapping[str, Any]) -> dict[MessageQueue, int]:
    """Return the places in an offset, in order; raise `ConfigError` if it is none of ours."""
    return dict(sorted(_places("offset", {key: offset[key] for key in offset if key != INITIAL})))


def is_initial(offset: Mapping[str, Any]) -> bool:
    """Tell whether an offset is the start of a query, as opposed to the end of a batch."""
    return INITIAL in offset


def parse_places(key: str, text: str) -> dict[MessageQueue, int]:
    """Read the JSON of an option; raise `ConfigError` that says what is wrong with it."""
    places = dict(sorted(_places(key, _parse(key, text))))
    if not places:
        raise ConfigError(key, "names no queue")
    return places


def parse_assignment(key: str, text: str) -> tuple[MessageQueue, ...]:
    """Read `{"topic": {"broker": [0, 1]}}`; raise `ConfigError`."""
    queues = []
    for topic, by_broker in _members(key, _parse(key, text), "a topic"):
        for broker, numbers in _members(key, by_broker, f"a broker of {topic}"):
            if not isinstance(numbers, list):
                raise ConfigError(key, f"{topic}, {broker}: {_short(numbers)} is no list of queues")
            for number in numbers:
                if type(number) is not int or not 0 <= number <= QUEUE_ID_MAX:
                    raise ConfigError(
                        key, f"{topic}, {broker}: {_short(number)} is no number of a queue"
                    )
                queues.append(MessageQueue(topic=topic, broker_name=broker, queue_id=number))
    if not queues:
        raise ConfigError(key, "names no queue")
    if len(set(queues)) < len(queues):
        twice = next(queue for queue in queues if queues.count(queue) > 1)
        raise ConfigError(key, f"{name_of(twice)} is named twice")
    return tuple(sorted(queues))


def name_of(queue: MessageQueue) -> str:
    """Return the name of a queue in messages."""
    return f"topic {queue.topic}, broker {queue.broker_name}, queue {queue.queue_id}"


def names_of(queues: Iterable[MessageQueue]) -> str:
    """Return the names of several queues in messages, not all of them if they are many."""
    wanted = sorted(queues)
    shown = "; ".join(map(name_of, wanted[:_SHOWN_MAX]))
    return shown if len(wanted) <= _SHOWN_MAX else f"{shown} and {len(wanted) - _SHOWN_MAX} more"


def _parse(key: str, text: str) -> Any:  # noqa: ANN401 - whatever was written there
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as exc:
        raise ConfigError(key, f"{_short(text)} is not JSON: {exc}") from exc


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is there twice")
    return found


def _places(key: str, value: object) -> Iterator[tuple[MessageQueue, int]]:
    for topic, by_broker in _members(key, value, "a topic"):
        for broker, by_queue in _members(key, by_broker, f"a broker of {topic}"):
            for number, place in _members(key, by_queue, f"a queue of {topic} on {broker}"):
                # Exactly as we write it, or the same queue could be there twice.
                if not (number.isascii() and number.isdigit() and str(int(number)) == number):
                    raise ConfigError(
                        key, f"{topic}, {broker}: {_short(number)} is no number of a queue"
                    )
                queue_id = int(number)
                if queue_id > QUEUE_ID_MAX:
                    raise ConfigError(key, f"{topic}, {broker}: {number} is no number of a queue")
                if type(place) is not int or not EARLIEST <= place <= OFFSET_MAX:
                    raise ConfigError(
                        key,
                        f"{topic}, {broker}, queue {number}: {_short(place)} is no offset;"
                        f" write a whole number, {EARLIEST} for the first message or {LATEST} for"
                        " the end",
                    )
                yield MessageQueue(topic=topic, broker_name=broker, queue_id=queue_id), place


def _members(key: str, value: object, what: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise ConfigError(
            key, f"{_short(value)} stands where {what} should be named: {{name: ...}} is expected"
        )
    yield from value.items()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
