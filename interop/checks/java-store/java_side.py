"""The stock side: a broker on a store directory, and what the stock client does with it."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import trio
from stored_message import from_java

from interop.support.cases import expect, expect_true
from interop.support.java import JavaProgram, last_words, running_java
from interop.support.stock import stock_broker
from interop.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from store_place import StorePlace
    from stored_message import Readings, StoredMessage

    from interop.support.stock import ServerHome

_CLIENT_TIMEOUT_S: Final = 60
_STOP_TIMEOUT_S: Final = 40
_READ_AND_WRITE: Final = 6


@dataclass
class Task:
    """One command for `java/interop/Main`."""

    command: str
    lines: Sequence[Mapping[str, object]]
    answers: list[dict[str, Any]] = field(default_factory=list, init=False)
    """Filled when it was carried out."""

    @property
    def messages(self) -> list[StoredMessage]:
        """What a reading brought."""
        return [from_java(line["message"]) for line in self.answers if "message" in line]


@dataclass(frozen=True)
class StockBroker:
    """A stock broker that runs on a store directory."""

    place: StorePlace
    process: trio.Process

    async def stop(self) -> None:
        """Have it stop as an operator would, and see that it calls that clean."""
        expect_true("an abort file while it runs", self.place.abort.exists())
        self.process.terminate()
        with trio.fail_after(_STOP_TIMEOUT_S):
            await self.process.wait()
        expect_true("no abort file after a clean stop", not self.place.abort.exists())

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()
        expect_true("an abort file after a kill", self.place.abort.exists())


@dataclass(frozen=True)
class JavaSide:
    """The stock parts of this check, with a nameserver that runs."""

    home: ServerHome
    nameserver: str
    client_classpath: Sequence[str]
    topics: Mapping[str, int]
    """The topics that brokers are to know, with their numbers of queues."""
    _numbers: Iterator[int] = field(default_factory=count)

    @asynccontextmanager
    async def broker(
        self, place: StorePlace, settings: Mapping[str, str] = MappingProxyType({})
    ) -> AsyncIterator[StockBroker]:
        """Run a broker on a store for the length of a block, at most."""
        self._write_topics(place)
        all_settings = {
            "brokerClusterName": "InteropCluster",
            "brokerName": "broker-a",
            "namesrvAddr": self.nameserver,
            "autoCreateTopicEnable": "false",
            "diskMaxUsedSpaceRatio": "95",
            **place.broker_settings(),
            **settings,
        }
        async with stock_broker(self.home, place.port, all_settings) as process:
            yield StockBroker(place, process)

    def _write_topics(self, place: StorePlace) -> None:
        path = place.root / "config" / "topics.json"
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        table = {
            topic: {
                "topicName": topic,
                "readQueueNums": queues,
                "writeQueueNums": queues,
                "perm": _READ_AND_WRITE,
                "order": False,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
            }
            for topic, queues in self.topics.items()
        }
        version = {"counter": 1, "timestamp": 1}
        path.write_text(json.dumps({"dataVersion": version, "topicConfigTable": table}))

    # ---- the client ------------------------------------------------------------------------------

    async def do(self, *tasks: Task) -> None:
        """Have the stock client carry out tasks, one after the other."""
        async with self._client(tasks) as (process, outputs, log):
            with trio.fail_after(_CLIENT_TIMEOUT_S):
                code = await process.wait()
            expect(f"exit code of the client, which said {last_words(log)}", code, 0)
        for task, output in zip(tasks, outputs, strict=True):
            task.answers = _read_lines(output)

    async def read(self, topics: Iterable[str]) -> Readings:
        """Read every message of some topics."""
        task = reading(topics)
        await self.do(task)
        return readings_of(task)

    async def send_until_killed(
        self, broker: StockBroker, lines: Sequence[Mapping[str, object]], *, acknowledged_min: int
    ) -> list[dict[str, Any]]:
        """Kill a broker while a client sends to it; return what was acknowledged until then."""
        task = Task("send-until-it-fails", lines)
        async with self._client([task]) as (process, (output,), log):

            async def enough() -> bool:
                expect(f"a client that sends; it said {last_words(log)}", process.poll(), None)
                return output.exists() and output.read_bytes().count(b"\n") >= acknowledged_min

            await wait_until("messages to be sent", enough, timeout_s=_CLIENT_TIMEOUT_S)
            await broker.kill()
            with trio.fail_after(_CLIENT_TIMEOUT_S):
                code = await process.wait()
            expect(f"exit code of the client, which said {last_words(log)}", code, 0)
            return _read_lines(output)

    @asynccontextmanager
    async def _client(
        self, tasks: Sequence[Task]
    ) -> AsyncIterator[tuple[trio.Process, list[Path], Path]]:
        folder = self.home.folder / f"client-{next(self._numbers)}"
        folder.mkdir()
        arguments = [self.nameserver]
        outputs: list[Path] = []
        for number, task in enumerate(tasks):
            given, output = folder / f"{number}-input", folder / f"{number}-output"
            given.write_text("".join(json.dumps(line) + "\n" for line in task.lines))
            arguments += (task.command, str(given), str(output))
            outputs.append(output)
        program = JavaProgram(
            main_class="interop.Main",
            arguments=arguments,
            classpath=self.client_classpath,
            home=folder,
            properties={"tls.config.file": str(folder / "none"), "file.encoding": "UTF-8"},
        )
        log = folder / "log"
        async with running_java(program, log=log) as process:
            yield process, outputs, log


def reading(topics: Iterable[str], expression: str = "*") -> Task:
    """Return the task of reading every message of some topics."""
    return Task("read", [{"topic": topic, "expression": expression} for topic in topics])


def readings_of(task: Task) -> Readings:
    """Return what a reading brought, by queue; queues without messages are there, too."""
    readings: Readings = {}
    for line in task.answers:
        if "queue" in line:
            bounds = line["queue"]
            messages = readings.setdefault((bounds["topic"], bounds["queueId"]), [])
        else:
            messages.append(from_java(line["message"]))
    for line in task.answers:
        if "queue" in line:
            bounds = line["queue"]
            got = readings[bounds["topic"], bounds["queueId"]]
            offsets = [message.queue_offset for message in got]
            expect(f"offsets of {bounds}", offsets, list(range(bounds["min"], bounds["max"])))
    return readings


def count_acknowledged(answers: Iterable[Mapping[str, Any]]) -> int:
    """Return how many messages the answers to sending acknowledge; all must be stored well."""
    total = 0
    for answer in answers:
        expect("status of a send", answer["status"], "SEND_OK")
        total += answer["count"]
    return total


def _read_lines(path: Path) -> list[dict[str, Any]]:
    # Not splitlines: texts may hold other characters that count as the end of a line.
    return [json.loads(line) for line in path.read_text().split("\n") if line]
