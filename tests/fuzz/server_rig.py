"""A nameserver and a broker in this process, on loopback and a temporary store, to be fuzzed.

Both live under a clock that goes on by itself and can be moved on (`Rig.pass_time`), and that the
time of day follows: what waits for 15 s is waited for in no time. `Rig.dial` gives a `Peer`.
"""

from __future__ import annotations

import re
import time
import zlib
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, final

import trio
import trio.testing

from rmq.broker.broker import serve_broker
from rmq.broker.config import LiveConfig, load_broker_config
from rmq.errors import RmqError
from rmq.model.properties import decode_properties
from rmq.nameserver.config import load_nameserver_config
from rmq.nameserver.server import serve_nameserver
from rmq.remoting.bodies import RESPONSE_BODIES, decode_batch
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    RESPONSE_HEADERS,
    SendMessageRequest,
    SendMessageRequestV2,
    SendMessageResponse,
)
from rmq.store.record import parse_message_id
from tests.e2e.servers import free_port
from tests.fuzz.server_peer import Peer, Server
from tests.fuzz.server_requests import Maker
from tests.fuzz.server_watch import FUZZ_TASK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from rmq.broker.broker import Broker
    from rmq.nameserver.server import Nameserver
    from rmq.remoting.command import Command
    from rmq.remoting.dispatch import HandlerTable
    from tests.fuzz.server_values import Values
    from tests.fuzz.server_watch import Note, StepWatch

HOST: Final = "127.0.0.1"
DELAY_LEVELS: Final = "1s 2s 3s 1s"
SETTINGS: Final = {
    "brokerIP1": HOST,
    "brokerIP2": HOST,
    "bindAddress": HOST,
    "brokerName": "broker-under-fuzz",
    "messageDelayLevel": DELAY_LEVELS,
    "enablePropertyFilter": "true",
    "mappedFileSizeCommitLog": str(8 * 1024**2),
    "mappedFileSizeConsumeQueue": str(1000 * 20),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "maxMessageSize": str(1024**2),
    # The state of the machine is not what is looked at.
    "osPageCacheBusyTimeOutMills": "10000",
    "diskMaxUsedSpaceRatio": "95",
    "rocketmq.broker.diskSpaceCleanForciblyRatio": "1.0",
    "rocketmq.broker.diskSpaceWarningLevelRatio": "1.0",
}
_SENDS: Final = {
    int(RequestCode.SEND_MESSAGE): SendMessageRequest,
    int(RequestCode.SEND_MESSAGE_V2): SendMessageRequestV2,
    int(RequestCode.SEND_BATCH_MESSAGE): SendMessageRequestV2,
}
_HANDED_ON: Final = (
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
)
"""Requests whose answers are a consumer's, whatever it says."""
_CODES: Final = frozenset(map(int, ResponseCode))
_PYTHON_ERROR: Final = re.compile(r"(?:[A-Z]\w*(?:Error|Exception|Group)|KeyboardInterrupt): ?")
_STEP_S: Final = 1.0
_QUIET_S: Final = 0.3
_JUMPS_MAX: Final = 40
_STOP_S: Final = 20.0


