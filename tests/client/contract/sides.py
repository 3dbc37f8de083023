"""The two clients behind one face: a case of the contract runs against either.

    def test_something(side: Side) -> None:
        with scripted_cluster("a") as cluster, side.producer(cluster.nameserver) as producer:
            producer.send(Message(TOPIC, b"body"))

The trio client runs in a thread of its own; every call is made there and waited for here. The
blocking client runs where the case runs.
"""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

import trio

from rmq.client.blocking import BlockingAdmin, BlockingConsumer, BlockingProducer
from rmq.client.core.config import ClientConfig
from rmq.client.core.consuming.config import (
    BlockingConsumerConfig,
    ConsumeFrom,
    LitePullConfig,
)
from rmq.client.core.producing.config import ProducerConfig
from rmq.client.trio.admin import open_admin
from rmq.client.trio.client import open_client
from rmq.client.trio.lite_pull import lite_pulling
from rmq.client.trio.producer import producing

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from typing import Unpack

    from rmq.client.blocking.client import BlockingClient
    from rmq.client.core.messages import Message, SendResult
    from rmq.client.core.producing.config import ProducerOptions
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.trio.client import Client
    from rmq.client.trio.lite_pull import LitePullConsumer
    from rmq.client.trio.producer import Producer
    from rmq.model.queues import MessageQueue

T = TypeVar("T")

WAIT_S: Final = 30.0
GROUP: Final = "contract"


class ProducerSide(Protocol):
    """A producer that is open."""

    client_id: str

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult: ...

    def send_many(self, messages: Sequence[Message]) -> list[SendResult]:
        """Send messages, all under way at once; raise what the first one failed with."""

    def send_batch(self, messages: Sequence[Message]) -> list[SendResult]: ...

    def send_oneway(self, message: Message) -> None: ...

    def send_ordered(self, message: Message, key: str) -> SendResult: ...

    def beat(self) -> None:
        """Send heartbeats, and return when they are answered."""

    def refresh_route(self, topic: str) -> None: ...


class ConsumerSide(Protocol):
    """A consumer that reads the queues that it is told to."""

    client_id: str

    def assign(self, queues: Iterable[MessageQueue], expression: str = "*") -> None: ...

    def poll(self, timeout_s: float, max_messages: int = 1000) -> list[ReceivedMessage]: ...

    def seek(self, queue: MessageQueue, offset: int) -> None: ...

    def commit(self, places: Mapping[MessageQueue, int] | None = None) -> None: ...

    def committed(self, queue: MessageQueue) -> int | None: ...

    def beat(self) -> None:
        """Send heartbeats, and return when they are answered."""

    def refresh_route(self, topic: str) -> None: ...

    def idle(self, seconds: float) -> None:
        """Wait in a way that lets the client answer brokers."""


class Side(Protocol):
    """One of the clients."""

    name: str

    def producer(
        self, nameserver: str, **options: Unpack[ProducerOptions]
    ) -> AbstractContextManager[ProducerSide]: ...

    def consumer(
        self, nameserver: str, group: str = GROUP, *, pause_s: float = 0.02, suspend_s: float = 2.0
    ) -> AbstractContextManager[ConsumerSide]:
        """Open a consumer that starts at the first message and commits only when it is told to."""

    def admin(self, nameserver: str) -> AbstractContextManager[Callable[..., Any]]:
        """Return a function that makes the call of a name."""


def client_config(nameserver: str) -> ClientConfig:
    return ClientConfig(nameservers=nameserver, heartbeat_s=60.0, route_refresh_s=60.0)


# --- blocking ------------------------------------------------------------------------------------


@final
class _BlockingProducer:
    def __init__(self, producer: BlockingProducer) -> None:
        self._producer = producer
        self.client_id = producer.client.client_id
        self.send = producer.send
        self.send_many = producer.send_many
        self.send_batch = producer.send_batch
        self.send_oneway = producer.send_oneway
        self.send_ordered = producer.send_ordered
        self.beat = producer.client.beat
        self.refresh_route = producer.client.refresh_route


@final
class _BlockingConsumer:
    def __init__(self, consumer: BlockingConsumer) -> None:
        self._client: BlockingClient = consumer.client
        self.client_id = self._client.client_id
        self.assign = consumer.assign
        self.poll = consumer.poll
        self.seek = consumer.seek
        self.commit = consumer.commit
        self.committed = consumer.committed
        self.beat = self._client.beat
        self.refresh_route = self._client.refresh_route

    def idle(self, seconds: float) -> None:
        self._client.connections.sleep(seconds)


@final
class BlockingSide:
    """The blocking client."""

    name = "blocking"

    @contextmanager
    def producer(
        self, nameserver: str, **options: Unpack[ProducerOptions]
    ) -> Iterator[ProducerSide]:
        with BlockingProducer(client_config(nameserver), GROUP, **options) as producer:
            yield _BlockingProducer(producer)  # type: ignore[misc]  # it takes more arguments

    @contextmanager
    def consumer(
        self, nameserver: str, group: str = GROUP, *, pause_s: float = 0.02, suspend_s: float = 2.0
    ) -> Iterator[ConsumerSide]:
        config = BlockingConsumerConfig(
            group=group,
            consume_from=ConsumeFrom.FIRST,
            commits_itself=False,
            pull_pause_s=pause_s,
            pull_suspend_s=suspend_s,
        )
        with BlockingConsumer(client_config(nameserver), config=config) as consumer:
            yield _BlockingConsumer(consumer)  # type: ignore[misc]  # it takes more arguments

    @contextmanager
    def admin(self, nameserver: str) -> Iterator[Callable[..., Any]]:
        with BlockingAdmin(nameserver) as admin:
            yield lambda name, *args, **kwargs: getattr(admin, name)(*args, **kwargs)


