"""How a slave examines a stock master before it sends a first report.

A stock master believes the first report of a slave, whatever it says: one that is too large makes a
SYNC_MASTER confirm sends that no slave has copied, for ever. It cannot compare logs, and it takes a
report of 0 for "begin at your last file". So the slave asks it first, as a client does, over the
master's remoting address (RocketMQ 4.9.8 AdminBrokerProcessor, QueryMessageProcessor): where its
log begins and ends, and for the records with which this log ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from rmq.errors import ClientError, ProtocolError, RemoteProtocolError, ResponseError
from rmq.ha.protocol.slave_link import EndKind, LinkEnd
from rmq.ha.protocol.wire import CatchUp
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.record_layout import BLANK, BLANK_BYTES, BLANK_MAGIC
from rmq.remoting.bodies import KVTable
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import ViewMessageRequest
from rmq.store.log_scan import LogScan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.remoting.client import RemotingClient
    from rmq.store.store import MessageStore

_TIMEOUT_S: Final = 3.0
_WALK_INLINE_BYTES: Final = 256 * 1024
"""Up to this many bytes of the log are scanned in the event loop, more in a thread."""
_BLANK_MAGIC: Final = BLANK.pack(0, BLANK_MAGIC)[4:]


class Extent(NamedTuple):
    """Where a log begins and ends."""

    begin: PhysicalOffset
    end: PhysicalOffset


class Piece(NamedTuple):
    """The bytes of one record: all of it, or as much as has been received."""

    offset: PhysicalOffset
    data: bytes


async def is_ours(client: RemotingClient, address: str) -> bool:
    """Return whether a master is an rmq broker, by a request that only those know."""
    try:
        answer = await client.request(address, RequestCode.HA_STATUS, timeout_s=_TIMEOUT_S)
    except ClientError:
        return False
    return answer.code == ResponseCode.SUCCESS


async def examine(
    client: RemotingClient, address: str, store: MessageStore, catch_up: CatchUp
) -> LinkEnd | Extent:
    """Check whether this log is the beginning of the master's; prepare an empty one.

    Returns the extent of the master's log, or why it must not be followed. May raise `StoreError`
    while it prepares an empty log.
    """
    segment_bytes = store.config.segment_bytes
    end = store.log.readable
    try:
        master = await _extent(client, address)
        if master.begin % segment_bytes:
            return LinkEnd(
                EndKind.REFUSED,
                f"the master's log begins at {master.begin}, which is not the beginning of a"
                f" segment; is mappedFileSizeCommitLog {segment_bytes} there, too?",
            )
        if not end:
            return await _begin(client, address, store, catch_up, master)
        if end > master.end:
            return LinkEnd(
                EndKind.DIVERGED,
                f"this log ends at {end}, the master's at {master.end}",
                master.end,
            )
        if end < master.begin:
            start = master.begin
            if catch_up is CatchUp.LAST_FILE:
                start = max(start, PhysicalOffset(master.end - master.end % segment_bytes))
            return LinkEnd(
                EndKind.RESEED,
                f"this log ends at {end}, the master's begins at {master.begin}",
                start,
            )
        for piece in await _tail(store):
            if piece.offset >= master.begin and not await _has(client, address, piece):
                return LinkEnd(
                    EndKind.DIVERGED,
                    f"this log and the master's differ at {piece.offset}",
                    master.end,
                )
    except _BadTailError as exc:
        return LinkEnd(EndKind.DIVERGED, str(exc), master.end)
    except (ClientError, ProtocolError) as exc:
        return LinkEnd(EndKind.CLOSED, f"the stock master cannot be asked about its log: {exc}")
    return master


async def _begin(
    client: RemotingClient, address: str, store: MessageStore, catch_up: CatchUp, master: Extent
) -> Extent:
    """Prepare an empty log so that its first report makes the master begin at the right place."""
    if catch_up is CatchUp.OLDEST and master.end:
        if master.begin:
            store.begin_raw(master.begin)
        else:
            # A report of 0 would mean the last file, one of 1 means what it says.
            start = PhysicalOffset(0)
            store.append_raw(start, (await _record(client, address, start))[:1])
    return master


# --- the master's side ----------------------------------------------------------------------------


async def _extent(client: RemotingClient, address: str) -> Extent:
    answer = await client.request(
        address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_s=_TIMEOUT_S
    )
    if answer.code:
        raise ResponseError(
            address, RequestCode.GET_BROKER_RUNTIME_INFO.name, answer.code, answer.remark
        )
    table = KVTable.decode(answer.body or b"").table
    try:
        extent = Extent(
            PhysicalOffset(int(table["commitLogMinOffset"])),
            PhysicalOffset(int(table["commitLogMaxOffset"])),
        )
    except (KeyError, ValueError) as exc:
        raise RemoteProtocolError(f"the runtime info of {address} tells no extent: {exc}") from None
    if extent.begin == -1:
        # It has no file yet.
        extent = Extent(PhysicalOffset(0), extent.end)
    if not 0 <= extent.begin <= extent.end:
        raise RemoteProtocolError(f"the runtime info of {address} has the extent {extent}")
    return extent


async def _record(client: RemotingClient, address: str, offset: PhysicalOffset) -> bytes:
    code = RequestCode.VIEW_MESSAGE_BY_ID
    answer = await client.request(
        address, code, ViewMessageRequest(offset=offset), timeout_s=_TIMEOUT_S
    )
    if answer.code or not answer.body:
        raise ResponseError(address, code.name, answer.code, answer.remark)
    return bytes(answer.body)


async def _has(client: RemotingClient, address: str, piece: Piece) -> bool:
    try:
        record = await _record(client, address, piece.offset)
    except ResponseError:
        # The master has no record that begins there. The filler at the end of a segment is no
        # record either: it cannot be asked for.
        magic = piece.data[4:BLANK_BYTES]
        return _BLANK_MAGIC.startswith(magic)
    return record[: len(piece.data)] == piece.data


# --- this side ------------------------------------------------------------------------------------


class _BadTailError(Exception):
    """This log does not end in records."""


async def _tail(store: MessageStore) -> list[Piece]:
    """Return the last record that is whole, and what there is of the next one."""
    dispatched, end = store.dispatched, store.log.readable
    if end - dispatched <= _WALK_INLINE_BYTES:
        return list(_pieces(store, dispatched, end))
    return await trio.to_thread.run_sync(lambda: list(_pieces(store, dispatched, end)))


def _pieces(
    store: MessageStore, dispatched: PhysicalOffset, end: PhysicalOffset
) -> Iterator[Piece]:
    last = _last_queued(store)
    scan = LogScan(store.log.segments, dispatched, end, verify_crc=False)
    for head in scan:
        last = (head.physical_offset, head.size)
    if scan.bad is not None:
        raise _BadTailError(f"this log has bytes at {scan.offset} that are no record: {scan.bad}")
    if last is not None and (record := store.log.view(*last)) is not None:
        yield Piece(last[0], bytes(record))
    if scan.offset < end and (begun := store.log.view_from(scan.offset)) is not None:
        yield Piece(scan.offset, bytes(begun[: end - scan.offset]))


def _last_queued(store: MessageStore) -> tuple[PhysicalOffset, int] | None:
    """Return offset and size of the last record that is in a queue."""
    queue = max(store.queues, key=lambda queue: queue.max_physical, default=None)
    if queue is None or not queue.next_offset:
        return None
    entry = queue.entry(QueueOffset(queue.next_offset - 1))
    return None if entry is None else entry[:2]
