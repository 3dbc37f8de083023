"""Many sends under way at once, without a loop.

A send goes straight to its connection and its answer comes back by a call. What follows if that is
not possible or fails is decided by `rmq.client.core.producing.delivery`, whose steps are carried
out here. Outcomes are handed out in the order of the messages.

Callers are inside the client's monitor, except those that iterate over `stream`: that one is inside
while it works, and not while it hands out outcomes or is handed messages.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from typing import TYPE_CHECKING, Final, final

from rmq.client.blocking.connections import FORKED
from rmq.client.core.producing.delivery import (
    AwaitMaster,
    Delivery,
    Done,
    FindRoute,
    SendPolicy,
    Transmit,
    nothing_writable,
)
from rmq.client.core.producing.outbound import prepare, read_send_answer, send_request
from rmq.client.core.producing.targets import QueueTarget, TargetTable
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
    from rmq.client.core.producing.targets import TopicTargets
    from rmq.client.core.producing.unique_keys import UniqueKeys
    from rmq.client.core.routes import TopicRoute
    from rmq.model.queues import MessageQueue
    from rmq.remoting.command import Command

IN_FLIGHT: Final = 256
FLUSH_MESSAGES: Final = 32
"""Messages are written in groups of this size, so that the broker starts before the last."""
SLOW_SOURCE_S: Final = 0.001
"""If the next message takes longer to come, those before it are written first."""

_monotonic = time.monotonic


class _End:
    """Marks the end of the messages."""


_END: Final = _End()


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
        """The queue that the caller has chosen, None for any."""
        self.target: QueueTarget | None = None
        """The target of the last attempt."""
        self.delivery: Delivery[QueueTarget] | None = None
        """Decides what is next; None as long as the first attempt is under way."""
        self.tried_at = 0.0
        self.outcome: SendResult | RmqError | None = None
        """Result or error; None while the send is in flight."""

    def __call__(self, answer: Command | ClientError) -> None:
        target, outbound = self.target, self.outbound
        assert target is not None
        assert outbound is not None
        if not isinstance(answer, ClientError):
            try:
                result = read_send_answer(
                    answer, address=target.address, queue=target.queue, outbound=outbound
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
        self._table = TargetTable(client.routes, lambda: secrets.randbelow(1 << 16))
        self._policy: SendPolicy[QueueTarget] = SendPolicy(
            config,
            routes=client.routes,
            nameservers=client.nameservers.addresses,
            targets_of=self._targets_of,
            on_stale=self._begin_refresh,
        )
        self._refreshes: dict[str, tuple[Task[TopicRoute], list[Send]]] = {}
        """Routes that are being asked for again, and the sends that wait for them."""
        self._waits: dict[str, tuple[Task[TopicRoute], list[Send]]] = {}
        """Topics that have no master now, and the sends that wait for one."""

    # --- a stream of messages ----------------------------------------------------------------

    def stream(
        self, messages: Iterable[Message], in_flight: int
    ) -> Iterator[SendResult | RmqError]:
        """Send messages, at most `in_flight` at a time; yield the outcome of each, in order."""
        connections = self._client.connections
        generation = connections.generation
        in_flight = min(in_flight, self._config.pending_max)
        bytes_max = self._config.pending_bytes_max
        pending: deque[Send] = deque()
        pending_bytes = 0
        source = iter(messages)
        is_over = is_slow = False
        monitor = self._client.monitor
        while True:
            # What is taken is begun in groups, each of which is inside the monitor once.
            taken: list[Message] = []
            count = 0
            while not is_over and len(pending) + len(taken) < in_flight:
                if pending_bytes >= bytes_max or (count and is_slow):
                    break
                asked_at = _monotonic()
                message = next(source, _END)
                is_slow = _monotonic() - asked_at > SLOW_SOURCE_S
                if isinstance(message, _End):
                    is_over = True
                    break
                _check_same_process(connections, generation)
                taken.append(message)
                pending_bytes += len(message.body)
                count += 1
                if len(taken) == FLUSH_MESSAGES:
                    with monitor:
                        self._client.tick()
                        pending.extend(map(self.begin, taken))
                        connections.flush()
                    taken.clear()
            with monitor:
                self._client.tick()
                pending.extend(map(self.begin, taken))
                if not pending:
                    return
                if count and is_slow and not is_over:
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
        """Wait until a send has its outcome."""
        connections = self._client.connections
        while send.outcome is None:
            connections.step()
            self._tend()

    def step(self, until: float | None = None) -> None:
        """Wait for the next event, `until` at the longest, and let sends in flight proceed."""
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
        """Begin to send an encoded message; to a `queue` there is one attempt."""
        deadline = self._client.connections.now + self._config.send_timeout_s
        send = Send(self, deadline, len(outbound.body), outbound, queue)
        self._start(send, outbound.topic, time.time_ns() // 1_000_000)
        return send

    # --- attempts ----------------------------------------------------------------------------

    def _start(self, send: Send, topic_name: str, now_ms: int) -> None:
        """Make the first attempt, without a `Delivery` if nothing is missing."""
        config = self._config
        # `_targets_of`, written out: this is done for every message.
        targets = self._table.by_route(
            self._client.keeping.known_to_send(topic_name, config.default_queues)
        )
        if targets is not None:
            # The time matters only for brokers that are avoided.
            now = _monotonic() if config.avoids_slow_brokers else 0.0
            target = self._policy.choose(targets, send.queue, None, now)
            if target.address:
                self._transmit(send, target, now_ms)
                return
            self._delivery_of(send).has_no_master(target, _monotonic(), self._left_s(send))
        self._advance(send)

    def _advance(self, send: Send) -> None:
        """Carry out the next steps of a send, until one of them takes time."""
        delivery = self._delivery_of(send)
        while True:
            step = delivery.next(_monotonic(), self._left_s(send))
            if not isinstance(step, FindRoute):
                break
            # Only while a send begins: nothing else is under way here, so this may wait.
            try:
                self._look_up(delivery.topic)
            except RmqError as exc:
                delivery.no_route(exc)
        if isinstance(step, Transmit):
            self._transmit(send, step.target, time.time_ns() // 1_000_000)
        elif isinstance(step, Done):
            send.outcome = step.outcome
        elif isinstance(step, AwaitMaster):
            self._await_master(delivery.topic, step.pause_s).append(send)
        else:
            self._await_route(delivery.topic).append(send)

    def _transmit(self, send: Send, target: QueueTarget, now_ms: int) -> None:
        config = self._config
        outbound = send.outbound
        assert outbound is not None
        connections = self._client.connections
        send.tried_at = now = connections.now
        send.target = target
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
                on_outcome=send,
            )
        except ClientError as exc:
            self.failed(send, target, exc)
        except LocalProtocolError as exc:
            send.outcome = IllegalMessageError(str(exc))

    def answered(self, send: Send, target: QueueTarget, result: SendResult) -> None:
        """The message of a send is stored."""
        policy = self._policy
        if policy.accepts_every_answer or policy.accepts(
            target.broker_name, result, took_s=self._took_s(send), now=_monotonic()
        ):
            send.outcome = result
        else:
            self._delivery_of(send).not_ok(target, result)
            self._advance(send)

    def failed(self, send: Send, target: QueueTarget, error: ClientError) -> None:
        """An attempt has failed."""
        self._delivery_of(send).failed(
            target,
            error,
            took_s=self._took_s(send),
            now=_monotonic(),
            left_s=self._left_s(send),
        )
        self._advance(send)

    def _took_s(self, send: Send) -> float:
        return self._client.connections.now - send.tried_at

    def _left_s(self, send: Send) -> float:
        return send.deadline - self._client.connections.now

    def _delivery_of(self, send: Send) -> Delivery[QueueTarget]:
        if send.delivery is None:
            assert send.outbound is not None
            send.delivery = Delivery(
                self._policy, send.outbound.topic, send.queue, self._config.send_timeout_s
            )
        return send.delivery

    # --- routes ------------------------------------------------------------------------------

    def _targets_of(self, name: str) -> TopicTargets[QueueTarget] | None:
        """Return the targets of a topic by the route that is known; it is refreshed when old."""
        return self._table.by_route(
            self._client.keeping.known_to_send(name, self._config.default_queues)
        )

    def _look_up(self, name: str) -> None:
        """Ask for a route and wait for it; raise `RmqError` if it leads nowhere."""
        route = self._client.route_to_send(name, self._config.default_queues)
        if not route.writable:
            raise nothing_writable(self._policy.asked, name, route)

    def _begin_refresh(self, name: str) -> None:
        """Begin to ask for a route again."""
        if name not in self._refreshes:
            self._policy.refreshing.add(name)
            self._refreshes[name] = (self._client.keeping.refresh_soon(name), [])

    def _await_route(self, name: str) -> list[Send]:
        """Return the sends that wait for a route, which is being asked for again."""
        self._begin_refresh(name)
        return self._refreshes[name][1]

    def _await_master(self, name: str, pause_s: float) -> list[Send]:
        """Return the sends that wait for a master; after a pause the route is asked for."""
        if name not in self._waits:
            self._waits[name] = (self._client.keeping.refresh_soon(name, pause_s), [])
        return self._waits[name][1]

    def _tend(self) -> None:
        """Resume sends whose route request has finished or failed."""
        if not self._refreshes and not self._waits:
            return
        for under_way in (self._refreshes, self._waits):
            for name, (task, waiting) in list(under_way.items()):
                if task.is_done:
                    del under_way[name]
                    self._client.tick()
                    if under_way is self._waits:
                        self._end_wait(name)
                    else:
                        self._policy.refreshing.discard(name)
                    for send in waiting:
                        self._advance(send)

    def _end_wait(self, name: str) -> None:
        """Send by the route that nameservers told, with masters that brokers have named."""
        route = self._policy.waits.end(name, self._client.routes.get(name))
        if route is not None:
            self._table.use(route)


def _check_same_process(connections: Connections, generation: int) -> None:
    if connections.generation != generation:
        # The parent sends these messages, and gets their outcomes.
        raise ClientClosedError(f"the stream of sends ({FORKED}, it goes on in the parent)")
