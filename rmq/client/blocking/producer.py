"""The producer without a loop.

    with BlockingProducer("10.0.0.5:9876", group="orders") as producer:
        producer.send(Message("Orders", b"..."))
        producer.send_many(Message("Orders", line) for line in lines)

Any number of threads may share one: their sends are under way at the same time, on the same
connections. It can be made in one process, pickled and opened in another, as Spark does. After a
fork, parent and child both go on, each with connections and message ids of its own. Message traces
are not written.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, final

from rmq.client.blocking.client import BlockingClient
from rmq.client.blocking.sending import IN_FLIGHT, Sending
from rmq.client.core.config import member_config
from rmq.client.core.producing.config import ProducerConfig
from rmq.client.core.producing.delivery import batch_results, check_queue
from rmq.client.core.producing.outbound import prepare, prepare_batch, split_batch
from rmq.client.core.producing.selection import by_hash
from rmq.client.core.producing.single_sends import Sends
from rmq.client.core.producing.unique_keys import new_unique_keys
from rmq.errors import (
    ClientClosedError,
    ConfigError,
    IllegalMessageError,
    LocalProtocolError,
    RmqError,
)
from rmq.model.clock import system_ms
from rmq.remoting.bodies import ProducerData

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Unpack

    from rmq.client.blocking.sending import Send
    from rmq.client.core.config import ClientConfig
    from rmq.client.core.flows import Flow
    from rmq.client.core.messages import Message, SendResult
    from rmq.client.core.producing.config import ProducerOptions
    from rmq.client.core.producing.outbound import OutboundMessage
    from rmq.client.core.producing.selection import Selector, ShardingKey
    from rmq.client.core.producing.unique_keys import UniqueKeys
    from rmq.client.core.routes import TopicRoute
    from rmq.model.queues import MessageQueue

T = TypeVar("T")

_FIRST_BELOW: Final = 1 << 16


@final
class BlockingProducer:
    """Sends messages. Use it as a context manager."""

    def __init__(
        self,
        cluster: BlockingClient | ClientConfig | str,
        group: str | None = None,
        *,
        config: ProducerConfig | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """`cluster`: nameservers, or more about the client, or an open client to share.

        Settings come one by one (`group` and options) or all at once (`config`).
        """
        self.config = config = member_config(ProducerConfig, config, group, options)
        self._shares_client = isinstance(cluster, BlockingClient)
        self.client = cluster if isinstance(cluster, BlockingClient) else BlockingClient(cluster)
        self._is_open = False
        self._generation = -1
        self._sends: Sends | None = None
        self._sending: Sending | None = None
        self._unique_keys: UniqueKeys | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self._is_open:
            raise TypeError(
                "an open producer cannot be pickled: close it, or make it where it is used"
            )
        return _rebuild, (self.client.config, self.config)

    # --- life --------------------------------------------------------------------------------

    def open(self) -> Self:
        """Open the producer. Brokers are connected by the first request to them."""
        with self.client.monitor:
            if not self._is_open:
                if not self._shares_client:
                    self.client.open()
                self._prepare()
                self.client.join(self)
                self._is_open = True
        return self

    def close(self) -> None:
        """Unregister at brokers, and close connections unless the client is shared."""
        with self.client.monitor:
            if not self._is_open:
                return
            self._is_open = False
            try:
                if self.client.is_open:
                    self.client.leave(self)
            finally:
                if not self._shares_client:
                    self.client.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self) -> None:
        """Create the objects that must not be shared with a parent process."""
        client = self.client
        self._generation = client.generation
        self._unique_keys = new_unique_keys(client.local_address)
        self._sends = Sends(
            self.config,
            routes=client.routes,
            nameservers=client.nameservers,
            now=time.monotonic,
            now_ms=system_ms,
            first=secrets.randbelow(_FIRST_BELOW),
            on_stale=client.keeping.refresh_soon,
        )
        self._sending = Sending(client, self.config, self._unique_keys)

    def _parts(self) -> tuple[Sends, Sending, UniqueKeys]:
        if not self._is_open:
            raise ClientClosedError(f"producer {self.config.group}")
        if self.client.generation != self._generation:
            self._prepare()
        assert self._sends is not None
        assert self._sending is not None
        assert self._unique_keys is not None
        return self._sends, self._sending, self._unique_keys

    # --- sending -----------------------------------------------------------------------------

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message and wait until it is stored, with retries on other brokers.

        To a `queue` of the caller's choice there is one attempt. While brokers have slaves but no
        master, such as during a promotion, it waits for one as long as it has time. Raises
        `SendFailedError`, which says whether the message may be stored nevertheless;
        `NoRouteError` and `NoNameserverError` if it never came to an attempt;
        `IllegalMessageError`.
        """
        with self.client.monitor:
            sends, _, unique_keys = self._parts()
            check_queue(message.topic, queue)
            outbound = self._outbound(message, unique_keys)
            return self._run(sends.send(outbound, queue=queue, timeout_s=timeout_s), message.topic)

    def send_ordered(
        self,
        message: Message,
        sharding_key: ShardingKey,
        *,
        selector: Selector = by_hash,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message to the queue of its sharding key, where those of the same key are."""
        with self.client.monitor:
            sends, _, _ = self._parts()
            route = self._run(sends.route(message.topic, timeout_s), message.topic)
        queue = selector(route.writable, message, sharding_key)
        return self.send(message, queue=queue, timeout_s=timeout_s)

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send a message without a response; return when it is written to the socket."""
        with self.client.monitor:
            sends, _, unique_keys = self._parts()
            check_queue(message.topic, queue)
            outbound = self._outbound(message, unique_keys)
            self._run(sends.send_oneway(outbound, queue=queue), message.topic)

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic in as few requests as their size allows; one result each.

        The messages of a request are stored all or none, in their order, in one queue. Requests are
        sent one after the other, up to the first that fails. Raises `BatchFailedError` then, which
        has what was not acknowledged, and the error itself if there is one request only.
        """
        runs = split_batch(messages, self.config.message_bytes_max)
        check_queue(messages[0].topic, queue)
        outcomes: list[SendResult | RmqError | None] = [None] * len(runs)
        with self.client.monitor:
            sends, _, unique_keys = self._parts()
            for number, run in enumerate(runs):
                outbound = prepare_batch(run, unique_keys=unique_keys, now_ms=system_ms())
                flow = sends.send(outbound, queue=queue, timeout_s=timeout_s)
                try:
                    outcomes[number] = self._run(flow, outbound.topic)
                except RmqError as exc:
                    outcomes[number] = exc
                    break
        return batch_results(runs, outcomes)

    def send_many(
        self, messages: Iterable[Message], in_flight: int = IN_FLIGHT
    ) -> list[SendResult]:
        """Send messages one by one, many under way at a time; return their results in order.

        At most `pending_max` of them are, and `pending_bytes_max` of their bodies.

        Each is retried as `send` does it. When one fails for good no further message is begun;
        those under way are waited for, then its error is raised. Use `send_stream` to know of
        each, or if there are too many for a list.
        """
        results: list[SendResult] = []
        failure: RmqError | None = None

        def until_failure() -> Iterator[Message]:
            for message in messages:
                if failure is not None:
                    return
                yield message

        for outcome in self.send_stream(until_failure(), in_flight):
            if not isinstance(outcome, RmqError):
                results.append(outcome)
            elif failure is None:
                failure = outcome
        if failure is not None:
            raise failure
        return results

    def send_stream(
        self, messages: Iterable[Message], in_flight: int = IN_FLIGHT
    ) -> Iterator[SendResult | RmqError]:
        """Send messages while the results are iterated over: a result or an error for each.

        Nothing is sent before the first result is asked for. Messages are taken as there is room;
        up to 31 that were taken leave only when the next one has come, or the last, so an iterator
        that may wait long for its next message should be served with `send`.
        """
        if in_flight < 1:
            raise ConfigError("in_flight", f"{in_flight} is below 1")
        with self.client.monitor:
            _, sending, _ = self._parts()
        return sending.stream(messages, in_flight)

    def begin(self, outbound: OutboundMessage, *, queue: MessageQueue | None = None) -> Send:
        """Begin to send what is encoded already: for programs that make batches of their own.

        It is retried as `send` does it; to a `queue` there is one attempt. Its `outcome` is None as
        long as it is under way: call `step` until it is not. The caller bounds how many are.
        """
        check_queue(outbound.topic, queue)
        with self.client.monitor:
            _, sending, _ = self._parts()
            return sending.begin_ready(outbound, queue)

    def step(self, until: float | None = None) -> None:
        """Carry on what was begun until something happens, at the longest `until`.

        That is a time of `time.monotonic`; it may be left out while anything is under way.
        """
        with self.client.monitor:
            _, sending, _ = self._parts()
            sending.step(until)

    def route(self, topic: str) -> TopicRoute:
        """Return where a topic is; `writable` are the queues to choose from."""
        with self.client.monitor:
            self._parts()
            return self.client.route_to_send(topic, self.config.default_queues)

    def _outbound(self, message: Message, unique_keys: UniqueKeys) -> OutboundMessage:
        config = self.config
        return prepare(
            message,
            unique_keys=unique_keys,
            now_ms=system_ms(),
            compress_above=config.compress_above,
            compress_level=config.compress_level,
            bytes_max=config.message_bytes_max,
        )

    def _run(self, flow: Flow[T], topic: str) -> T:
        client = self.client
        client.keeping.known_to_send(topic, self.config.default_queues)
        try:
            return client.run_inside(flow)
        except LocalProtocolError as exc:
            raise IllegalMessageError(str(exc)) from exc

    # --- what the client knows of it ---------------------------------------------------------

    @property
    def group(self) -> str:
        return self.config.group

    def topics(self) -> Iterable[str]:
        """Return the topics whose routes are kept: none, they are refreshed as they are used."""
        return ()

    def presence(self) -> ProducerData:
        """Return its entry in heartbeats."""
        return ProducerData(group_name=self.config.group)

    def route_changed(self, route: TopicRoute) -> None:
        """Nothing to do: each send uses the route that is known then."""


def _rebuild(client_config: ClientConfig, config: ProducerConfig) -> BlockingProducer:
    return BlockingProducer(client_config, config=config)
