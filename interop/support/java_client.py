"""The stock Java client, in the hands of a check.

A `Driver` is a Java process (`interop/java_client`) that does with the stock client of RocketMQ
4.9.8 what it is told, one thing after the other. Producers and consumers in it are context
managers: they leave when their block ends, unless the whole driver was killed before.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import trio

from interop.support.java import (
    JavaProgram,
    compile_java,
    fetch_jars,
    last_words,
    running_java,
)
from interop.support.java_consumers import LitePullConsumer, PullConsumer, PushConsumer
from interop.support.java_messages import Queue, Received, Sent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from interop.support.java_messages import Outgoing

    T = TypeVar("T")

_HERE: Final = Path(__file__).resolve().parent.parent / "java_client"
_STOP_TIMEOUT_S: Final = 20
_CHUNK_BYTES: Final = 65_536
_LOGBACK: Final = '<configuration><root level="OFF"/></configuration>\n'


class StockClientError(Exception):
    """What the stock client threw."""

    def __init__(self, kind: str, code: int | None, message: str, cause: str | None = None) -> None:
        super().__init__(f"{kind} (code {code}): {message}")
        self.kind = kind
        self.code = code
        self.message = message
        self.cause = cause


class DriverEndedError(Exception):
    """The driver is not there any more."""


@dataclass(frozen=True)
class DriverKit:
    """What every driver of a check is started with."""

    folder: Path
    classpath: tuple[str, ...]
    _numbers: Iterator[int] = field(default_factory=count)

    @classmethod
    async def prepare(cls, folder: Path) -> DriverKit:
        """Fetch the jars and compile the driver."""
        jars = await fetch_jars(_HERE / "pom.xml")
        classes = folder / "classes"
        await compile_java(_HERE / "java", jars, classes)
        return cls(folder, (str(classes), f"{jars}/*"))

    def program(
        self,
        main_class: str,
        arguments: tuple[str, ...],
        properties: Mapping[str, str] | None = None,
    ) -> JavaProgram:
        """Return a program with a home folder of its own, where it also runs."""
        home = self.folder / f"client-{next(self._numbers)}"
        logback = home / "conf" / "logback_tools.xml"
        logback.parent.mkdir(parents=True)
        logback.write_text(_LOGBACK)
        return JavaProgram(
            main_class=main_class,
            arguments=arguments,
            classpath=self.classpath,
            home=home,
            properties={
                # A machine may have TLS settings for all its RocketMQ clients in a file.
                "tls.config.file": str(home / "none"),
                "logback.configurationFile": str(logback),
                **(properties or {}),
            },
            environment={"ROCKETMQ_HOME": str(home)},
            folder=home,
        )

    @asynccontextmanager
    async def driver(
        self, nameserver: str, properties: Mapping[str, str] | None = None
    ) -> AsyncIterator[Driver]:
        """Run a driver for the length of a block."""
        program = self.program("interop.Main", (nameserver,), properties)
        log = program.home / "log"
        async with running_java(program, log=log, talking=True) as process:
            yield Driver(process, program.home, log)


@final
class Driver:
    """A running driver."""

    def __init__(self, process: trio.Process, folder: Path, log: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.folder = folder
        """Where it runs: what it writes by relative names is there."""
        self._log = log
        self._requests = process.stdin
        self._answers = process.stdout
        self._pending = bytearray()
        self._lock = trio.Lock()
        self._ids = count()

    async def ask(self, command: str, **arguments: object) -> Any:  # noqa: ANN401 - JSON
        """Return what the driver answers; raise `StockClientError` when the client has thrown."""
        async with self._lock:
            number = next(self._ids)
            line = json.dumps({"id": number, "do": command, **arguments}) + "\n"
            await self._requests.send_all(line.encode())
            answer = await self._answer()
            # Whoever gave up waiting has left an answer behind.
            while answer["id"] < number:
                answer = await self._answer()
        failure = answer.get("failure")
        if failure is not None:
            raise StockClientError(
                failure["type"], failure.get("code"), failure["message"], failure.get("cause")
            )
        return answer["result"]

    async def _answer(self) -> dict[str, Any]:
        searched = 0
        while (end := self._pending.find(b"\n", searched)) < 0:
            searched = len(self._pending)
            chunk = await self._answers.receive_some(_CHUNK_BYTES)
            if not chunk:
                raise DriverEndedError(f"the driver said at last:\n{last_words(self._log)}")
            self._pending += chunk
        line = bytes(self._pending[:end])
        del self._pending[: end + 1]
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def kill(self) -> None:
        """End the process, and with it all of its clients, in the middle of what they do."""
        self.process.kill()
        await self.process.wait()

    # ---- clients ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def producer(
        self, name: str, *, group: str = "interop-producers", **options: object
    ) -> AsyncIterator[Producer]:
        client_id = await self.ask("producer start", name=name, group=group, **options)
        async with self.started("producer stop", name):
            yield Producer(self, name, client_id)

    @asynccontextmanager
    async def push_consumer(
        self,
        name: str,
        *,
        group: str,
        topic: str,
        expression: str = "*",
        model: str = "CLUSTERING",
        start_at: str = "CONSUME_FROM_FIRST_OFFSET",
        **options: object,
    ) -> AsyncIterator[PushConsumer]:
        client_id = await self.ask(
            "push start",
            name=name,
            group=group,
            topic=topic,
            expression=expression,
            model=model,
            **{"from": start_at},
            **options,
        )
        consumer = PushConsumer(self.ask, name, client_id, topic)
        async with self.started("push stop", name, unless=lambda: consumer.stopped):
            yield consumer

    @asynccontextmanager
    async def pull_consumer(
        self, name: str, *, group: str, **options: object
    ) -> AsyncIterator[PullConsumer]:
        await self.ask("pull start", name=name, group=group, **options)
        async with self.started("pull stop", name):
            yield PullConsumer(self.ask, name)

    @asynccontextmanager
    async def lite_pull_consumer(
        self, name: str, *, group: str, **options: object
    ) -> AsyncIterator[LitePullConsumer]:
        """Start it with a `topic` and an `expression` to subscribe, or with `queues` to assign."""
        await self.ask("lite start", name=name, group=group, **options)
        async with self.started("lite stop", name):
            yield LitePullConsumer(self.ask, name)

    @asynccontextmanager
    async def started(
        self, stop: str, name: str, *, unless: Callable[[], bool] = lambda: False
    ) -> AsyncIterator[None]:
        """Stop a client when the block ends, unless it has ended before."""
        try:
            yield
        finally:
            # A driver that has ended has taken its clients with it.
            if self.process.poll() is None and not unless():
                with suppress(DriverEndedError), trio.move_on_after(_STOP_TIMEOUT_S, shield=True):
                    await self.ask(stop, name=name)


@final
@dataclass(frozen=True)
class Producer:
    """A DefaultMQProducer that runs."""

    driver: Driver
    name: str
    client_id: str

    async def send(self, *messages: Outgoing) -> list[Sent]:
        return await self._send("send", messages)

    async def send_ordered(self, *messages: Outgoing, number: int) -> list[Sent]:
        """Send to the queue that a MessageQueueSelector finds for `number`."""
        return await self._send("send ordered", messages, number=number)

    async def send_by_key(self, *messages: Outgoing, key: str) -> list[Sent]:
        """Send to the queue that a SelectMessageQueueByHash finds for `key`."""
        return await self._send("send by key", messages, key=key)

    async def send_to_queue(self, *messages: Outgoing, queue: Queue) -> list[Sent]:
        return await self._send("send to queue", messages, queue=queue.as_json())

    async def send_async(self, *messages: Outgoing) -> list[Sent]:
        return await self._send("send async", messages)

    async def send_one_way(self, *messages: Outgoing) -> None:
        await self._ask("send one-way", messages=[message.as_json() for message in messages])

    async def send_batch(self, *messages: Outgoing) -> Sent:
        line = [message.as_json() for message in messages]
        return Sent.parse(await self._ask("send batch", messages=line))

    async def create_topic(self, topic: str, *, queues: int, key: str) -> None:
        """Create a topic on every broker that has the topic `key`."""
        await self._ask("create topic", topic=topic, queues=queues, key=key)

    async def queues(self, topic: str) -> list[Queue]:
        return [Queue.parse(queue) for queue in await self._ask("queues", topic=topic)]

    async def offset(self, which: str, queue: Queue, **arguments: object) -> int:
        """Ask for an offset or a time of a queue: "min offset", "search offset" and so on."""
        answer: int = await self._ask(which, queue=queue.as_json(), **arguments)
        return answer

    async def view(self, offset_message_id: str) -> Received:
        return Received.parse(await self._ask("view", messageId=offset_message_id))

    async def view_by_unique_key(self, topic: str, unique_key: str) -> Received:
        return Received.parse(
            await self._ask("view by unique key", topic=topic, messageId=unique_key)
        )

    async def query_by_key(
        self, topic: str, key: str, *, count_max: int = 32, begin_ms: int = 0, end_ms: int = 2**62
    ) -> list[Received]:
        found = await self._ask(
            "query by key", topic=topic, key=key, max=count_max, begin=begin_ms, end=end_ms
        )
        return [Received.parse(message) for message in found]

    async def _send(
        self, verb: str, messages: tuple[Outgoing, ...], **arguments: object
    ) -> list[Sent]:
        lines = [message.as_json() for message in messages]
        return [Sent.parse(result) for result in await self._ask(verb, messages=lines, **arguments)]

    async def _ask(self, verb: str, **arguments: object) -> Any:  # noqa: ANN401 - JSON
        return await self.driver.ask(f"producer {verb}", name=self.name, **arguments)