@final
class Rig:
    """The servers, and what is known of them."""

    def __init__(
        self,
        broker: Broker,
        nameserver: Nameserver,
        values: Values,
        nursery: trio.Nursery,
        note: Note,
    ) -> None:
        self.broker = broker
        self.nameserver = nameserver
        self.values = values
        self.chance = values.chance
        self.note = note
        self.nursery = nursery
        self.answers: Counter[tuple[str, int]] = Counter()
        """How often requests of a code were answered with a code."""
        self.frames = 0
        """How many frames were sent."""
        self.ledger: dict[int, tuple[int, int]] = {}
        """Length and checksum of acknowledged bodies, by physical offset."""
        self.peers: list[Peer] = []
        vip_table = broker.vip_server._dispatcher._bound
        self.servers = {
            "broker": self._server("broker", broker.server.port, broker.table),
            "vip": Server("vip", broker.vip_server.port, self._maker(broker.table), True),
            "nameserver": self._server("nameserver", nameserver.port, nameserver.table),
        }
        self.servers["vip"].maker.served = {
            code: kind
            for code, kind in self.servers["broker"].maker.served.items()
            if code in vip_table
        }

    def _maker(self, table: HandlerTable) -> Maker:
        return Maker(table, self.values)

    def _server(self, name: str, port: int, table: HandlerTable) -> Server:
        return Server(name, port, self._maker(table), answers_unknown=name != "nameserver")

    # --- connections -------------------------------------------------------------------------

    async def dial(self, server: str) -> Peer:
        """Connect to a server."""
        target = self.servers[server]
        sock = trio.socket.socket()
        await sock.connect((HOST, target.port))
        peer = Peer(trio.SocketStream(sock), target, self.check_answer, self.note)
        self.peers.append(peer)
        self.nursery.start_soon(peer.run, name=f"{FUZZ_TASK} peer")
        return peer

    async def settle(self, *, lets_time_pass: bool = True) -> None:
        """Wait until everything that is owed to peers has come, as long as that may take."""
        await self._wait(lambda: not self._debtors(), _QUIET_S)
        jumps = 0
        while lets_time_pass and self._debtors() and jumps < _JUMPS_MAX:
            await self.pass_time(_STEP_S)
            jumps += 1
        if self._debtors():
            await self._wait(lambda: not self._debtors(), 3.0)
        for peer in self._debtors():
            for request in peer.unanswered():
                self.note(
                    f"no answer to {request.code} from {peer.server.name}",
                    f"after {jumps} s: {describe(request)}",
                )
            peer.forgive()

    def _debtors(self) -> list[Peer]:
        return [peer for peer in self.peers if peer.is_owed]

    async def hang_up(self) -> None:
        """Close all connections."""
        for peer in list(self.peers):
            await self.close(peer)

    async def close(self, peer: Peer) -> None:
        """Close a connection."""
        await peer.close(self.chance)
        self.frames += peer.sent
        self.peers.remove(peer)

    async def _wait(self, is_so: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > end:
                return False
            await trio.sleep(0.0005)
        return True

    async def wait_until(self, what: str, is_so: Callable[[], bool], seconds: float = 3.0) -> bool:
        """Wait for something that must come true soon; a finding if it does not."""
        if await self._wait(is_so, seconds):
            return True
        self.note(f"not in time: {what.partition(':')[0]}", what)
        return False

    async def pass_time(self, seconds: float) -> None:
        """Let both clocks go on."""
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        while seconds > 0:
            clock.jump(min(_STEP_S, seconds))
            seconds -= _STEP_S
            # Threads are not waited for by `wait_all_tasks_blocked`.
            await trio.sleep(0.001)
            await trio.testing.wait_all_tasks_blocked()

    # --- answers -----------------------------------------------------------------------------

    def check_answer(self, server: Server, request: Command, answer: Command) -> None:
        """Look at an answer, whatever the request was."""
        self.answers[f"{server.name} {request.code}", answer.code] += 1
        if request.code not in _HANDED_ON:
            self._check_code(server, request, answer)
        if answer.code == ResponseCode.SUCCESS:
            try:
                self._read_success(request, answer)
            except (RmqError, ValueError) as exc:
                self.note(
                    f"{server.name} {request.code}: the answer cannot be read",
                    f"{exc}\n  {describe(request)}",
                )

    def _check_code(self, server: Server, request: Command, answer: Command) -> None:
        remark = answer.remark or ""
        if answer.code not in _CODES:
            self.note(f"{server.name} {request.code}: unknown code {answer.code}", remark)
        if answer.code == ResponseCode.SYSTEM_ERROR and not remark.strip():
            self.note(f"{server.name} {request.code}: no reason given", describe(request))
        if _PYTHON_ERROR.match(remark):
            self.note(
                f"{server.name} {request.code}: {remark.partition(':')[0]}",
                f"{remark}\n  {describe(request)}",
            )

    def _read_success(self, request: Command, answer: Command) -> None:
        try:
            code = RequestCode(request.code)
        except ValueError:
            return
        header_class = RESPONSE_HEADERS[code]
        if header_class is not None:
            answer.header(header_class)
        body_class = RESPONSE_BODIES.get(code)
        if body_class is not None and answer.body and code not in _HANDED_ON:
            body_class.decode(answer.body, lenient_bytes_max=1 << 30)
        if request.code in _SENDS:
            self._remember(request, answer)

    def _remember(self, request: Command, answer: Command) -> None:
        header = request.header(_SENDS[request.code])
        stored = answer.header(SendMessageResponse)
        bodies = [request.body or b""]
        if header.batch:
            bodies = [message.body for message in decode_batch(request.body)]
        ids = stored.msg_id.split(",")
        if len(ids) != len(bodies):
            raise ValueError(f"{len(ids)} ids for {len(bodies)} messages: {stored.msg_id}")
        for message_id, body in zip(ids, bodies, strict=True):
            _, offset = parse_message_id(message_id)
            self.ledger[offset] = (len(body), zlib.crc32(body))
            self.values.remember(message_id, offset)
        pairs = decode_properties((header.properties or "").encode("utf-8", "replace"))
        if pairs.get("TRAN_MSG", "").lower() == "true" and not header.batch:
            self.values.remember_half(
                pairs.get("PGROUP", ""), stored.queue_offset, parse_message_id(ids[0])[1]
            )

    # --- the servers from inside -------------------------------------------------------------

    def leftovers(self) -> dict[str, object]:
        """Return what should not be there once all connections are closed."""
        broker = self.broker
        own = {  # the connection of the probe
            "broker": 1,
            "nameserver": 2,  # and that of the broker
            "vip": 0,
        }
        left: dict[str, object] = {}
        for name, server in (
            ("broker", broker.server),
            ("vip", broker.vip_server),
            ("nameserver", self.nameserver.server),
        ):
            statistics = server.statistics()
            for group in statistics.groups:
                left[f"{name}: unanswered in {group.name}"] = group.unanswered
                left[f"{name}: running in {group.name}"] = group.running
            endpoint = statistics.endpoint
            left[f"{name}: connections"] = max(0, endpoint.connections - own[name])
            left[f"{name}: held bytes"] = endpoint.held_bytes
            left[f"{name}: calls"] = endpoint.calls_under_way
        clients = broker.clients.statistics()
        left["clients"] = max(
            clients.connections,
            clients.consumers,
            clients.producers,
            clients.consumer_groups,
            clients.producer_groups,
        )
        left["held pulls"] = len(broker.pulls.holds)
        left["queues waited for"] = broker.pulls.holds.queues
        left["watched queues"] = [
            (queue.topic, queue.queue_id)
            for queue in broker.store.core.queues
            if queue.is_watched and queue.topic != "SCHEDULE_TOPIC_XXXX"
        ]
        return {name: value for name, value in left.items() if value}


def describe(command: Command) -> str:
    """Return a request in a line."""
    try:
        fields: object = {
            name: value if len(value) < 200 else f"{value[:80]}... ({len(value)})"
            for name, value in command.ext_fields.items()
        }
    except RmqError as exc:
        fields = exc
    body = command.body or b""
    shown = body[:300]
    return (
        f"{command.code} {command.serialization.name} version {command.version} flag"
        f" {command.flag} {fields} body {len(body)}: {shown!r}"
    )


@asynccontextmanager
async def running(
    folder: Path,
    values: Values,
    note: Note,
    watch: StepWatch,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[Rig]:
    """Run both servers for the length of the block; stop them in good order at its end."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, trio.testing.MockClock)
    base_ms = time.time_ns() // 1_000_000 - int(clock.current_time() * 1000)

    def now_ms() -> int:
        return base_ms + int(clock.current_time() * 1000)

    names_file = folder / "namesrv.conf"
    names_file.touch()
    names_config = load_nameserver_config(
        names_file,
        {"bindAddress": HOST, "listenPort": "0", "kvConfigPath": str(folder / "kvConfig.json")},
        environ={},
    ).config
    async with trio.open_nursery() as nursery:
        nameserver: Nameserver = await nursery.start(serve_nameserver, names_config)
        live = broker_config(folder, nameserver.port, settings, now_ms())
        broker: Broker = await nursery.start(lambda **kw: serve_broker(live, now_ms=now_ms, **kw))
        for server in (broker.server, broker.vip_server, nameserver.server):
            watch.measure(server._dispatcher)
        async with trio.open_nursery() as peers:
            rig = Rig(broker, nameserver, values, peers, note)
            yield rig
            peers.cancel_scope.cancel()
        broker.stop()
        nameserver.stop()
        started = time.monotonic()
        with trio.move_on_after(_STOP_S) as scope:
            while nursery.child_tasks:
                await trio.sleep(0.01)
        if scope.cancelled_caught:
            note("the servers do not stop", f"{len(nursery.child_tasks)} of 2 still run")
            nursery.cancel_scope.cancel()
        elif time.monotonic() - started > _STOP_S / 2:
            note("the servers stop slowly", f"{time.monotonic() - started:.1f} s")


def broker_config(
    folder: Path, nameserver_port: int | None, settings: Mapping[str, str] | None, now_ms: int
) -> LiveConfig:
    """Return the settings of a broker in a folder, on ports that are free.

    They are in a file, which is taken as it is if there is one.
    """
    path = folder / "broker.conf"
    if not path.exists():
        wanted = {**SETTINGS, "storePathRootDir": str(folder / "store"), **(settings or {})}
        path.write_text("".join(f"{key}={value}\n" for key, value in wanted.items()))
    overrides = {
        "namesrvAddr": "" if nameserver_port is None else f"{HOST}:{nameserver_port}",
        "listenPort": str(free_port(-2, 1)),
    }
    return LiveConfig(load_broker_config(path, overrides, {}), now_ms=now_ms)
