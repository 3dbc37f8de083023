"""The consumers of the stock Java client: push, pull and lite pull."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, final

import trio

from interop.support.cases import MismatchError
from interop.support.java_messages import Pulled, Queue, Received

if TYPE_CHECKING:
    from collections.abc import Sequence

_POLL_INTERVAL_S: Final = 0.05
_TIMEOUT_S: Final = 20.0
_VISIBLE_TIMEOUT_S: Final = 5.0


class Ask(Protocol):
    """How a driver is told something."""

    async def __call__(self, command: str, **arguments: object) -> Any: ...  # noqa: ANN401 - JSON


@final
class PushConsumer:
    """A DefaultMQPushConsumer that runs."""

    def __init__(self, ask: Ask, name: str, client_id: str, topic: str) -> None:
        self.name = name
        self.client_id = client_id
        self.topic = topic
        self.received: list[Received] = []
        """Everything its listener has got so far, each attempt on its own."""
        self.stopped = False
        self._ask = ask

    async def look(self) -> list[Received]:
        """Return what has come since it was last looked at."""
        new = _messages(await self._ask("push received", name=self.name))
        self.received += new
        return new

    async def wait_received(self, count: int, *, timeout_s: float = _TIMEOUT_S) -> list[Received]:
        """Wait until at least `count` messages have come; return all that have."""
        with trio.move_on_after(timeout_s):
            while len(self.received) < count:
                if not await self.look():
                    await trio.sleep(_POLL_INTERVAL_S)
        if len(self.received) < count:
            raise MismatchError(
                f"{self.name} got {len(self.received)} of {count} messages in {timeout_s:g} s"
            )
        return self.received

    async def queues(self, topic: str | None = None) -> set[Queue]:
        """Return the queues it has now."""
        found = await self._ask("push queues", name=self.name, topic=topic or self.topic)
        return {Queue.parse(queue) for queue in found}

    async def suspend(self, suspended: bool) -> None:
        """Stop pulling for a while, or go on."""
        await self._ask("push suspend", name=self.name, suspended=suspended)

    async def stop(self) -> None:
        """Leave before its block ends."""
        self.stopped = True
        self.received += _messages(await self._ask("push stop", name=self.name))


@final
class PullConsumer:
    """A DefaultMQPullConsumer that runs."""

    def __init__(self, ask: Ask, name: str) -> None:
        self.name = name
        self._ask = ask

    async def queues(self, topic: str) -> list[Queue]:
        found = await self._ask("pull queues", name=self.name, topic=topic)
        return [Queue.parse(queue) for queue in found]

    async def pull(
        self, queue: Queue, offset: int, *, count_max: int = 32, expression: str = "*"
    ) -> Pulled:
        return await self._pull("pull pull", queue, offset, count_max, expression)

    async def pull_or_wait(
        self, queue: Queue, offset: int, *, count_max: int = 32, expression: str = "*"
    ) -> Pulled:
        """Pull; the broker may hold the request until there is something."""
        return await self._pull("pull pull or wait", queue, offset, count_max, expression)

    async def read_queue(self, queue: Queue, *, count: int) -> list[Received]:
        """Return all messages of a queue as soon as there are `count` (or more)."""
        return await self._read([queue], count)

    async def read_topic(self, topic: str, *, count: int) -> list[Received]:
        """Return all messages of a topic, queue by queue, as soon as there are `count`."""
        return await self._read(await self.queues(topic), count)

    async def _read(self, queues: Sequence[Queue], count: int) -> list[Received]:
        # A message may be pulled a moment after its send was acknowledged.
        messages: list[Received] = []
        with trio.move_on_after(_VISIBLE_TIMEOUT_S):
            while True:
                messages = [message for queue in queues for message in await self._read_all(queue)]
                if len(messages) >= count:
                    return messages
                await trio.sleep(_POLL_INTERVAL_S)
        raise MismatchError(f"{len(messages)} of {count} messages in {_VISIBLE_TIMEOUT_S} s")

    async def _read_all(self, queue: Queue) -> list[Received]:
        messages: list[Received] = []
        offset = 0
        while True:
            pulled = await self.pull(queue, offset)
            if pulled.status == "NO_NEW_MSG":
                return messages
            if pulled.next_offset <= offset:
                raise MismatchError(f"{queue} goes on from {offset} at {pulled}")
            messages += pulled.messages
            offset = pulled.next_offset

    async def commit(self, queue: Queue, offset: int) -> None:
        await self._ask("pull commit", name=self.name, queue=queue.as_json(), offset=offset)

    async def committed(self, queue: Queue) -> int:
        """Return what the broker has as the group's offset."""
        offset: int = await self._ask("pull committed", name=self.name, queue=queue.as_json())
        return offset

    async def _pull(
        self, command: str, queue: Queue, offset: int, count_max: int, expression: str
    ) -> Pulled:
        return Pulled.parse(
            await self._ask(
                command,
                name=self.name,
                queue=queue.as_json(),
                expression=expression,
                offset=offset,
                max=count_max,
            )
        )


@final
class LitePullConsumer:
    """A DefaultLitePullConsumer that runs, without committing by itself."""

    def __init__(self, ask: Ask, name: str) -> None:
        self.name = name
        self._ask = ask

    async def queues(self, topic: str) -> list[Queue]:
        found = await self._ask("lite queues", name=self.name, topic=topic)
        return [Queue.parse(queue) for queue in found]

    async def poll(self, count: int, *, timeout_s: float = _TIMEOUT_S) -> list[Received]:
        """Return what has come as soon as it is `count` messages or the time is over."""
        timeout_ms = round(timeout_s * 1000)
        return _messages(
            await self._ask("lite poll", name=self.name, count=count, timeoutMs=timeout_ms)
        )

    async def seek(self, queue: Queue, offset: int) -> None:
        await self._ask("lite seek", name=self.name, queue=queue.as_json(), offset=offset)

    async def seek_to_begin(self, queue: Queue) -> None:
        await self._ask("lite seek to begin", name=self.name, queue=queue.as_json())

    async def seek_to_end(self, queue: Queue) -> None:
        await self._ask("lite seek to end", name=self.name, queue=queue.as_json())

    async def offset_for_time(self, queue: Queue, ms: int) -> int:
        offset: int = await self._ask(
            "lite offset for time", name=self.name, queue=queue.as_json(), ms=ms
        )
        return offset

    async def commit(self) -> None:
        await self._ask("lite commit", name=self.name)

    async def committed(self, queue: Queue) -> int:
        offset: int = await self._ask("lite committed", name=self.name, queue=queue.as_json())
        return offset


def _messages(lines: Sequence[dict[str, Any]]) -> list[Received]:
    return [Received.parse(line) for line in lines]
