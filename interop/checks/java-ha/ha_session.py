"""What the cases of this check share: stock clients, a client of our own, messages to send."""

from __future__ import annotations

import os
import sys
from base64 import b64decode
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
from ha_load import QUEUES, Load
from ha_questions import ask

from interop.support.cases import MismatchError, expect
from interop.support.java_messages import Outgoing
from interop.support.tools import run_tool
from interop.support.waiting import wait_until
from rmq.errors import RmqError
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import CreateTopicRequest, GetRouteInfoRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable
    from contextlib import AbstractContextManager

    from ha_members import Member, Members

    from interop.support.cases import Case
    from interop.support.java_client import Driver, DriverKit
    from interop.support.java_consumers import PullConsumer
    from interop.support.java_messages import Received, Sent
    from interop.support.results import Operations
    from rmq.remoting.client import RemotingClient

HISTORY: Final = "History"
LATER: Final = "Later"
LOAD: Final = "Load"
GROUP: Final = "half-way"
"""Has consumed `HISTORY`, and nothing since."""
DELAYED: Final = 3
"""So many of `HISTORY` were delayed by level 1."""
_BODY_BYTES: Final = 3000
_READ_S: Final = 40.0


@dataclass(frozen=True)
class HaSession:
    """Stock clients, and one of ours."""

    operations: Operations
    kit: DriverKit
    jars: Path
    folder: Path
    client: RemotingClient

    def operation(
        self, part: str, name: str, *, timeout_s: float = 60
    ) -> AbstractContextManager[Case]:
        return self.operations.operation(part, name, timeout_s=timeout_s)

    @asynccontextmanager
    async def reader(self, members: Members) -> AsyncIterator[PullConsumer]:
        """Run a stock consumer in a process of its own, which knows no routes of before."""
        async with (
            self.kit.driver(members.nameserver) as driver,
            driver.pull_consumer("reader", group="readers") as reader,
        ):
            yield reader

    async def read_with_cpp_client(self, members: Members, topic: str) -> list[bytes]:
        """Return the bodies that the C++ client finds in a topic."""
        home = self.folder / f"cpp-{topic}"
        home.mkdir(exist_ok=True)
        done = await run_tool(
            sys.executable,
            str(Path(__file__).with_name("cpp_reader.py")),
            members.nameserver,
            topic,
            folder=home,
            # The library logs in the home folder.
            environment={**os.environ, "HOME": str(home)},
            timeout_s=_READ_S,
        )
        expect(f"exit code ({done.text[-500:]})", done.code, 0)
        lines = [line.split() for line in done.text.splitlines()]
        return [b64decode(words[1]) for words in lines if words[:1] == ["body"]]

    async def create_topics(self, members: Members, master: Member) -> None:
        for topic in (HISTORY, LATER, LOAD):
            header = CreateTopicRequest(
                topic=topic,
                default_topic="TBW102",
                read_queue_nums=QUEUES,
                write_queue_nums=QUEUES,
                perm=6,
                topic_filter_type="SINGLE_TAG",
            )
            await ask(self.client, master.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        for topic in (HISTORY, LATER, LOAD):
            await self._wait_route(members, topic)

    async def _wait_route(self, members: Members, topic: str) -> None:
        header = GetRouteInfoRequest(topic=topic)

        async def is_known() -> bool:
            answer = await self.client.request(
                members.nameserver, RequestCode.GET_ROUTEINFO_BY_TOPIC, header
            )
            return answer.code == ResponseCode.SUCCESS

        await wait_until(f"a route to {topic}", is_known, timeout_s=15)

    async def make_history(self, driver: Driver) -> list[Outgoing]:
        """Send some megabytes with the stock client, have a group consume them; return them."""
        async with driver.producer("historian") as producer:
            history = numbered(HISTORY, 1200)
            expect_ok(await producer.send_async(*history))
            one_by_one = [
                *numbered(HISTORY, 20, start=len(history), tags="TagA"),
                *numbered(HISTORY, DELAYED, start=len(history) + 20, delay_level=1),
            ]
            expect_ok(await producer.send(*one_by_one))
            batch = numbered(HISTORY, 16, start=len(history) + len(one_by_one))
            expect_ok([await producer.send_batch(*batch)])
        sent = [*history, *one_by_one, *batch]
        async with driver.push_consumer("half-way", group=GROUP, topic=HISTORY) as consumer:
            await consumer.wait_received(len(sent), timeout_s=_READ_S)
        return sent

    async def load_and_kill(self, load: Load, master: Member, victim: Member) -> None:
        """Kill a broker while a master is sent to, and stop sending."""
        with trio.CancelScope() as sending:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load.send_until_gone, master)
                await trio.sleep(1)
                await victim.kill()
                sending.cancel()

    async def wait_answered_ok(self, load: Load, master: Member, *, timeout_s: float = 30) -> None:
        """Send one message after the other until one is answered SEND_OK."""

        async def is_ok() -> bool:
            try:
                return bool((await load.send(master, 1))[ResponseCode.SUCCESS])
            except RmqError:
                return False

        await wait_until("SEND_OK", is_ok, timeout_s=timeout_s)


def numbered(
    topic: str,
    count: int,
    *,
    start: int = 0,
    tags: str | None = None,
    delay_level: int | None = None,
) -> list[Outgoing]:
    """Return messages that can be told apart."""
    return [
        Outgoing(
            topic,
            f"{topic} {number} ".encode().ljust(_BODY_BYTES, b"."),
            tags=tags,
            keys=f"{topic}-{number}",
            delay_level=delay_level,
        )
        for number in range(start, start + count)
    ]


def expect_ok(sent: Iterable[Sent]) -> None:
    for answer in sent:
        expect("status of a send", answer.status, "SEND_OK")


def expect_bodies(received: Iterable[Received], sent: Iterable[Outgoing]) -> None:
    """Every message must be there, once, and nothing else."""
    got = sorted(message.body for message in received)
    wanted = sorted(message.body for message in sent)
    if got != wanted:
        raise MismatchError(_difference(got, wanted))


def expect_held(got: Collection[bytes], wanted: Collection[bytes], what: str) -> None:
    """Every message that is wanted must be there; others may, none twice."""
    if missing := set(wanted) - set(got):
        raise MismatchError(f"{len(missing)} of {len(wanted)} that were {what} are missing")
    if len(got) != len(set(got)):
        raise MismatchError(f"{len(got) - len(set(got))} of {len(got)} are there twice")


def expect_offsets_without_gap(received: Iterable[Received]) -> None:
    """The offsets of every queue must be 0, 1, 2 and so on, none twice."""
    by_queue: dict[int, list[int]] = {}
    for message in received:
        by_queue.setdefault(message.queue_id, []).append(message.queue_offset)
    for queue_id, offsets in by_queue.items():
        expect(f"offsets of queue {queue_id}", sorted(offsets), list(range(len(offsets))))


def _difference(got: list[bytes], wanted: list[bytes]) -> str:
    missing, strange = set(wanted) - set(got), set(got) - set(wanted)
    return (
        f"{len(wanted)} messages, got {len(got)}: {len(missing)} are missing"
        f" ({sorted(missing)[:1]}), {len(strange)} strange ({sorted(strange)[:1]})"
    )
