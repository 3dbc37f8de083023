"""A nameserver and a broker for tests of applications: real ones, in a thread of this process.

    with LocalBroker(tmp_path) as broker:
        with BlockingProducer(broker.nameserver, "orders") as producer:
            producer.send(Message("Orders", b"42"))
        assert [message.body for message in broker.messages("Orders")] == [b"42"]

They listen on free ports of 127.0.0.1 and keep their files in the folder that they are given. The
application may use any client, on any loop or none.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self, final

import trio

from rmq.broker.broker import serve_broker
from rmq.broker.config import LiveConfig, load_broker_config
from rmq.client.blocking import BlockingAdmin, BlockingConsumer
from rmq.errors import ListenError, NoRouteError, RmqError
from rmq.nameserver.config import load_nameserver_config
from rmq.nameserver.server import serve_nameserver

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rmq.broker.broker import Broker
    from rmq.client.core.received import ReceivedMessage

HOST: Final = "127.0.0.1"
_SETTINGS: Final = {
    # Room for the largest message, and small files beyond that.
    "mappedFileSizeCommitLog": str(16 * 1024**2),
    "mappedFileSizeConsumeQueue": str(3_000 * 20),
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    # How full the disk is, and how busy the machine, must not matter.
    "waitTimeMillsInSendQueue": "10000",
    "diskMaxUsedSpaceRatio": "95",
    "rocketmq.broker.diskSpaceWarningLevelRatio": "1.0",
    "rocketmq.broker.diskSpaceCleanForciblyRatio": "1.0",
    "shutdownDrainTime": "100",
}
_PORTS: Final = range(20_000, 30_000)
"""Below those that systems choose for connections of their own."""
_TRIES: Final = 20
_START_S: Final = 30.0
_TOPIC_S: Final = 10.0


@final
class LocalBroker:
    """Use it as a context manager."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are those of a broker.conf."""
        self._folder = folder
        self._settings = dict(settings or {})
        self.nameserver = ""
        """The address that clients are given."""
        self.address = ""
        """That of the broker."""
        self._thread = threading.Thread(target=self._run, name="rmq local broker", daemon=True)
        self._is_up = threading.Event()
        self._error: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope: trio.CancelScope | None = None

    def __repr__(self) -> str:
        return f"<LocalBroker at {self.address}, nameserver {self.nameserver}>"

    def start(self) -> Self:
        """Start both, and return when clients can use them; raise what kept them from it."""
        self._thread.start()
        if not self._is_up.wait(_START_S):
            raise TimeoutError(f"the broker was not up within {_START_S:g} s")
        if self._error is not None:
            raise self._error
        return self

    def close(self) -> None:
        """Stop both, and return when they have."""
        if self._token is not None and self._scope is not None and self._thread.is_alive():
            self._token.run_sync_soon(self._scope.cancel)
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- for tests ---------------------------------------------------------------------------

    def create_topic(self, topic: str, *, queues: int = 4) -> None:
        """Create a topic, and wait until clients find it."""
        deadline = time.monotonic() + _TOPIC_S
        with BlockingAdmin(self.nameserver) as admin:
            admin.create_topic(topic, queues=queues)
            while True:
                try:
                    admin.topic_route(topic)
                    return
                except NoRouteError:
                    if time.monotonic() > deadline:
                        raise
                time.sleep(0.005)

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return all messages of a topic, queue by queue; none if the topic does not exist."""
        with BlockingConsumer(
            self.nameserver, "rmq-local-broker", sends_heartbeats=False, commits_itself=False
        ) as consumer:
            try:
                queues = consumer.queues(topic)
            except NoRouteError:
                return []
            starts, ends = consumer.begin_offsets(queues), consumer.end_offsets(queues)
            return [
                message
                for queue in queues
                for message in consumer.read_range(queue, starts[queue], ends[queue])
            ]

    # --- in the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as exc:  # noqa: BLE001 - raised by `start`, in the thread that waits
            self._error = exc
        finally:
            self._is_up.set()

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        nameserver_config = load_nameserver_config(
            None,
            {
                "bindAddress": HOST,
                "listenPort": "0",
                "kvConfigPath": str(self._folder / "kvConfig.json"),
                "configStorePath": str(self._folder / "namesrv.properties"),
            },
            environ={},
        ).config
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as nursery:
                try:
                    nameserver = await nursery.start(serve_nameserver, nameserver_config)
                    self.nameserver = f"{HOST}:{nameserver.server.port}"
                    broker = await self._start_broker(nursery)
                except RmqError as exc:
                    # Raised by `start`, as itself and not in a group.
                    self._error = exc
                    nursery.cancel_scope.cancel()
                else:
                    await broker.registration.wait_told()
                    self._is_up.set()

    async def _start_broker(self, nursery: trio.Nursery) -> Broker:
        for tries_left in reversed(range(_TRIES)):
            port = _free_port()
            wanted = {
                **_SETTINGS,
                "bindAddress": HOST,
                "brokerIP1": HOST,
                "brokerIP2": HOST,
                "brokerName": "local",
                "listenPort": str(port),
                "namesrvAddr": self.nameserver,
                "storePathRootDir": str(self._folder / "store"),
                **self._settings,
            }
            loaded = load_broker_config(None, wanted, {})
            live = LiveConfig(loaded, now_ms=time.time_ns() // 1_000_000)
            try:
                broker: Broker = await nursery.start(serve_broker, live)
            except ListenError:
                # Another process took the port a moment ago.
                if not tries_left:
                    raise
                continue
            self.address = f"{HOST}:{loaded.config.listen_port}"
            return broker
        raise AssertionError("the last try returns or raises")


def _free_port() -> int:
    """Return a port that is free, with the two beside it that brokers need."""
    while True:
        port = random.choice(_PORTS)
        with ExitStack() as held:
            try:
                for each in (port - 2, port, port + 1):
                    held.enter_context(socket.socket()).bind((HOST, each))
            except OSError:
                continue
            return port
