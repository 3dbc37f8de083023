"""What a slave makes of a stock master that it asks about its log."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from rmq.errors import DiskFullError, LogGapError
from rmq.ha.protocol.slave_link import EndKind, LinkEnd
from rmq.ha.protocol.wire import CatchUp
from rmq.ha.stock_master import Extent, examine
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.remoting.bodies import KVTable
from rmq.remoting.client import open_client
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.protocol import Requests
from rmq.store.append import AppendStatus
from rmq.testing.storage import MemoryStorage
from tests.ha.following import Node, node
from tests.ha.scripted_masters import stock_questions
from tests.remoting.client_kit import address_of, serving
from tests.store.running import is_of_log, message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rmq.remoting.header import EmptyHeader
    from rmq.remoting.request import Request

SEGMENT_BYTES = 16 * 1024


async def ask(
    source: Node,
    copy: Node,
    catch_up: CatchUp = CatchUp.OLDEST,
    *,
    table: HandlerTable | None = None,
) -> LinkEnd | Extent:
    """Let a slave examine a stock master."""
    async with serving(table or stock_questions(source)) as server, open_client() as client:
        return await examine(client, address_of(server), copy.store, catch_up)


@asynccontextmanager
async def pair(copied: int | None = None, count: int = 300) -> AsyncIterator[tuple[Node, Node]]:
    """Run a master with messages and a slave that has so many bytes of them."""
    async with node() as source, node() as copy:
        source.put(count)
        if copied is not None:
            copy.core.append_raw(PhysicalOffset(0), source.bytes[:copied])
            while copy.core.dispatcher.catch_up():
                pass
        yield source, copy


# --- logs that have something in common -----------------------------------------------------------


@pytest.mark.parametrize(
    "shows_only_records", [pytest.param(False, id="Java"), pytest.param(True, id="our own")]
)
async def test_a_slave_that_has_the_beginning_follows_wherever_it_ends(
    shows_only_records: bool,
) -> None:
    async with node() as source:
        source.put(150)
        end = source.log.end
        assert end > SEGMENT_BYTES
        # Every place in the first records and around the end of a segment, blank included.
        places = [
            *range(1, 12),
            *range(12, 150, 5),
            *range(SEGMENT_BYTES - 160, SEGMENT_BYTES + 12, 2),
            end - 1,
            end,
        ]
        async with node() as copy:
            for place in places:
                copy.core.append_raw(copy.log.end, source.bytes[copy.log.end : place])
                while copy.core.dispatcher.catch_up():
                    pass
                table = stock_questions(source, shows_only_records=shows_only_records)
                assert await ask(source, copy, table=table) == Extent(PhysicalOffset(0), end), place


async def test_a_slave_is_compared_also_before_its_queues_are_built() -> None:
    async with pair() as (source, copy):
        copy.core.dispatcher.bound = lambda: PhysicalOffset(0)
        copy.core.append_raw(PhysicalOffset(0), source.bytes)
        assert await ask(source, copy) == Extent(PhysicalOffset(0), source.log.end)
        assert copy.core.dispatcher.dispatched == 0


async def test_a_slave_with_much_to_dispatch_is_compared_in_a_thread() -> None:
    async with node(segment_bytes=1024**2) as source, node(segment_bytes=1024**2) as copy:
        source.put(1200, size=400)
        copy.core.dispatcher.bound = lambda: PhysicalOffset(0)
        copy.core.append_raw(PhysicalOffset(0), source.bytes)
        assert copy.log.end > 512 * 1024
        assert await ask(source, copy) == Extent(PhysicalOffset(0), source.log.end)


async def test_a_slave_that_is_ahead_has_diverged() -> None:
    async with pair() as (source, copy):
        copy.core.append_raw(PhysicalOffset(0), source.bytes)
        copy.core.append_raw(copy.log.end, source.bytes[:1])
        found = await ask(source, copy)
        assert isinstance(found, LinkEnd)
        assert (found.kind, found.offset) == (EndKind.DIVERGED, source.log.end)
        assert f"ends at {source.log.end + 1}" in found.reason


@pytest.mark.parametrize(
    "place", [pytest.param(-1, id="the last record"), pytest.param(10, id="what follows it")]
)
async def test_a_slave_whose_end_is_another_has_diverged(place: int) -> None:
    async with pair() as (source, copy):
        whole = source.core.queues.get("T", 0)
        assert whole is not None
        entry = whole.entry(QueueOffset(100))
        assert entry is not None
        end = entry[0] + entry[1]
        data = bytearray(source.bytes[: end + 50])
        # A byte of a body, or of the beginning of the next record that is no length.
        changed = end - 60 if place < 0 else end + place
        data[changed] ^= 0xFF
        copy.core.append_raw(PhysicalOffset(0), bytes(data))
        while copy.core.dispatcher.catch_up():
            pass
        found = await ask(source, copy)
        assert isinstance(found, LinkEnd)
        assert found.kind is EndKind.DIVERGED
        assert f"differ at {entry[0] if place < 0 else end}" in found.reason


async def test_a_slave_with_records_of_its_own_has_diverged() -> None:
    async with node() as source, node() as copy:
        source.put(300)
        results = copy.store.append([message(b"of another size entirely") for _ in range(50)])
        assert {result.status for result in results} == {AppendStatus.PUT_OK}
        found = await ask(source, copy)
        assert isinstance(found, LinkEnd)
        assert found.kind is EndKind.DIVERGED


async def test_a_slave_whose_end_is_no_record_has_diverged() -> None:
    async with pair(0) as (source, copy):
        copy.core.dispatcher.bound = lambda: PhysicalOffset(0)
        copy.core.append_raw(PhysicalOffset(0), b"no record, whatever it may be" * 5)
        found = await ask(source, copy)
        assert isinstance(found, LinkEnd)
        assert found.kind is EndKind.DIVERGED
        assert "no record" in found.reason


async def test_what_the_master_no_longer_has_is_not_compared() -> None:
    async with pair(SEGMENT_BYTES) as (source, copy):
        source.core.log.segments.drop_first()
        assert await ask(source, copy) == Extent(PhysicalOffset(SEGMENT_BYTES), source.log.end)


@pytest.mark.parametrize(
    ("catch_up", "segment"),
    [
        pytest.param(CatchUp.OLDEST, 1, id="oldest"),
        pytest.param(CatchUp.LAST_FILE, -1, id="last file"),
    ],
)
async def test_a_slave_that_ends_before_the_master_begins_is_seeded_anew(
    catch_up: CatchUp, segment: int
) -> None:
    async with pair(5000, count=1000) as (source, copy):
        firsts = [segment.first for segment in source.core.log.segments]
        assert len(firsts) > 3
        source.core.log.segments.drop_first()
        found = await ask(source, copy, catch_up)
        assert isinstance(found, LinkEnd)
        assert (found.kind, found.offset) == (EndKind.RESEED, firsts[segment])
        assert copy.log.end == 5000


# --- empty slaves ---------------------------------------------------------------------------------


async def test_an_empty_slave_gets_one_byte_so_that_its_report_is_no_zero() -> None:
    async with pair() as (source, copy):
        assert await ask(source, copy) == Extent(PhysicalOffset(0), source.log.end)
        assert (copy.log.begin, copy.bytes) == (0, source.bytes[:1])


async def test_an_empty_slave_begins_where_the_master_begins() -> None:
    async with pair() as (source, copy):
        source.core.log.segments.drop_first()
        assert await ask(source, copy) == Extent(PhysicalOffset(SEGMENT_BYTES), source.log.end)
        assert (copy.log.begin, copy.log.end) == (SEGMENT_BYTES, SEGMENT_BYTES)


async def test_an_empty_slave_that_wants_the_last_file_stays_empty() -> None:
    async with pair() as (source, copy):
        assert await ask(source, copy, CatchUp.LAST_FILE) == Extent(
            PhysicalOffset(0), source.log.end
        )
        assert copy.log.end == 0


async def test_an_empty_slave_of_an_empty_master_stays_empty() -> None:
    async with node() as source, node() as copy:
        assert await ask(source, copy) == Extent(PhysicalOffset(0), PhysicalOffset(0))
        assert (copy.log.end, len(copy.core.log.segments)) == (0, 0)


async def test_a_disk_without_room_for_the_first_segment_is_an_error() -> None:
    storage = MemoryStorage()
    async with node() as source, node(storage=storage) as copy:
        source.put(10)
        async with serving(stock_questions(source)) as server, open_client() as client:
            with storage.faults.failing("reserve", 28, on=is_of_log), pytest.raises(DiskFullError):
                await examine(client, address_of(server), copy.store, CatchUp.OLDEST)
        assert copy.log.end == 0


async def test_a_log_that_was_begun_elsewhere_does_not_begin_twice() -> None:
    async with pair(0) as (source, copy):
        copy.core.begin_raw(PhysicalOffset(SEGMENT_BYTES * 4))
        with pytest.raises(LogGapError):
            copy.core.begin_raw(PhysicalOffset(SEGMENT_BYTES))
        found = await ask(source, copy)
        assert isinstance(found, LinkEnd)
        assert found.kind is EndKind.DIVERGED


# --- masters that do not answer as they should ----------------------------------------------------


def info_table(info: dict[str, str] | None) -> HandlerTable:
    """Answer 28 with this table, or with no body at all."""

    def runtime_info(request: Request[EmptyHeader]) -> None:
        request.reply(body=None if info is None else KVTable(table=info).encode())

    table = HandlerTable()
    table.add(Requests.GET_BROKER_RUNTIME_INFO, runtime_info)
    return table


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(HandlerTable(), id="no such request"),
        pytest.param(info_table(None), id="no body"),
        pytest.param(info_table({}), id="no extent"),
        pytest.param(
            info_table({"commitLogMinOffset": "many", "commitLogMaxOffset": "1"}), id="no number"
        ),
        pytest.param(
            info_table({"commitLogMinOffset": "16384", "commitLogMaxOffset": "1"}), id="no range"
        ),
    ],
)
async def test_a_master_that_cannot_be_asked_is_not_followed_now(table: HandlerTable) -> None:
    async with pair(500) as (source, copy):
        found = await ask(source, copy, table=table)
        assert isinstance(found, LinkEnd)
        assert found.kind is EndKind.CLOSED
        assert "cannot be asked" in found.reason
        assert copy.log.end == 500


async def test_a_master_that_is_not_there_is_not_followed_now() -> None:
    async with node() as copy, open_client() as client:
        found = await examine(client, "127.0.0.1:1", copy.store, CatchUp.OLDEST)
        assert isinstance(found, LinkEnd)
        assert found.kind is EndKind.CLOSED


async def test_a_master_with_segments_of_another_size_is_refused() -> None:
    extent = {"commitLogMinOffset": "10000", "commitLogMaxOffset": "20000"}
    async with pair() as (source, copy):
        found = await ask(source, copy, table=info_table(extent))
        assert isinstance(found, LinkEnd)
        assert found.kind is EndKind.REFUSED
        assert "mappedFileSizeCommitLog" in found.reason
