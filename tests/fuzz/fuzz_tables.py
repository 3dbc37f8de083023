"""Files of a broker's tables: damaged ones are read, or refused as `ConfigFile.load` expects.

What was read can be written, and read again with as many entries.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final

from rmq.broker.delays.file import progress_after_cut
from rmq.broker.tables.consumer_offsets import ConsumerOffsets
from rmq.errors import RmqError
from rmq.model.offsets import PhysicalOffset
from tests.broker.tables.table_kit import Clock, golden_files, group_table, topic_table
from tests.fuzz.mutations import mutated_text

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from rmq.broker.tables.groups import GroupTable
    from rmq.broker.tables.topics import TopicTable

_DELAYS_NAME: Final = "delayOffset.json"
_NAMES: Final = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", _DELAYS_NAME)
_DELAYS: Final = (
    b'{"offsetTable":{1:12,2:7},"trail":{1:{100:3,200:12},2:{150:7}}}',
    b'{"offsetTable":{"1":12}}',
)
_LOG_END: Final = PhysicalOffset(160)


@contextmanager
def examiner() -> Iterator[Callable[[random.Random], str]]:
    logging.disable(logging.CRITICAL)
    try:
        yield examine
    finally:
        logging.disable(logging.NOTSET)


def examine(chance: random.Random) -> str:
    """Damage one file and read it."""
    name = chance.choice(_NAMES)
    data = mutated_text(chance.choice(_texts(name)), chance)
    try:
        # What `ConfigFile.load` takes for damage.
        _load_table(name, data.decode())
    except (RmqError, ValueError):
        return "refused"
    return "read"


@cache
def _texts(name: str) -> tuple[bytes, ...]:
    if name == _DELAYS_NAME:
        return _DELAYS
    return tuple(dict.fromkeys(text.encode() for text in golden_files(name).values()))


def _load_table(name: str, text: str) -> None:
    if name == _DELAYS_NAME:
        cut = progress_after_cut(text, _LOG_END)
        if cut is not None:
            assert progress_after_cut(cut, _LOG_END) in (None, cut), "a second cut goes further"
        return
    table, again = _table(name), _table(name)
    table.load(text)
    written = table.render()
    try:
        again.load(written)
    except (RmqError, ValueError) as exc:
        raise AssertionError(f"what was written cannot be read: {exc}: {written[:300]}") from exc
    assert len(again) == len(table), f"read again it says something else: {text[:2000]!r}"


def _table(name: str) -> TopicTable | GroupTable | ConsumerOffsets:
    match name:
        case "topics.json":
            return topic_table()
        case "subscriptionGroup.json":
            return group_table()
    return ConsumerOffsets(Clock())