# --- trio ----------------------------------------------------------------------------------------


@final
class Loop:
    """A trio loop in a thread, for callers that have none."""

    def __init__(self) -> None:
        self._started = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._thread = threading.Thread(target=trio.run, args=(self._run,))

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        assert self._started.wait(WAIT_S)
        try:
            yield
        finally:
            self.call(self._stop)
            self._thread.join(WAIT_S)
            assert not self._thread.is_alive()

    async def _run(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._token = trio.lowlevel.current_trio_token()
            self._started.set()
            await trio.sleep_forever()

    async def _stop(self) -> None:
        assert self._nursery is not None
        self._nursery.cancel_scope.cancel()

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run something in the loop, and wait for it."""

        async def in_time() -> T:
            with trio.fail_after(WAIT_S):
                return await function()

        assert self._token is not None
        return trio.from_thread.run(in_time, trio_token=self._token)

    @contextmanager
    def opened(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter a context manager in a task of the loop, and leave it in the same task."""
        leave, left = trio.Event(), trio.Event()
        errors: list[BaseException] = []

        async def hold(*, task_status: trio.TaskStatus[T]) -> None:
            try:
                async with manager as value:
                    task_status.started(value)
                    await leave.wait()
            except Exception as exc:
                if not leave.is_set():
                    raise
                errors.append(exc)
            finally:
                left.set()

        async def start() -> T:
            assert self._nursery is not None
            value: T = await self._nursery.start(hold)
            return value

        async def end() -> None:
            leave.set()
            await left.wait()

        value = self.call(start)
        try:
            yield value
        finally:
            self.call(end)
        for error in errors:
            raise error


@final
class _TrioProducer:
    def __init__(self, loop: Loop, producer: Producer) -> None:
        self._loop = loop
        self._producer = producer
        self.client_id = producer.client.client_id

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        return self._loop.call(
            lambda: self._producer.send(message, queue=queue, timeout_s=timeout_s)
        )

    def send_many(self, messages: Sequence[Message]) -> list[SendResult]:
        async def send_all() -> list[SendResult]:
            pendings = [await self._producer.send_soon(message) for message in messages]
            return [await pending.wait() for pending in pendings]

        return self._loop.call(send_all)

    def send_batch(self, messages: Sequence[Message]) -> list[SendResult]:
        return self._loop.call(lambda: self._producer.send_batch(messages))

    def send_oneway(self, message: Message) -> None:
        self._loop.call(lambda: self._producer.send_oneway(message))

    def send_ordered(self, message: Message, key: str) -> SendResult:
        return self._loop.call(lambda: self._producer.send_ordered(message, key))

    def beat(self) -> None:
        self._loop.call(self._producer.client.beat)

    def refresh_route(self, topic: str) -> None:
        self._loop.call(lambda: self._producer.client.refresh_route(topic))


@final
class _TrioConsumer:
    def __init__(self, loop: Loop, client: Client, consumer: LitePullConsumer) -> None:
        self._loop = loop
        self._client = client
        self._consumer = consumer
        self.client_id = client.client_id

    def assign(self, queues: Iterable[MessageQueue], expression: str = "*") -> None:
        wanted = tuple(queues)
        expressions = dict.fromkeys({queue.topic for queue in wanted}, expression)
        self._loop.call(lambda: self._consumer.assign(wanted, expressions))

    def poll(self, timeout_s: float, max_messages: int = 1000) -> list[ReceivedMessage]:
        return self._loop.call(lambda: self._consumer.poll(timeout_s, max_messages))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        self._loop.call(lambda: self._consumer.seek(queue, offset))

    def commit(self, places: Mapping[MessageQueue, int] | None = None) -> None:
        self._loop.call(lambda: self._consumer.commit(places))

    def committed(self, queue: MessageQueue) -> int | None:
        return self._loop.call(lambda: self._consumer.committed(queue))

    def beat(self) -> None:
        self._loop.call(self._client.beat)

    def refresh_route(self, topic: str) -> None:
        self._loop.call(lambda: self._client.refresh_route(topic))

    def idle(self, seconds: float) -> None:
        async def sleep() -> None:
            await trio.sleep(seconds)

        self._loop.call(sleep)


@final
class TrioSide:
    """The trio client."""

    name = "trio"

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    @contextmanager
    def producer(
        self, nameserver: str, **options: Unpack[ProducerOptions]
    ) -> Iterator[ProducerSide]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Producer]:
            config = ProducerConfig(group=GROUP, **options)
            async with (
                open_client(client_config(nameserver)) as client,
                producing(client, config) as it,
            ):
                yield it

        with self._loop.opened(opened()) as producer:
            yield _TrioProducer(self._loop, producer)

    @contextmanager
    def consumer(
        self, nameserver: str, group: str = GROUP, *, pause_s: float = 0.02, suspend_s: float = 2.0
    ) -> Iterator[ConsumerSide]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[tuple[Client, LitePullConsumer]]:
            config = LitePullConfig(
                group=group,
                consume_from=ConsumeFrom.FIRST,
                commits_itself=False,
                pull_messages_max=32,
                pull_pause_s=pause_s,
                pull_suspend_s=suspend_s,
            )
            async with (
                open_client(client_config(nameserver), is_stream=True) as client,
                lite_pulling(client, config) as it,
            ):
                yield client, it

        with self._loop.opened(opened()) as (client, consumer):
            yield _TrioConsumer(self._loop, client, consumer)

    @contextmanager
    def admin(self, nameserver: str) -> Iterator[Callable[..., Any]]:
        with self._loop.opened(open_admin(nameserver)) as admin:
            yield lambda name, *args, **kwargs: self._loop.call(
                lambda: getattr(admin, name)(*args, **kwargs)
            )
