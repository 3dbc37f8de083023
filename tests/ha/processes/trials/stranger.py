"""Somebody without a password who says that he is the master: to nameservers, slaves and masters.

    async with stranger(it) as who:
        await who.register(epochs=(7, 2))
        await who.until_dialled()

On the port for slaves he tells everyone to begin anew. As a broker he has no topics but one of his
own, and consumer offsets that are far beyond anything. He speaks the dialect of the code that is
tried: that of an earlier checkout is read from its own declaration.
"""

from __future__ import annotations

import importlib.util
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from rmq.errors import RefusedError
from rmq.remoting.bodies import (
    ConsumerOffsetSerializeWrapper,
    RegisterBrokerBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rmq.remoting.bodies.topics import DataVersion
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.headers import RegisterBrokerRequest
from rmq.remoting.protocol import REQUESTS
from rmq.remoting.server import RemotingServer, ServerConfig
from tests.ha.processes.load import TOPIC
from tests.ha.processes.trials.ground import NAME, POLL_S
from tests.ha.processes.trials.ports import HOST, free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from rmq.remoting.client import RemotingClient
    from rmq.remoting.header import EmptyHeader
    from rmq.remoting.request import Request
    from tests.ha.processes.trials.ground import Ground

GROUP: Final = "trials"
FAR: Final = 2**62
_VERSION: Final = DataVersion(timestamp=1, counter=77)


def wire_of(code: Path) -> Any:  # noqa: ANN401 - a module
    """Load the layouts of the replication link from a checkout."""
    folder = code / "rmq" / "ha"
    # Older checkouts have no folder for the protocol.
    places = (folder / "protocol" / "wire.py", folder / "wire.py")
    path = next(place for place in places if place.exists())
    spec = importlib.util.spec_from_file_location("wire_under_trial", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def register(
    client: RemotingClient, nameserver: str, address: str, ha_address: str, epoch: int | None
) -> tuple[int, str]:
    """Register a master of the name; return what the nameserver answers."""
    header = RegisterBrokerRequest(
        broker_name=NAME,
        broker_addr=address,
        cluster_name="C",
        ha_server_addr=ha_address,
        broker_id=0,
        epoch=epoch,
    )
    topics = TopicConfigSerializeWrapper(
        topic_config_table={TOPIC: TopicConfig(topic_name=TOPIC)}, data_version=_VERSION
    )
    body = RegisterBrokerBody(topic_config_serialize_wrapper=topics).encode()
    answer = await client.request(
        nameserver, RequestCode.REGISTER_BROKER, header, body=body, timeout_s=5
    )
    return answer.code, answer.remark or ""


class Stranger:
    """A broker that is none."""

    def __init__(self, it: Ground, client: RemotingClient, *, has_tables: bool) -> None:
        self.has_tables = has_tables
        """It answers who asks for topics, groups and offsets."""
        self.port = free_port()
        self.dialled = 0
        """How many slaves greeted it."""
        self.asked: list[int] = []
        """What it was asked as a broker."""
        self.epoch = 0
        self._it = it
        self._client = client
        self._wire = wire_of(it.place.code)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def ha_address(self) -> str:
        return f"{HOST}:{self.port + 1}"

    async def register(self, epochs: Sequence[int]) -> list[int]:
        """Register with the first of these epochs that is taken; return the refused ones."""
        refused: list[int] = []
        for epoch in epochs:
            for nameserver in self._it.nameservers:
                code, _ = await register(
                    self._client, nameserver, self.address, self.ha_address, epoch
                )
                if code == ResponseCode.SUCCESS:
                    self.epoch = epoch
                    return refused
            refused.append(epoch)
        return refused

    async def until_dialled(self, count: int = 1, wait_s: float = 15.0) -> bool:
        """Wait until so many greetings have come; tell whether they did."""
        with trio.move_on_after(wait_s):
            while self.dialled < count:  # noqa: ASYNC110 - told by other tasks
                await trio.sleep(POLL_S)
        return self.dialled >= count

    # --- as a master -------------------------------------------------------------------------

    async def serve(self, stream: trio.SocketStream) -> None:
        """Tell a slave to begin anew."""
        wire = self._wire
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, EOFError):
            await _exactly(stream, len(wire.PREAMBLE))
            challenge = wire.ChallengeBody(wire.PREAMBLE[-1], 0, bytes(wire.NONCE_BYTES))
            packed = wire.pack_body(wire.Challenge, challenge)
            await stream.send_all(self._frame(wire.DownKind.CHALLENGE, packed))
            header = wire.read_up(await _exactly(stream, wire.UP.size))
            hello = wire.read_hello(await _exactly(stream, header.size))
            epoch = max(self.epoch, hello.epoch)
            welcome = wire.WelcomeBody(
                wire.HelloVerdict.RESEED,
                hello.cluster,
                hello.broker_name,
                self.address,
                bytes(wire.ID_BYTES),
                epoch,
                0,
                0,
                0,
                "the master no longer has what you need",
            )
            packed = wire.pack_body(wire.Welcome, welcome)
            await stream.send_all(self._frame(wire.DownKind.WELCOME, packed, epoch))
            self.dialled += 1
            while await stream.receive_some(4096):
                pass

    def _frame(self, kind: int, body: bytes, epoch: int = 1) -> bytes:
        wire = self._wire
        names = dict.fromkeys(wire.DownHeader._fields, 0)
        header = wire.DownHeader(**{**names, "kind": kind, "size": len(body), "epoch": epoch})
        packed: bytes = wire.pack_down(header)
        if hasattr(wire, "with_body_crc"):
            packed = wire.with_body_crc(packed, body)
        return packed + body

    # --- as a broker -------------------------------------------------------------------------

    def table(self) -> HandlerTable:
        """Return what it answers when a slave asks for topics, groups and offsets."""
        topic = TopicConfig(topic_name="Stranger", read_queue_nums=1, write_queue_nums=1, perm=6)
        bodies = {
            RequestCode.GET_ALL_TOPIC_CONFIG: TopicConfigSerializeWrapper(
                topic_config_table={"Stranger": topic}, data_version=_VERSION
            ),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupWrapper(
                subscription_group_table={GROUP: SubscriptionGroupConfig(group_name=GROUP)},
                data_version=_VERSION,
            ),
            RequestCode.GET_ALL_CONSUMER_OFFSET: ConsumerOffsetSerializeWrapper(
                offset_table={f"{TOPIC}@{GROUP}": {0: FAR}}
            ),
        }

        def answer(request: Request[EmptyHeader]) -> None:
            code = RequestCode(request.command.code)
            self.asked.append(code)
            if not self.has_tables:
                raise RefusedError(ResponseCode.SYSTEM_ERROR, "not now")
            request.reply(body=bodies[code].encode())

        table = HandlerTable()
        for code in bodies:
            table.add(REQUESTS[code], answer)
        return table


async def _exactly(stream: trio.SocketStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await stream.receive_some(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


@asynccontextmanager
async def stranger(it: Ground, *, has_tables: bool = False) -> AsyncIterator[Stranger]:
    """Let a stranger be there; he hangs up at the end."""
    async with open_client() as client, trio.open_nursery() as nursery:
        who = Stranger(it, client, has_tables=has_tables)
        server = RemotingServer(who.table(), ServerConfig(host=HOST, port=who.port))
        await nursery.start(server.run)
        listeners = await trio.open_tcp_listeners(who.port + 1, host=HOST)
        nursery.start_soon(trio.serve_listeners, who.serve, listeners)
        yield who
        nursery.cancel_scope.cancel()
