"""The consumer without a loop: it reads the queues that it is told to.

    with BlockingConsumer("10.0.0.5:9876", group="billing") as consumer:
        consumer.assign(consumer.queues("Orders"))
        while messages := consumer.poll(timeout_s=5.0):
            ...

Queues are not shared with other members of the group: a program with several processes assigns the
queues of each (Spark does). Polled messages count as consumed when the application polls again,
calls `commit` or leaves the block without an error. They are committed every 5 s while messages are
polled and when the consumer is closed, unless `commits_itself` is off. So a message may be seen
twice, after a crash, but none is lost.

A bounded part of a queue is read fastest with `read_range`, which has nothing to do with
assignments and offsets of the group.

It can be made in one process, pickled and opened in another. After a fork, a child goes on with
connections of its own and commits only what it polled itself.

Messages and places are for one thread at a time: a `poll`, `commit`, `assign` or `seek` while
another thread is in one of them raises `SharedUseError`, because each poll counts all messages that
were handed out before as consumed. Several threads may use everything else, ranges included.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, final

from rmq.client.blocking.client import BlockingClient
from rmq.client.blocking.commits import Commits
from rmq.client.blocking.monitor import steps_inside
from rmq.client.blocking.queue_questions import ask_of_queues
from rmq.client.blocking.ranges import RangeReader
from rmq.client.blocking.reading import Reading
from rmq.client.core.config import member_config
from rmq.client.core.consuming import offsets
from rmq.client.core.consuming.config import BlockingConsumerConfig
from rmq.client.core.consuming.pull_subscriptions import presence, running_info, subscription
from rmq.client.core.members import LEAVE_S
from rmq.errors import (
    ClientClosedError,
    ConfigError,
    SharedUseError,
)
from rmq.model.clock import system_ms
from rmq.remoting.bodies import SUBSCRIBE_ALL, MessageModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Unpack

    from rmq.client.blocking.ranges import RawPull
    from rmq.client.core.config import ClientConfig
    from rmq.client.core.consuming.config import BlockingConsumerOptions
    from rmq.client.core.consuming.subscription_set import Expression
    from rmq.client.core.flows import Flow
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.routes import RouteTable, TopicRoute
    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import ConsumerData, ConsumerRunningInfo

T = TypeVar("T")

POLL_MESSAGES: Final = 1_000
"""How many messages `poll` returns unless it is told, at most."""


@final
class BlockingConsumer:
    """Reads queues. Use it as a context manager."""

    def __init__(
        self,
        cluster: BlockingClient | ClientConfig | str,
        group: str | None = None,
        *,
        config: BlockingConsumerConfig | None = None,
        **options: Unpack[BlockingConsumerOptions],
    ) -> None:
        """`cluster`: nameservers, or more about the client, or an open client to share.

        Settings come one by one (`group` and options) or all at once (`config`).
        """
        self.config = config = member_config(BlockingConsumerConfig, config, group, options)
        self._shares_client = isinstance(cluster, BlockingClient)
        self.client = cluster if isinstance(cluster, BlockingClient) else BlockingClient(cluster)
        self._is_open = False
        self._is_in_use = False
        """Whether a thread is in a call that is for one thread at a time."""
        self._generation = -1
        self._reading = Reading(self.client, config)
        self._commits = self._new_commits()
        self._topics: frozenset[str] = frozenset()
        self._started_at_ms = 0

    def __reduce__(self) -> tuple[Any, ...]:
        if self._is_open:
            raise TypeError(
                "an open consumer cannot be pickled: close it, or make it where it is used"
            )
        return _rebuild, (self.client.config, self.config)

    def _new_commits(self) -> Commits:
        config = self.config
        return Commits(self.client, config.group, interval_s=config.commit_interval_s)

    # --- life --------------------------------------------------------------------------------

    def open(self) -> Self:
        """Open the consumer. Brokers are connected by the first request to them."""
        with self.client.monitor:
            if not self._is_open:
                if not self._shares_client:
                    self.client.open()
                self._generation = self.client.generation
                self._reading = Reading(self.client, self.config)
                self._commits = self._new_commits()
                self._topics = frozenset()
                self._started_at_ms = system_ms()
                self.client.join(self)
                self._is_open = True
        return self

    def close(self) -> None:
        """Commit what was polled, if the consumer commits itself, and leave."""
        self._close(is_done=True)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an error it is not known whether the last messages were consumed.
        self._close(is_done=kind is None)

    def _close(self, *, is_done: bool) -> None:
        with self.client.monitor:
            if self._is_open:
                self._end(is_done=is_done)

    def _end(self, *, is_done: bool) -> None:
        try:
            if self.client.is_open:
                self._check_open()
                if is_done:
                    self._reading.buffer.mark_consumed()
                if self.config.commits_itself:
                    self._commits.commit_at_last(self._consumed(), timeout_s=LEAVE_S)
                self.client.leave(self)
        finally:
            self._is_open = False
            self._reading.cancel()
            if not self._shares_client:
                self.client.close()

    @contextmanager
    def _alone(self, call: str) -> Iterator[None]:
        """Be inside the monitor, and the only thread in such a call."""
        with self.client.monitor:
            self._check_open()
            if self._is_in_use:
                raise SharedUseError(f"consumer {self.config.group}", call)
            self._is_in_use = True
            try:
                yield
            finally:
                self._is_in_use = False

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClientClosedError(f"consumer {self.config.group}")
        if self.client.generation != self._generation:
            # What was polled before the fork is the parent's business.
            self._generation = self.client.generation
            self._is_in_use = False
            self._reading.cancel()
            self._reading.buffer.mark_consumed()
            self._commits.assume(self._consumed())

    # --- queues ------------------------------------------------------------------------------

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be read; raise `NoRouteError`."""
        with self.client.monitor:
            self._check_open()
            return self.client.route(topic).readable

    def assign(
        self,
        queues: Iterable[MessageQueue],
        expression: Expression | Mapping[str, Expression] = SUBSCRIBE_ALL,
    ) -> None:
        """Read these queues from now on, and no others.

        Each starts where the group is, or as `consume_from` says; use `seek` for another place.
        `expression` says which messages are wanted: tags as `a || b`, a condition as `Sql(...)`,
        or either of them by topic.
        """
        wanted = {}
        for queue in queues:
            text = expression
            if not isinstance(text, str | tuple):
                text = text.get(queue.topic, SUBSCRIBE_ALL)
            wanted[queue] = subscription(queue.topic, text)
        with self._alone("assign"):
            self._reading.assign(wanted)
            self._topics = frozenset(queue.topic for queue in wanted)

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are read."""
        return self._reading.buffer.queues

    def pause(self, *queues: MessageQueue) -> None:
        """Hand out nothing of these queues, or of all, until they are resumed."""
        with self.client.monitor:
            for queue in queues or self.assignment:
                self._reading.buffer.pause(queue)

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues, or with all."""
        with self.client.monitor:
            for queue in queues or self.assignment:
                self._reading.buffer.resume(queue)

    # --- messages ----------------------------------------------------------------------------

    def poll(
        self, timeout_s: float | None = None, max_messages: int = POLL_MESSAGES
    ) -> list[ReceivedMessage]:
        """Return messages as soon as there are any; none if there are none within the time.

        Those of one queue are in their order. Raises `ClientError` if there was nothing, and no
        queue can be read at the end of the time.
        """
        if max_messages < 1:
            raise ConfigError("max_messages", f"{max_messages} is below 1")
        wait_s = self.config.poll_timeout_s if timeout_s is None else timeout_s
        with self._alone("poll"):
            if not self.assignment:
                raise ConfigError("queues", "none is assigned", hint="call assign before poll")
            return self._poll(time.monotonic() + wait_s, max_messages)

    def _poll(self, until: float, max_messages: int) -> list[ReceivedMessage]:
        reading = self._reading
        reading.buffer.mark_consumed()
        if self.config.commits_itself:
            self._commits.commit_when_due(self._consumed())
        for topic in self._topics:
            self.client.keeping.keep(topic)
        connections = self.client.connections
        connections.step(0.0)
        while True:
            look_at = reading.advance()
            if messages := reading.buffer.take(max_messages):
                # The next pulls are under way while the application works.
                reading.advance()
                return messages
            if time.monotonic() >= until:
                break
            self.client.tick()
            wake_at = min(until, self.client.due_at)
            connections.step(wake_at if look_at is None else min(wake_at, look_at))
        if failure := reading.failure:
            raise failure
        return []

    def read_range(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        expression: Expression = SUBSCRIBE_ALL,
    ) -> Iterator[ReceivedMessage]:
        """Read the messages of a queue from offset `start` up to, not including, `end`.

        The group's offsets are neither asked for nor changed. Raises `OffsetOutOfRangeError` for
        offsets that the queue does not have, and `ClientError` if reading cannot go on.
        """
        return chain.from_iterable(self.read_batches(queue, start, end, expression))

    def read_batches(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        expression: Expression = SUBSCRIBE_ALL,
    ) -> Iterator[list[ReceivedMessage]]:
        """Like `read_range`, but yields one list of messages per pull."""
        return steps_inside(
            self.client.monitor, self._range(queue, start, end, expression).batches()
        )

    def read_raw(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        expression: Expression = SUBSCRIBE_ALL,
    ) -> Iterator[RawPull]:
        """Like `read_range`, but yields the stored records of each pull without decoding them.

        Brokers compare hashes of tags only. The caller has to compare the tags of decoded records,
        and to ignore records from `end` on.
        """
        return steps_inside(
            self.client.monitor, self._range(queue, start, end, expression).bodies()
        )

    def _range(
        self, queue: MessageQueue, start: int, end: int, expression: Expression
    ) -> RangeReader:
        with self.client.monitor:
            self._check_open()
        if not 0 <= start <= end:
            raise ConfigError("start", f"{start} to {end} is no range of offsets")
        wanted = subscription(queue.topic, expression)
        return RangeReader(self.client, self.config, queue, start, end, wanted)

    # --- places ------------------------------------------------------------------------------

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the next message; None before that was asked for."""
        return self._reading.buffer.position(queue)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from an offset; raise `NotAssignedError`."""
        if offset < 0:
            raise ConfigError("offset", f"{offset} is below 0")
        with self._alone("seek"):
            self._reading.seek(queue, offset)

    def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go on with the first message of these queues, or of all."""
        for queue, offset in self.begin_offsets(queues or self.assignment).items():
            self.seek(queue, offset)

    def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go on with what comes to these queues, or to all, from now on."""
        for queue, offset in self.end_offsets(queues or self.assignment).items():
            self.seek(queue, offset)

    def seek_to_time(self, time_ms: int, *queues: MessageQueue) -> None:
        """Go on with what was stored at a time, in these queues or in all."""
        wanted = queues or self.assignment
        found = self._ask_all(wanted, lambda r, queue: offsets.offset_at(r, queue, time_ms))
        for queue, offset in found.items():
            self.seek(queue, offset)

    def begin_offset(self, queue: MessageQueue) -> int:
        """Return the first offset of a queue that can be read."""
        return self.begin_offsets((queue,))[queue]

    def end_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue will have."""
        return self.end_offsets((queue,))[queue]

    def begin_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the first offset of each queue, all asked for at once."""
        return self._ask_all(queues, offsets.min_offset)

    def end_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the end of each queue, all asked for at once."""
        return self._ask_all(queues, offsets.max_offset)

    def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """Return the offset of the message that was stored nearest to a time."""
        return self._ask_all((queue,), lambda r, each: offsets.offset_at(r, each, time_ms))[queue]

    def committed(self, queue: MessageQueue) -> int | None:
        """Return where the group goes on in a queue, as the broker knows it; None: nowhere."""
        group = self.config.group
        return self._ask_all((queue,), lambda r, each: offsets.fetch_offset(r, group, each))[queue]

    def _ask_all(
        self,
        queues: Iterable[MessageQueue],
        flow: Callable[[RouteTable, MessageQueue], Flow[T]],
    ) -> dict[MessageQueue, T]:
        with self.client.monitor:
            self._check_open()
            return ask_of_queues(self.client, queues, flow)

    # --- commits -----------------------------------------------------------------------------

    def commit(self, places: Mapping[MessageQueue, int] | None = None) -> None:
        """Tell brokers where the group goes on: behind all that was polled, or at `places`.

        Returns when they know it; raises `BrokersFailedError` if some do not.
        """
        with self._alone("commit"):
            if places is None:
                self._reading.buffer.mark_consumed()
                places = self._consumed()
            self._commits.commit(places)

    def _consumed(self) -> dict[MessageQueue, int]:
        return dict(self._reading.buffer.all_consumed())

    # --- what the client knows of it, and brokers ask ----------------------------------------

    @property
    def group(self) -> str:
        return self.config.group

    def topics(self) -> Iterable[str]:
        """Return the topics whose routes are kept."""
        return self._topics

    def presence(self) -> ConsumerData | None:
        """Return its entry in heartbeats, without the queues that it reads."""
        if not self.config.sends_heartbeats:
            return None
        return presence(self.config.group, MessageModel.CLUSTERING, ())

    def route_changed(self, route: TopicRoute) -> None:
        """Nothing to do: the application assigns queues."""

    def reset_offsets(self, topic: str, places: Mapping[MessageQueue, int]) -> None:
        """Apply a reset of the group's offsets by an operator (220)."""
        for queue in self.assignment:
            if queue.topic == topic and queue in places:
                self._reading.seek(queue, places[queue])

    def consumed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the consumed offsets of a topic (221)."""
        return {queue: offset for queue, offset in self._consumed().items() if queue.topic == topic}

    def running_info(self) -> ConsumerRunningInfo:
        """Return the running info (307)."""
        return running_info(self.client.config.addresses, self._started_at_ms, ())


def _rebuild(client_config: ClientConfig, config: BlockingConsumerConfig) -> BlockingConsumer:
    return BlockingConsumer(client_config, config=config)
