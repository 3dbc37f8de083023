"""A nameserver that notes what brokers tell it, and answers only if it is to.

It keeps the in-sync records of masters: one that has nobody to keep it waits before it serves.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from rmq.remoting.bodies import KVTable
from rmq.remoting.codes import ResponseCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.headers import (
    GetKvConfigRequest,
    GetKvConfigResponse,
    PutKvConfigRequest,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
)
from rmq.remoting.protocol import Requests
from rmq.remoting.server import RemotingServer, ServerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from rmq.remoting.request import Request


class StandIn:
    """What brokers said, in order."""

    def __init__(
        self, on_told: Callable[[str], Awaitable[None]] | None, *, silent_to: frozenset[str]
    ) -> None:
        self.told: list[str] = []
        self.registrations: list[RegisterBrokerRequest] = []
        self.address = ""
        self.order_topics: dict[str, str] | None = None
        """What it says of topics that are to be ordered; None: it has no such table."""
        self._kept: dict[tuple[str, str], str] = {}
        self._on_told = on_told
        self._silent_to = silent_to
        self._news = trio.Event()

    async def wait_told(self, what: str, times: int = 1) -> None:
        """Wait until something was told so many times."""
        while self.told.count(what) < times:
            await self._news.wait()

    def table(self) -> HandlerTable:
        table = HandlerTable()
        table.add_async(Requests.REGISTER_BROKER, self._register)
        table.add_async(Requests.UNREGISTER_BROKER, self._unregister)
        table.add(Requests.PUT_KV_CONFIG, self._put)
        table.add(Requests.GET_KV_CONFIG, self._get)
        return table

    def _put(self, request: Request[PutKvConfigRequest]) -> None:
        header = request.header
        self._kept[header.namespace, header.key] = header.value
        request.reply()

    def _get(self, request: Request[GetKvConfigRequest]) -> None:
        value = self._kept.get((request.header.namespace, request.header.key))
        code = ResponseCode.QUERY_NOT_FOUND if value is None else ResponseCode.SUCCESS
        request.reply(GetKvConfigResponse(value=value), code=code)

    async def _register(self, request: Request[RegisterBrokerRequest]) -> None:
        self.registrations.append(request.header)
        await self._note("register")
        if "register" not in self._silent_to:
            body = None if self.order_topics is None else KVTable(table=self.order_topics).encode()
            request.reply(RegisterBrokerResponse(), body=body)

    async def _unregister(self, request: Request[UnregisterBrokerRequest]) -> None:
        await self._note("unregister")
        if "unregister" not in self._silent_to:
            request.reply()

    async def _note(self, what: str) -> None:
        self.told.append(what)
        self._news.set()
        self._news = trio.Event()
        if self._on_told is not None:
            await self._on_told(what)


@asynccontextmanager
async def stand_in(
    on_told: Callable[[str], Awaitable[None]] | None = None, *, silent_to: tuple[str, ...] = ()
) -> AsyncIterator[StandIn]:
    """Run a nameserver for the length of the block."""
    nameserver = StandIn(on_told, silent_to=frozenset(silent_to))
    server = RemotingServer(nameserver.table(), ServerConfig(host="127.0.0.1"))
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        nameserver.address = f"127.0.0.1:{server.port}"
        yield nameserver
        nursery.cancel_scope.cancel()
