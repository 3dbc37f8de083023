"""When messages were stored, looked up in the files of a real store."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

from rmq.broker.metrics import ages
from rmq.broker.metrics.ages import StoreTimes
from rmq.broker.metrics.serving import store_times
from rmq.model.record import NewMessage
from rmq.store.reader.store_times import FilePart, read_entry, read_store_ms
from rmq.store.store import open_store
from tests.broker.broker_frames import START_MS
from tests.broker.broker_kit import WallClock, live_config

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from rmq.broker.metrics.ages import Place


def looked_up(times: StoreTimes, *places: Place) -> StoreTimes:
    times.begin()
    times.want(places)
    times.end()
    times.read()
    return times


async def test_the_oldest_of_several_queues_counts(tmp_path: Path) -> None:
    clock = WallClock()
    config = live_config(tmp_path).current.store
    async with open_store(config, now_ms=clock) as store:
        for queue_id in (0, 0, 1):
            store.append([NewMessage("T", queue_id, b"x" * 300, b"")])
            clock.ms += 1_000
        times = store_times(store)
        first, second, other = ("T", 0, 0), ("T", 0, 1), ("T", 1, 0)
        looked_up(times, first, second, other)
        assert times.oldest_s((), clock.ms) == 0
        assert times.oldest_s((second,), clock.ms) == 2
        assert times.oldest_s((first, other), clock.ms) == 3
        # A clock that was set back makes nothing negative.
        assert times.oldest_s((first,), START_MS - 5_000) == 0


async def test_what_is_not_there_is_not_known(tmp_path: Path) -> None:
    clock = WallClock()
    config = live_config(tmp_path).current.store
    async with open_store(config, now_ms=clock) as store:
        store.append([NewMessage("T", 0, b"x", b"")])
        known, behind, nowhere = ("T", 0, 0), ("T", 0, 1), ("U", 0, 0)
        times = looked_up(store_times(store), known, behind, nowhere)
        assert times.oldest_s((known,), clock.ms) == 0
        assert times.oldest_s((behind,), clock.ms) is None
        assert times.oldest_s((known, nowhere), clock.ms) is None


def times_of_nothing(asked: list[Place]) -> StoreTimes:
    """One whose files are not there, which notes what is looked up."""

    def queue_file(place: Place) -> FilePart:
        asked.append(place)
        return FilePart("/nonexistent/file", 0)

    return StoreTimes(queue_file, list)


def test_lookups_for_one_scrape_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ages, "LOOKUPS_MAX", 3)
    asked: list[Place] = []
    places = [("T", 0, number) for number in range(10)]
    times = looked_up(times_of_nothing(asked), *places, *places)
    assert asked == places[:3]
    assert times.oldest_s(places[:1], 0) is None


async def test_what_is_known_is_not_looked_up_again_and_forgotten_when_not_asked_for(
    tmp_path: Path,
) -> None:
    clock = WallClock()
    config = live_config(tmp_path).current.store
    async with open_store(config, now_ms=clock) as store:
        store.append([NewMessage("T", 0, b"x", b""), NewMessage("T", 0, b"y", b"")])
        first, second = ("T", 0, 0), ("T", 0, 1)
        times = looked_up(store_times(store), first)
        times.begin()
        times.want((first, second))
        assert list(times._lookups) == [second]
        times.end()
        times.read()
        looked_up(times, second)
        assert times.oldest_s((second,), clock.ms) == 0
        assert times.oldest_s((first,), clock.ms) is None


def test_bytes_that_are_no_record_have_no_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(200))
    with closing(os.fdopen(os.open(path, os.O_RDONLY), "rb")) as file:
        descriptor = file.fileno()
        assert read_entry(descriptor, 0) is None
        assert read_entry(descriptor, 190) is None
        assert read_store_ms(descriptor, 0, 8) is None
        assert read_store_ms(descriptor, 0, 150) is None
    assert read_entry(-1, 0) is None
    assert read_store_ms(-1, 0, 0) is None
