"""Captured runs, replayed against running servers: the same frames on as many new connections.

A run is gone through row by row. What the client sent is sent, and when the capture has a frame of
the server, that frame is waited for: so requests are under way at the same time as they were then.
Only what depends on time is changed in requests (see `_changes`). The rest is the state of the
servers: it is brought about by the runs themselves, in the order in which they were captured, and
by what happened between them (see `wire_interludes`).
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from rmq.remoting.bodies import KVTable
from rmq.remoting.codes import RequestCode, ResponseCode
from tests.e2e.waiting import wait_until
from tests.e2e.wire_capture import MQADMIN, answers, rows, with_fields
from tests.e2e.wire_compare import NOTHING, Difference, differences
from tests.e2e.wire_interludes import Interludes
from tests.e2e.wire_peer import connected

if TYPE_CHECKING:
    from tests.e2e.golden_cluster import GoldenCluster
    from tests.e2e.wire_capture import Row
    from tests.e2e.wire_peer import Peer
    from tests.remoting.server_kit import Frame

ORDER: Final = (
    ("cluster-start",),
    ("producer",),
    # These do not see each other, and all of them hold pulls until somebody looks at their times.
    ("push", "broadcast", "orderly"),
    ("transaction",),
    ("pull",),
    ("sql",),
    ("producer-binary",),
    *((run,) for run in MQADMIN),
)
"""As the runs were captured; those in a group are replayed at once."""

_HOLD_MS: Final = 100
_TIMES_MS: Final = range(10**12, 10**13)
_ASK_S: Final = 5.0

_LOG_ENDS: Final = {
    "producer": 8_678,
    "push": 10_938,
    "transaction": 13_347,
    "producer-binary": 21_000,
}
"""Where the golden log ended after these runs: delayed messages and transactions were over."""
_LOG_ENDS_BEFORE: Final = {("cluster-start", "GET_ALL_TOPIC_CONFIG", 50): 4_339}
"""The same within a run, before a request of a slave that shows how far delivery has come."""


class Heard(NamedTuple):
    """A captured frame of a server, and in what ours is not like it."""

    run: str
    row: Row
    differences: list[Difference]


@final
@dataclass
class Replayed:
    """What came of all runs."""

    heard: list[Heard] = field(default_factory=list)
    uninvited: list[str] = field(default_factory=list)
    """Requests of servers that captured ones did not make."""
    log: bytes = b""
    """What the master has stored, as the captured one would have."""


async def replay_all(cluster: GoldenCluster) -> Replayed:
    """Replay all captured runs."""
    replayed = Replayed()
    interludes = Interludes(cluster)
    for group in ORDER:
        for run in group:
            await interludes.before(run)
        async with trio.open_nursery() as nursery:
            for run in group:
                nursery.start_soon(_Run(cluster, run, replayed).replay)
    # All of it is in the first file.
    file = cluster.store("master") / "commitlog" / f"{0:020}"
    replayed.log = cluster.as_captured(file.read_bytes())
    return replayed


@final
class _Run:
    """One run, being replayed."""

    def __init__(self, cluster: GoldenCluster, run: str, replayed: Replayed) -> None:
        self._cluster = cluster
        self._run = run
        self._replayed = replayed
        self._peers: dict[int, Peer] = {}
        self._requests = {row.key: row for row in rows(run) if row.is_from_client}
        self._heartbeats: dict[tuple[int, int], Peer] = {}
        """Those under way, with who sent them."""
        self._half_offsets: dict[str, str] = {}
        """Where half messages were stored then, and are now."""

    async def replay(self) -> None:
        async with AsyncExitStack() as stack:
            for row in rows(self._run):
                if row.conn not in self._peers:
                    connection = connected(self._cluster.ports[self._server(row)])
                    self._peers[row.conn] = await stack.enter_async_context(connection)
                if row.is_from_client:
                    await self._ask(row, self._peers[row.conn])
                else:
                    await self._hear(row, self._peers[row.conn])
            self._note_uninvited()
        if self._run in _LOG_ENDS:
            await self._wait_log_end(_LOG_ENDS[self._run])

    def _server(self, row: Row) -> str:
        registers = self._run == "cluster-start" and row.server == "namesrv"
        return "empty-namesrv" if registers else row.server

    # --- what clients said -------------------------------------------------------------------

    async def _ask(self, row: Row, peer: Peer) -> None:
        end = _LOG_ENDS_BEFORE.get((self._run, row.request_name, row.opaque))
        if end is not None:
            await self._wait_log_end(end)
        if row.name == "HEART_BEAT":
            self._heartbeats[row.key] = peer
        elif row.name == "GET_ROUTEINFO_BY_TOPIC":
            # A heartbeat may make a topic. Its route is known when the heartbeat is answered; the
            # captured client could ask a little sooner, once, and was lucky.
            for (_, opaque), sender in self._heartbeats.items():
                await sender.wait_answered(opaque)
        changes = self._changes(row, str(time.time_ns() // 1_000_000))
        await peer.send(with_fields(row.frame, changes) if changes else row.frame)

    def _changes(self, row: Row, now_ms: str) -> dict[str, str]:
        """Return the header fields of a request that have to be other ones today."""
        fields = row.fields
        match row.request_name:
            case "PULL_MESSAGE":
                answer = answers(self._run).get(row.key)
                if answer is not None and answer.code == ResponseCode.PULL_NOT_FOUND:
                    # It was held for 15 s, and nothing came.
                    return {"suspendTimeoutMillis": str(_HOLD_MS)}
            case "SEARCH_OFFSET_BY_TIMESTAMP" if int(fields["timestamp"]) in _TIMES_MS:
                return {"timestamp": now_ms}
            case "QUERY_MESSAGE" if int(fields["endTimestamp"]) in _TIMES_MS:
                return {"endTimestamp": now_ms}
            case "SEND_MESSAGE_V2" if "TRAN_MSG" in fields["i"]:
                # Half messages are asked about when they are old.
                return {"g": now_ms}
            case "END_TRANSACTION":
                offset = fields["commitLogOffset"]
                return {"commitLogOffset": self._half_offsets.get(offset, offset)}
        return {}

    # --- what servers say --------------------------------------------------------------------

    async def _hear(self, row: Row, peer: Peer) -> None:
        if row.is_response:
            ours = await peer.answer(row.opaque)
            self._heartbeats.pop(row.key, None)
            if ours is not None:
                ours = await self._until_complete(row, peer, ours)
        else:
            ours = await peer.request(row.parsed.code)
        if ours is not None:
            ours = self._as_captured(ours)
            if row.request_name == "SEND_MESSAGE_V2" and ours.code == ResponseCode.SUCCESS:
                captured_id, our_id = row.fields["msgId"], (ours.fields or {})["msgId"]
                self._half_offsets[_offset_in(captured_id)] = _offset_in(our_id)
        found = differences(row.request_name, row.parsed, ours)
        self._replayed.heard.append(Heard(self._run, row, found))

    async def _until_complete(self, row: Row, peer: Peer, ours: Frame) -> Frame:
        """Pull the rest of what was pulled then.

        The first message wakes a pull. The captured broker had stored two before it looked again.
        """
        while (
            row.request_name == "PULL_MESSAGE"
            and ours.code == row.parsed.code == ResponseCode.SUCCESS
            and (offset := (ours.fields or {})["nextBeginOffset"]) != row.fields["nextBeginOffset"]
        ):
            frame = with_fields(self._requests[row.key].frame, {"queueOffset": offset})
            more = await _ask_again(peer, frame, ours)
            if more.code != ResponseCode.SUCCESS or not more.body:
                break
            ours = replace(more, body=ours.body + more.body)
        return ours

    def _as_captured(self, frame: Frame) -> Frame:
        def text(said: str) -> str:
            return self._cluster.as_captured(said.encode()).decode()

        return replace(
            frame,
            remark=None if frame.remark is None else text(frame.remark),
            fields=frame.fields and {name: text(value) for name, value in frame.fields.items()},
            body=self._cluster.as_captured(frame.body),
        )

    def _note_uninvited(self) -> None:
        """Take note of frames that have nothing captured to be compared with."""
        for conn, peer in self._peers.items():
            for frame in peer.unclaimed_answers():
                row = self._requests[conn, frame.opaque]
                difference = Difference("answer", NOTHING, frame.code)
                self._replayed.heard.append(Heard(self._run, row, [difference]))
            self._replayed.uninvited += [
                f"{self._run}, connection {conn}: {RequestCode(frame.code).name} {frame.fields}"
                for frame in peer.unclaimed_requests()
            ]

    # --- time --------------------------------------------------------------------------------

    async def _wait_log_end(self, end: int) -> None:
        """Return when the master has stored so much, and has it on disk."""
        seen: dict[str, str] = {}

        async def is_there() -> bool:
            code = RequestCode.GET_BROKER_RUNTIME_INFO
            address = self._cluster.address("master")
            answer = await self._cluster.client.request(address, code, timeout_s=_ASK_S)
            table = KVTable.decode(answer.body).table
            for key in ("commitLogMaxOffset", "remainHowManyDataToFlush"):
                seen[key] = table[key]
            return (*seen.values(),) == (str(end), "0 B")

        await wait_until(
            f"the log to end at {end} with {self._run}", is_there, otherwise=lambda: seen
        )


async def _ask_again(peer: Peer, request: bytes, before: Frame) -> Frame:
    """Return the answer to one more request; the one before it if none comes."""
    await peer.send(request)
    return await peer.answer(before.opaque) or before


def _offset_in(message_id: str) -> str:
    """Return where a message with this offset message id is in the log."""
    return str(int(message_id[16:32], 16))
