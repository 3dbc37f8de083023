"""Many sends under way at once, without a loop.

A send goes straight to its connection and its answer comes back by a call. An attempt that fails
goes on at another broker or waits for a master, by the rules of
`rmq.client.core.producing.delivery`: what `send` would retry is retried here. Outcomes are handed
out in the order of the messages.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, final

from rmq.client.blocking.connections import FORKED
from rmq.client.core.producing.delivery import (
    REFRESH_INTERVAL_S,
    TOPICS_MAX,
    Delivery,
    Then,
    no_master,
    not_ok,
    note_failure,
    nothing_writable,
)
from rmq.client.core.producing.master_waits import (
    NamedMasters,
    NoMasterError,
    TopicPauses,
)
from rmq.client.core.producing.outbound import prepare, read_send_answer, send_request
from rmq.client.core.producing.selection import BrokerFaults, QueueRing
from rmq.errors import (
    ClientClosedError,
    ClientError,
    IllegalMessageError,
    LocalProtocolError,
    RmqError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmq.client.blocking.client import BlockingClient
    from rmq.client.blocking.connections import Connections
    from rmq.client.blocking.runner import Task
    from rmq.client.core.messages import Message, SendResult
    from rmq.client.core.producing.config import ProducerConfig
    from rmq.client.core.producing.outbound import OutboundMessage
    from rmq.client.core.producing.unique_keys import UniqueKeys
    from rmq.client.core.routes import TopicRoute
    from rmq.model.queues import MessageQueue
    from rmq.remoting.command import Command

IN_FLIGHT: Final = 256
FLUSH_MESSAGES: Final = 32
"""This many messages leave in one write while more are at hand: the broker begins early."""
SLOW_SOURCE_S: Final = 0.001
"""A source that takes longer for a message is not waited for while others are unsent."""

_monotonic = time.monotonic


class Target(NamedTuple):
    """One queue, and where its master is."""

    queue: MessageQueue
    broker_name: str
    address: str | None


class _End:
    """What comes after the last message."""


_END: Final = _End()


@final
class Topic:
    """The targets of a topic."""

    __slots__ = ("_by_queue", "has_one_broker", "ring", "route", "targets", "told")

    def __init__(self, route: TopicRoute, ring: QueueRing, told: TopicRoute | None = None) -> None:
        """`told` is what nameservers said, if `route` has a master that a broker has named."""
        self.route = route
        self.told = route if told is None else told
        self.ring = ring
        self.targets = tuple(
            Target(queue, queue.broker_name, route.master_of(queue.broker_name))
            for queue in route.writable
        )
        self.has_one_broker = len({target.broker_name for target in self.targets}) < 2
        self._by_queue = {target.queue: target for target in self.targets}

    def target_to(self, queue: MessageQueue) -> Target:
        """Return the target of a queue of the caller's choice, whether it is writable or not."""
        name = queue.broker_name
        return self._by_queue.get(queue) or Target(queue, name, self.route.master_of(name))


