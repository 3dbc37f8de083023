"""Asking and answering by messages: who waits for a reply, and where replies go."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, final

import anyio

from rmq.client.core.producing.requests import Replies, reply_to, request_properties
from rmq.client.tasks.pending import Pending
from rmq.errors import RequestTimeoutError, RmqError
from rmq.model.clock import system_ms

if TYPE_CHECKING:
    from rmq.client.core.messages import Message, SendResult
    from rmq.client.core.producing.outbound import OutboundMessage
    from rmq.client.core.producing.unique_keys import UniqueKeys
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.routes import TopicRoute
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.loop import Channel, Waiter
    from rmq.client.tasks.pipeline import Pipeline
    from rmq.model.queues import MessageQueue


@final
class Requester:
    """The requests of one producer."""

    def __init__(self, client: Client, pipeline: Pipeline) -> None:
        self._client = client
        self._pipeline = pipeline
        self._known_on: weakref.WeakSet[Channel] = weakref.WeakSet()
        """Connections whose brokers know us: replies for us can be pushed there."""

    def properties(self, timeout_s: float) -> dict[str, str]:
        """Return what makes a message a request."""
        return request_properties(self._client.client_id, timeout_s)

    async def request(
        self,
        outbound: OutboundMessage,
        correlation_id: str,
        message: Message,
        timeout_s: float,
        queue: MessageQueue | None,
    ) -> ReceivedMessage:
        """Send a request, which has the `properties` of one, and wait for its reply."""
        replies = replies_of(self._client)
        waiter: Waiter[ReceivedMessage] = self._client.loop.waiter()
        deadline = anyio.current_time() + timeout_s
        route = await self._pipeline.route(outbound.topic, timeout_s)
        # Brokers that cannot be reached must not take all of the time.
        await self._be_known(route, timeout_s / 4)

        def sent(outcome: SendResult | RmqError) -> None:
            if isinstance(outcome, RmqError):
                waiter(outcome)

        replies.expect(correlation_id, waiter)
        pending: Pending | None = None
        try:
            pending = Pending(
                self._pipeline,
                outbound,
                sent,
                now=(now := anyio.current_time()),
                now_ms=system_ms(),
                timeout_s=max(0.0, deadline - now),
                queue=queue,
                message=message,
            )
            self._pipeline.start(pending)
            with anyio.CancelScope(deadline=deadline):
                return await waiter.wait()
        finally:
            replies.give_up(correlation_id)
            if pending is not None:
                self._pipeline.abandon(pending)
        # The message itself may have failed at the same moment: that says more.
        if isinstance(waiter.outcome, RmqError):
            raise waiter.outcome
        raise RequestTimeoutError(f"topic {outbound.topic}", "a request", timeout_s)

    def prepared_reply(
        self, request: ReceivedMessage, body: bytes, unique_keys: UniqueKeys
    ) -> OutboundMessage:
        """Return the reply to a request."""
        config = self._pipeline.config
        return reply_to(
            request,
            body,
            unique_keys=unique_keys,
            now_ms=system_ms(),
            compress_above=config.compress_above,
            compress_level=config.compress_level,
            bytes_max=config.message_bytes_max,
        )

    async def reply_queue(self, request: ReceivedMessage, topic: str) -> MessageQueue | None:
        """Return where to send a reply: to the broker that the request came from.

        That broker knows the client that asked. None: it is not in the route, any broker will do.
        """
        route = await self._pipeline.route(topic, self._pipeline.config.send_timeout_s)
        for queue in route.writable:
            if queue.broker_name == request.queue.broker_name:
                return queue
        return None

    async def _be_known(self, route: TopicRoute, timeout_s: float) -> None:
        """Send heartbeats to masters of a topic that cannot push replies to this client yet."""
        with anyio.move_on_after(timeout_s):
            await self._pipeline.connect(route.topic)
        open_channels = {
            channel
            for address in {route.master_of(queue.broker_name) for queue in route.writable}
            if address is not None
            and (channel := self._client.remoting.open_channel_to(address)) is not None
        }
        if not open_channels.issubset(self._known_on):
            with anyio.move_on_after(timeout_s):
                await self._client.beat()
            self._known_on.update(open_channels)


def replies_of(client: Client) -> Replies:
    """Return the table of requests that wait for replies; producers of a client share it."""
    replies = client.broker_requests.on_reply
    if not isinstance(replies, Replies):
        replies = client.broker_requests.on_reply = Replies(now_ms=system_ms)
    return replies
