"""Requests and replies of the stock Java client."""

from __future__ import annotations

from base64 import b64decode
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from interop.support.java_client import Driver
    from interop.support.java_messages import Outgoing


@dataclass(frozen=True)
class Reply:
    """What a request was answered with."""

    topic: str
    body: bytes
    properties: Mapping[str, str]

    @classmethod
    def parse(cls, line: Mapping[str, Any]) -> Reply:
        return cls(line["topic"], b64decode(line["body"]), line["properties"])


@final
@dataclass(frozen=True)
class Asker:
    """A DefaultMQProducer that sends requests."""

    driver: Driver
    name: str

    async def ask(self, *messages: Outgoing, timeout_s: float) -> list[Reply]:
        """Send requests, one after the other; return their replies."""
        lines = await self.driver.ask(
            "request ask",
            name=self.name,
            messages=[message.as_json() for message in messages],
            timeoutMs=round(timeout_s * 1000),
        )
        return [Reply.parse(line) for line in lines]


@asynccontextmanager
async def asker(driver: Driver, name: str, *, group: str) -> AsyncIterator[Asker]:
    """Run somebody who asks for the length of a block."""
    await driver.ask("request start asker", name=name, group=group)
    async with driver.started("request stop asker", name):
        yield Asker(driver, name)


@asynccontextmanager
async def replier(driver: Driver, name: str, *, group: str, topic: str) -> AsyncIterator[None]:
    """Have somebody reply to all requests of a topic with `re: ` and what they said."""
    await driver.ask("request start replier", name=name, group=group, topic=topic)
    async with driver.started("request stop replier", name):
        yield
