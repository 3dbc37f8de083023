"""The transaction producer of the stock Java client."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from interop.support.java_messages import Received, Sent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from interop.support.java_client import Driver
    from interop.support.java_messages import Outgoing

CHECK_STATES: Final = "checkStates"
"""A property of messages: what brokers are told when they ask, joined by commas."""
COMMIT: Final = "COMMIT_MESSAGE"
ROLLBACK: Final = "ROLLBACK_MESSAGE"
UNKNOWN: Final = "UNKNOW"


@final
@dataclass(frozen=True)
class TransactionProducer:
    """A TransactionMQProducer that runs."""

    driver: Driver
    name: str
    client_id: str

    async def send(self, *messages: Outgoing, state: str) -> list[Sent]:
        """Send half messages whose local transactions end in `state`."""
        lines = [message.as_json() for message in messages]
        return [Sent.parse(line) for line in await self._ask("send", messages=lines, state=state)]

    async def checks(self) -> list[Received]:
        """Return the half messages that brokers have asked about so far, in their order."""
        return [Received.parse(line) for line in await self._ask("checks")]

    async def _ask(self, verb: str, **arguments: object) -> Any:  # noqa: ANN401 - JSON
        return await self.driver.ask(f"transaction {verb}", name=self.name, **arguments)


@asynccontextmanager
async def transaction_producer(
    driver: Driver, name: str, *, group: str, **options: object
) -> AsyncIterator[TransactionProducer]:
    """Run a transaction producer for the length of a block."""
    client_id = await driver.ask("transaction start", name=name, group=group, **options)
    async with driver.started("transaction stop", name):
        yield TransactionProducer(driver, name, client_id)
