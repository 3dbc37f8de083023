"""The admin client without a loop: the calls of `rmq.client.core.admin.catalogue`, which block.

    with BlockingAdmin("10.0.0.5:9876") as admin:
        admin.create_topic("Orders", queues=8)
        progress = admin.group_progress("billing")

Each method has the arguments, the result and the documentation of the flow of its name. A read from
several brokers says in `failures` which did not answer. A change that did not happen everywhere
raises `BrokersFailedError`, which says where it did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar, final

from rmq.client.blocking.client import BlockingClient
from rmq.client.core.admin.catalogue import AdminCalls
from rmq.client.core.admin.targets import TIMEOUT_S
from rmq.client.core.config import ClientConfig

if TYPE_CHECKING:
    from rmq.client.core.flows import Flow

T = TypeVar("T")


@final
class BlockingAdmin(AdminCalls):
    """Runs admin calls against nameservers and brokers. Use it as a context manager."""

    def __init__(self, cluster: BlockingClient | ClientConfig | str) -> None:
        """`cluster`: nameservers, or more about the client, or an open client to share."""
        self._shares_client = isinstance(cluster, BlockingClient)
        if isinstance(cluster, str):
            cluster = ClientConfig(nameservers=cluster, request_timeout_s=TIMEOUT_S)
        self.client = cluster if isinstance(cluster, BlockingClient) else BlockingClient(cluster)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.client.is_open:
            raise TypeError("an open admin client cannot be pickled: close it before")
        return BlockingAdmin, (self.client.config,)

    def open(self) -> Self:
        """Begin to be usable."""
        if not self._shares_client:
            self.client.open()
        return self

    def close(self) -> None:
        """Close connections, unless the client is shared."""
        if not self._shares_client:
            self.client.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, flow: Flow[T]) -> T:
        """Run any other flow on the same connections."""
        return self.client.run(flow)
