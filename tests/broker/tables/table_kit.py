"""What the tests of the broker's tables share: settings, a clock, and a stock broker's files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from rmq.broker.tables.groups import GroupTable
from rmq.broker.tables.topics import TopicTable
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from collections.abc import Generator

Result = TypeVar("Result")


@dataclass
class Settings:
    """The settings that tables depend on, as they were on the golden broker."""

    cluster_name: str = "GoldenCluster"
    broker_name: str = "broker-golden"
    default_topic_queues: int = 4
    auto_create_topic: bool = True
    auto_create_group: bool = True
    cluster_topic_enabled: bool = True
    broker_topic_enabled: bool = True
    trace_topic_enabled: bool = True
    trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"


class Clock:
    """Wall-clock time in milliseconds, moved by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


def topic_table(settings: Settings | None = None, clock: Clock | None = None) -> TopicTable:
    return TopicTable(settings or Settings(), clock or Clock())


def group_table(settings: Settings | None = None, clock: Clock | None = None) -> GroupTable:
    return GroupTable(settings or Settings(), clock or Clock())


@cache
def golden_files(name: str) -> dict[str, str]:
    """Return every golden config file of this name, and every `.bak` of it, by where it is from."""
    return {
        f"{store}/{path}": data.decode()
        for store in golden.STORES
        for path, data in golden.files_below(store, "config").items()
        if path.removesuffix(".bak") == f"config/{name}"
    }


def finish(steps: Generator[None, None, Result]) -> Result:
    """Do everything in one step; return what comes of it."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
