"""The admin client: the calls of `rmq.client.core.admin.catalogue` as coroutines.

    async with open_admin("10.0.0.5:9876") as admin:
        await admin.create_topic("Orders", queues=8)
        progress = await admin.group_progress("billing")
        print(progress.lag, [str(failure) for failure in progress.failures])

Each method has the arguments, the result and the documentation of the flow of its name. A read from
several brokers says in `failures` which did not answer. A change that did not happen everywhere
raises `BrokersFailedError`, which says where it did.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar, final

from rmq.client.core.admin.catalogue import AdminCalls
from rmq.client.core.admin.targets import TIMEOUT_S
from rmq.client.core.config import ClientConfig
from rmq.client.tasks.client import open_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rmq.client.core.flows import Flow
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.loop import Loop

T = TypeVar("T")


@final
class AdminClient(AdminCalls):
    """Runs admin calls against nameservers and brokers. Use `open_admin` to get one."""

    def __init__(self, client: Client) -> None:
        """`client` may be shared with producers and consumers."""
        self.client = client

    async def run(self, flow: Flow[T]) -> T:
        """Run any other flow on the same connections."""
        return await self.client.run(flow)


@asynccontextmanager
async def open_admin(loop: Loop, config: ClientConfig | str) -> AsyncIterator[AdminClient]:
    """Run an admin client for the length of a block; text stands for addresses of nameservers."""
    if isinstance(config, str):
        config = ClientConfig(nameservers=config, request_timeout_s=TIMEOUT_S)
    async with open_client(loop, config) as client:
        yield AdminClient(client)
