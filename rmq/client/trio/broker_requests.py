"""Serves what brokers ask of a client; `rmq.client.core.broker_requests` decides the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.protocol import REQUESTS, Requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.client.core.broker_requests import BrokerRequests, Handler
    from rmq.remoting.headers import ConsumeMessageDirectlyRequest
    from rmq.remoting.request import Request


def handler_table(requests: BrokerRequests) -> HandlerTable:
    """Return the handlers of all requests that brokers make."""

    async def consume_directly(request: Request[ConsumeMessageDirectlyRequest]) -> None:
        consumer, record = requests.listener_for(request.header, request.body)
        result = await consumer.consume_directly(record, request.header.broker_name or "")
        request.reply(body=result.encode())

    table = HandlerTable()
    for code, handler in requests.handlers.items():
        table.add(REQUESTS[code], _serving(handler))
    table.add_async(Requests.CONSUME_MESSAGE_DIRECTLY, consume_directly)
    return table


def _serving(handler: Handler) -> Callable[[Request[Any]], None]:
    def serve(request: Request[Any]) -> None:
        reply = handler(request.channel.peer, request.header, request.body)
        if reply is not None:
            request.reply(code=reply.code, remark=reply.remark, body=reply.body)

    return serve
