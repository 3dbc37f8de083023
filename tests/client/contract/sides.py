"""The clients behind one face: a case of the contract runs against each of them.

    def test_something(side: Side) -> None:
        with scripted_cluster("a") as cluster, side.producer(cluster.nameserver) as producer:
            producer.send(Message(TOPIC, b"body"))

The clients on trio and asyncio run in threads of their own; every call is made there and waited for
here. The blocking client runs where the case runs.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

import anyio
import trio

from rmq.client import aio
from rmq.client.aio.loop import AIO
from rmq.client.aio.opened import Opened
from rmq.client.blocking import BlockingAdmin, BlockingConsumer, BlockingProducer
from rmq.client.core.config import ClientConfig
from rmq.client.core.consuming.config import (
    BlockingConsumerConfig,
    ConsumeFrom,
    LitePullConfig,
)
from rmq.client.core.producing.config import ProducerConfig
from rmq.client.tasks.client import open_client
from rmq.client.tasks.lite_pull import lite_pulling
from rmq.client.tasks.producer import producing
from rmq.client.trio.loop import TRIO
from rmq.client.trio.opening import open_admin

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Callable,
        Coroutine,
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
    from rmq.client.tasks.admin import AdminClient
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.lite_pull import LitePullConsumer
    from rmq.client.tasks.loop import Loop as ClientLoop
    from rmq.client.tasks.producer import Producer
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


# --- loops ---------------------------------------------------------------------------------------


class Loop(Protocol):
    """A loop in a thread, for callers that have none."""

    name: str

    def running(self) -> AbstractContextManager[None]: ...

    def call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run something in the loop, and wait for it."""

    def opened(self, manager: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """Enter a context manager in the loop, and leave it there."""

    def producer(
        self, config: ClientConfig, settings: ProducerConfig
    ) -> AbstractAsyncContextManager[Producer]: ...

    def consumer(
        self, config: ClientConfig, settings: LitePullConfig
    ) -> AbstractAsyncContextManager[LitePullConsumer]: ...

    def admin(self, nameserver: str) -> AbstractAsyncContextManager[AdminClient]: ...


@final
class AioLoop:
    """A loop of asyncio."""

    name = "asyncio"

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            left = self.call(_other_tasks)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(WAIT_S)
            assert not self._thread.is_alive()
            self._loop.close()
        assert left == []

    def call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async def in_time() -> T:
            async with asyncio.timeout(WAIT_S):
                return await function()

        return asyncio.run_coroutine_threadsafe(in_time(), self._loop).result()

    @contextmanager
    def opened(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        # In two tasks: what is opened on asyncio does not mind.
        value = self.call(manager.__aenter__)
        try:
            yield value
        finally:
            self.call(lambda: manager.__aexit__(None, None, None))

    def producer(
        self, config: ClientConfig, settings: ProducerConfig
    ) -> AbstractAsyncContextManager[Producer]:
        return Opened(lambda: _producer(AIO, config, settings), "producer")

    def consumer(
        self, config: ClientConfig, settings: LitePullConfig
    ) -> AbstractAsyncContextManager[LitePullConsumer]:
        return Opened(lambda: _consumer(AIO, config, settings), "consumer")

    def admin(self, nameserver: str) -> AbstractAsyncContextManager[AdminClient]:
        return aio.open_admin(nameserver)


async def _other_tasks() -> list[str]:
    """Return what is still running."""
    return [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@final
class TrioLoop:
    """A loop of trio."""

    name = "trio"

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

    def call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async def in_time() -> T:
            with trio.fail_after(WAIT_S):
                return await function()

        assert self._token is not None
        return trio.from_thread.run(in_time, trio_token=self._token)

    @contextmanager
    def opened(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        # In one task, as trio wants it.
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

    def producer(
        self, config: ClientConfig, settings: ProducerConfig
    ) -> AbstractAsyncContextManager[Producer]:
        return _producer(TRIO, config, settings)

    def consumer(
        self, config: ClientConfig, settings: LitePullConfig
    ) -> AbstractAsyncContextManager[LitePullConsumer]:
        return _consumer(TRIO, config, settings)

    def admin(self, nameserver: str) -> AbstractAsyncContextManager[AdminClient]:
        return open_admin(nameserver)


# --- on loops ------------------------------------------------------------------------------------


@asynccontextmanager
async def _producer(
    loop: ClientLoop, config: ClientConfig, settings: ProducerConfig
) -> AsyncIterator[Producer]:
    async with open_client(loop, config) as client, producing(client, settings) as it:
        yield it


@asynccontextmanager
async def _consumer(
    loop: ClientLoop, config: ClientConfig, settings: LitePullConfig
) -> AsyncIterator[LitePullConsumer]:
    async with (
        open_client(loop, config, is_stream=True) as client,
        lite_pulling(client, settings) as it,
    ):
        yield it


@final
class _LoopProducer:
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
class _LoopConsumer:
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
        self._loop.call(lambda: anyio.sleep(seconds))


@final
class LoopSide:
    """The client on one of the loops."""

    def __init__(self, loop: Loop) -> None:
        self.name = loop.name
        self._loop = loop

    @contextmanager
    def producer(
        self, nameserver: str, **options: Unpack[ProducerOptions]
    ) -> Iterator[ProducerSide]:
        manager = self._loop.producer(
            client_config(nameserver), ProducerConfig(group=GROUP, **options)
        )
        with self._loop.opened(manager) as producer:
            yield _LoopProducer(self._loop, producer)

    @contextmanager
    def consumer(
        self, nameserver: str, group: str = GROUP, *, pause_s: float = 0.02, suspend_s: float = 2.0
    ) -> Iterator[ConsumerSide]:
        config = LitePullConfig(
            group=group,
            consume_from=ConsumeFrom.FIRST,
            commits_itself=False,
            pull_messages_max=32,
            pull_pause_s=pause_s,
            pull_suspend_s=suspend_s,
        )
        manager = self._loop.consumer(client_config(nameserver), config)
        with self._loop.opened(manager) as consumer:
            yield _LoopConsumer(self._loop, consumer.client, consumer)

    @contextmanager
    def admin(self, nameserver: str) -> Iterator[Callable[..., Any]]:
        with self._loop.opened(self._loop.admin(nameserver)) as admin:
            yield lambda name, *args, **kwargs: self._loop.call(
                lambda: getattr(admin, name)(*args, **kwargs)
            )