@final
class Send:
    """One message on its way. Its connection calls it with the answer."""

    __slots__ = (
        "_sending",
        "body_bytes",
        "deadline",
        "delivery",
        "outbound",
        "outcome",
        "queue",
        "target",
        "tried_at",
    )

    def __init__(
        self,
        sending: Sending,
        deadline: float,
        body_bytes: int,
        outbound: OutboundMessage | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        self._sending = sending
        self.deadline = deadline
        self.body_bytes = body_bytes
        self.outbound = outbound
        self.queue = queue
        """The only one it may go to, if the caller has chosen one."""
        self.target: Target | None = None
        """Where it was sent last."""
        self.delivery: Delivery | None = None
        """What failed so far."""
        self.tried_at = 0.0
        self.outcome: SendResult | RmqError | None = None
        """None as long as it is under way."""

    def __call__(self, answer: Command | ClientError) -> None:
        target, outbound = self.target, self.outbound
        assert target is not None
        assert outbound is not None
        if not isinstance(answer, ClientError):
            try:
                result = read_send_answer(
                    answer, address=target.address or "", queue=target.queue, outbound=outbound
                )
            except ClientError as exc:
                answer = exc
            else:
                self._sending.answered(self, target, result)
                return
        self._sending.failed(self, target, answer)


@final
class Sending:
    """Sends streams of messages for one producer."""

    def __init__(
        self, client: BlockingClient, config: ProducerConfig, unique_keys: UniqueKeys
    ) -> None:
        self._client = client
        self._config = config
        self._unique_keys = unique_keys
        self._asked = ";".join(client.nameservers.addresses)
        self._signs = client.config.credentials is not None
        self._faults = BrokerFaults()
        self._topics: dict[str, Topic] = {}
        self._lookups: dict[str, tuple[Task[TopicRoute], list[Send]]] = {}
        """Routes that are being asked for again, and who waits for them."""
        self._refreshed_at: dict[str, float] = {}
        self._waits: dict[str, tuple[Task[TopicRoute], list[Send]]] = {}
        """Topics that have no master now, and who waits until their route was asked for again."""
        self._named: dict[str, NamedMasters] = {}
        """The masters of these topics that brokers have named."""
        self._pauses = TopicPauses(TOPICS_MAX)

    # --- a stream of messages ----------------------------------------------------------------

    def stream(
        self, messages: Iterable[Message], in_flight: int
    ) -> Iterator[SendResult | RmqError]:
        """Send messages, at most `in_flight` at a time; yield what became of each, in order."""
        connections = self._client.connections
        generation = connections.generation
        in_flight = min(in_flight, self._config.pending_max)
        bytes_max = self._config.pending_bytes_max
        pending: deque[Send] = deque()
        pending_bytes = 0
        source = iter(messages)
        is_over = is_slow = False
        while True:
            self._client.tick()
            taken = 0
            while not is_over and len(pending) < in_flight and pending_bytes < bytes_max:
                if taken and is_slow:
                    break
                if not (taken + 1) % FLUSH_MESSAGES:
                    connections.flush()
                asked_at = _monotonic()
                message = next(source, _END)
                is_slow = _monotonic() - asked_at > SLOW_SOURCE_S
                if isinstance(message, _End):
                    is_over = True
                    break
                _check_same_process(connections, generation)
                pending.append(self.begin(message))
                pending_bytes += len(message.body)
                taken += 1
            if not pending:
                return
            if taken and is_slow and not is_over:
                # The source is slower than the broker: wait for neither.
                connections.step(0.0)
                self._tend()
            else:
                self.wait(pending[0])
            while pending and (outcome := pending[0].outcome) is not None:
                pending_bytes -= pending.popleft().body_bytes
                yield outcome
                _check_same_process(connections, generation)

    def wait(self, send: Send) -> None:
        """Wait until a send is settled."""
        connections = self._client.connections
        while send.outcome is None:
            connections.step()
            self._tend()

    def step(self, until: float | None = None) -> None:
        """Carry on what was begun until something happens, `until` at the longest."""
        self._client.connections.step(until)
        self._client.tick()
        self._tend()

    def begin(self, message: Message) -> Send:
        """Begin to send a message; it leaves when the client waits or flushes."""
        config = self._config
        now_ms = time.time_ns() // 1_000_000
        deadline = self._client.connections.now + config.send_timeout_s
        send = Send(self, deadline, len(message.body))
        try:
            send.outbound = prepare(
                message,
                unique_keys=self._unique_keys,
                now_ms=now_ms,
                compress_above=config.compress_above,
                compress_level=config.compress_level,
                bytes_max=config.message_bytes_max,
            )
        except RmqError as exc:
            send.outcome = exc
            return send
        self._start(send, message.topic, now_ms)
        return send

    def begin_ready(self, outbound: OutboundMessage, queue: MessageQueue | None = None) -> Send:
        """Begin to send what is prepared already; to a `queue` there is one attempt."""
        deadline = self._client.connections.now + self._config.send_timeout_s
        send = Send(self, deadline, len(outbound.body), outbound, queue)
        self._start(send, outbound.topic, time.time_ns() // 1_000_000)
        return send

    def _start(self, send: Send, topic_name: str, now_ms: int) -> None:
        try:
            topic = self._topic(topic_name) or self._look_up(topic_name)
        except NoMasterError as exc:
            self._delivery_of(send).found_nobody(exc)
            self._wait(send)
            return
        except RmqError as exc:
            send.outcome = exc
            return
        self._attempt(send, topic, now_ms)

    # --- attempts ----------------------------------------------------------------------------

    def _attempt(self, send: Send, topic: Topic, now_ms: int) -> None:
        config = self._config
        delivery, outbound = send.delivery, send.outbound
        assert outbound is not None
        connections = self._client.connections
        send.tried_at = now = connections.now
        if send.queue is not None:
            target = topic.target_to(send.queue)
        elif config.avoids_slow_brokers:
            target = topic.ring.next_available(topic.targets, self._faults, _monotonic())
        else:
            target = topic.ring.next(topic.targets, delivery and delivery.last_broker)
        send.target = target
        if target.address is None:
            self.failed(send, target, no_master(self._asked, target.queue))
            return
        header = send_request(
            outbound,
            group=config.group,
            queue=target.queue,
            now_ms=now_ms,
            default_queues=config.default_queues,
        )
        body = outbound.body
        try:
            connections.submit(
                target.address,
                outbound.code,
                header,
                timeout_s=send.deadline - now,
                body=body,
                extra=self._client.runner.extra(header, None, body) if self._signs else None,
                on_outcome=send,
            )
        except ClientError as exc:
            self.failed(send, target, exc)
        except LocalProtocolError as exc:
            send.outcome = IllegalMessageError(str(exc))

    def answered(self, send: Send, target: Target, result: SendResult) -> None:
        """A message is stored."""
        config = self._config
        if config.avoids_slow_brokers:
            took_s = self._client.connections.now - send.tried_at
            self._faults.note(target.broker_name, took_s, _monotonic())
        if (
            config.retries_when_not_ok
            and not result.is_ok
            and self._delivery_of(send).stored_badly(result, not_ok(result, target.address or ""))
            and self._has_time(send)
        ):
            self._again(send)
        else:
            send.outcome = result

    def failed(self, send: Send, target: Target, error: ClientError) -> None:
        """An attempt has failed."""
        broker_name = target.broker_name
        if self._config.avoids_slow_brokers:
            took_s = self._client.connections.now - send.tried_at
            note_failure(self._faults, broker_name, error, took_s=took_s, now=_monotonic())
        delivery = self._delivery_of(send)
        name = delivery.topic
        topic = self._topics.get(name)
        then, asks_route = delivery.after_failure(
            broker_name,
            error,
            self._client.routes.get(name),
            has_time=self._has_time(send),
            has_other=topic is not None and not topic.has_one_broker,
        )
        is_asked = asks_route and self._refresh(name)
        if then is Then.GIVE_UP:
            send.outcome = delivery.outcome()
        elif then is Then.WAIT:
            self._wait(send)
            self._named[name].note(broker_name, error)
        elif then is Then.WAIT_ROUTE and is_asked:
            self._lookups[name][1].append(send)
        else:
            self._again(send)

    def _again(self, send: Send) -> None:
        assert send.outbound is not None
        name = send.outbound.topic
        topic = self._topic(name)
        if not self._has_time(send):
            send.outcome = self._delivery_of(send).outcome()
        elif topic is not None:
            self._attempt(send, topic, time.time_ns() // 1_000_000)
        elif (route := self._client.routes.get(name)) is not None and route.awaits_master:
            self._wait(send)
        else:
            send.outcome = self._delivery_of(send).outcome()

    def _has_time(self, send: Send) -> bool:
        return self._client.connections.now < send.deadline

    def _delivery_of(self, send: Send) -> Delivery:
        if send.delivery is None:
            assert send.outbound is not None
            send.delivery = Delivery.begun(self._config, send.outbound.topic, send.queue)
        return send.delivery

    # --- routes ------------------------------------------------------------------------------

    def _topic(self, name: str) -> Topic | None:
        """Return the targets of a topic as its route is now; None if that is to be asked for."""
        route = self._client.keeping.known_to_send(name, self._config.default_queues)
        known = self._topics.get(name)
        if known is not None and known.told is route:
            return known
        if route is None or not route.writable:
            return None
        if known is None and len(self._topics) >= TOPICS_MAX:
            forgotten = next(iter(self._topics))
            del self._topics[forgotten]
            self._refreshed_at.pop(forgotten, None)
        ring = QueueRing(secrets.randbelow(1 << 16)) if known is None else known.ring
        self._topics.pop(name, None)
        topic = self._topics[name] = Topic(route, ring)
        return topic

    def _look_up(self, name: str) -> Topic:
        self._client.route_to_send(name, self._config.default_queues)
        topic = self._topic(name)
        if topic is None:
            raise nothing_writable(self._asked, name, self._client.routes.get(name))
        return topic

    def _refresh(self, name: str) -> bool:
        """Have a route asked for again; tell whether that is under way."""
        if name in self._lookups:
            return True
        now = _monotonic()
        if now - self._refreshed_at.get(name, -REFRESH_INTERVAL_S) < REFRESH_INTERVAL_S:
            return False
        self._refreshed_at[name] = now
        self._lookups[name] = (self._client.keeping.refresh_soon(name), [])
        return True

    def _wait(self, send: Send) -> None:
        """Let a send wait until its topic has a master, or may have one again."""
        assert send.outbound is not None
        name = send.outbound.topic
        if name not in self._waits:
            left_s = max(0.0, send.deadline - self._client.connections.now)
            pause_s = min(self._pauses.next_s(name, _monotonic()), left_s)
            self._waits[name] = (self._client.keeping.refresh_soon(name, pause_s), [])
            self._named[name] = NamedMasters()
        self._waits[name][1].append(send)

    def _tend(self) -> None:
        """Let those go on whose route has come, or will not come."""
        if not self._lookups and not self._waits:
            return
        for lines in (self._lookups, self._waits):
            for name, (task, waiting) in list(lines.items()):
                if task.is_done:
                    del lines[name]
                    self._client.tick()
                    if lines is self._waits:
                        self._try_named(name)
                    for send in waiting:
                        self._again(send)

    def _try_named(self, name: str) -> None:
        """Send by the route that nameservers told, or with masters that were named since."""
        named, told = self._named.pop(name), self._client.routes.get(name)
        known = self._topics.get(name)
        if told is None or known is None:
            return
        route = named.applied_to(told)
        if known.route is route:
            return
        if route.writable:
            self._topics[name] = Topic(route, known.ring, told)
        else:
            del self._topics[name]


def _check_same_process(connections: Connections, generation: int) -> None:
    if connections.generation != generation:
        # The parent sends these messages, and hears what becomes of them.
        raise ClientClosedError(f"the stream of sends ({FORKED}, it goes on in the parent)")
