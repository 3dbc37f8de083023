"""The page docs/runbooks/from-java.md, followed as it is written, under the load of a stock client.

A stock master (4.9.7) with stock nameservers, a producer of the stock client 4.9.8 with default
settings that sends all the time, a slave of rmq that takes the master's place, and back.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import java_units
import trio

from interop.support.cases import expect, expect_true, say
from interop.support.check import run_check
from interop.support.java import clean_environment, fetch_jars, need_java_tools
from interop.support.java_client import DriverKit
from interop.support.results import Operations
from tests.ha.processes.rounds_account import OK
from tests.runbooks.site import running_site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from interop.support.cases import CaseTable
    from tests.runbooks.site import Ran, Site

PEER: Final = "Java master 4.9.7, moved to rmq and back"
PART: Final = "from-java.md"
TOPIC: Final = "broker-a"
"""It is there from the start, on either side, and on one name."""
SHARED_TOPIC: Final = "Orders"
"""The page creates it on two names."""
THREADS: Final = 8
TIMEOUT_S: Final = 400
FLOW_S: Final = 60.0
"""How long a stock producer may take to find a new master."""
SLOW: Final = {
    "haSendHeartbeatInterval": "1000",
    "haHousekeepingInterval": "20000",
    "haMaxTimeSlaveNotCatchup": "15000",
    "slaveTimeout": "3000",
}
_CONF: Final = """\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
brokerRole=ASYNC_MASTER
autoCreateTopicEnable=false
"""
_SERVERS_POM: Final = Path(__file__).resolve().parent.parent / "java-servers" / "pom.xml"


class Answer:
    """One line of SteadyProducer.java."""

    def __init__(self, line: str) -> None:
        nanoseconds, self.status, rest = line.split(" ", 2)
        self.at = int(nanoseconds) / 1e9
        self.body = rest


class Flow:
    """The stock producer, and what it was answered."""

    def __init__(self, topic: str, output: Path) -> None:
        self.topic = topic
        self._output = output

    def answers(self) -> list[Answer]:
        lines = self._output.read_text().splitlines()
        return [Answer(line) for line in lines if line.count(" ") >= 3]

    def wait_ok(self) -> None:
        """Wait until more is answered SEND_OK."""
        begun, deadline = time.monotonic(), time.monotonic() + FLOW_S
        while not any(each.status == OK and each.at > begun for each in self.answers()[-THREADS:]):
            expect_true("SEND_OK for the stock producer", time.monotonic() < deadline)
            time.sleep(0.1)

    def longest_without_ok_s(self, since: float) -> float:
        times = sorted(each.at for each in self.answers() if each.status == OK)
        gaps = (later - one for one, later in pairwise(times) if later > since)
        return max(gaps, default=0.0)


@contextmanager
def flowing(kit: DriverKit, nameservers: str, topic: str, folder: Path) -> Iterator[Flow]:
    """Have the stock client send to a topic for the length of a block."""
    program = kit.program("interop.SteadyProducer", (nameservers, topic, str(THREADS)))
    output = folder / f"{topic}.answers"
    with output.open("wb") as out, (folder / f"{topic}.log").open("wb") as log:
        process = subprocess.Popen(
            program.command(),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=log,
            env={**clean_environment(), **program.environment},
            cwd=program.folder,
        )
    try:
        yield Flow(topic, output)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(FLOW_S)
    finally:
        process.kill()
        process.wait()


async def follow(operations: Operations, kit: DriverKit, jars: Path, folder: Path) -> None:
    """Follow the page, and see that nothing is lost."""
    in_thread = trio.to_thread.run_sync
    with running_site(folder) as site:
        await in_thread(_prepare, site, kit, jars)
        with operations.operation(PART, "a second name, and a topic on both"):
            await in_thread(site.follow, "from-java.md", "A second name")
        with (
            flowing(kit, site.nameservers, TOPIC, folder) as flow,
            flowing(kit, site.nameservers, SHARED_TOPIC, folder) as shared,
        ):
            with operations.operation(PART, "a slave of rmq copies a Java master under load"):
                await in_thread(flow.wait_ok)
                await in_thread(shared.wait_ok)
                await in_thread(site.follow, "from-java.md", "Copy")
            async with _timed(operations, "to rmq", site, flow):
                await in_thread(site.follow, "from-java.md", "Take over")
            async with _timed(operations, "back to Java", site, flow):
                await in_thread(site.follow, "from-java.md", "Back to Java")
        for each, name in ((flow, "topic on one name"), (shared, "topic on two names")):
            with operations.operation(PART, f"0 messages lost, {name}") as case:
                sent = {answer.body for answer in each.answers() if answer.status == OK}
                kept = await in_thread(site.consumed, "10.0.0.1", each.topic)
                case.note(f"{len(sent)} sent, {len(sent - kept)} lost")
                expect_true(f"none of {len(sent)} lost, {len(sent - kept)} are", sent <= kept)
        with operations.operation(PART, "no send failed, topic on two names"):
            statuses = Counter(answer.status for answer in shared.answers())
            expect("answers", set(statuses) - {OK, "SLAVE_NOT_AVAILABLE"}, set())


@asynccontextmanager
async def _timed(operations: Operations, name: str, site: Site, flow: Flow) -> AsyncIterator[None]:
    """Try a change of sides, and measure it."""
    with operations.operation(PART, f"{name}: every step as written", timeout_s=120) as case:
        begun = time.monotonic()
        site.ran.clear()
        yield
        await trio.to_thread.run_sync(flow.wait_ok)
        case.note(
            f"{_without_master_s(site.ran):.1f} s without a master,"
            f" {flow.longest_without_ok_s(begun):.1f} s without SEND_OK at the producer"
        )


def _without_master_s(ran: list[Ran]) -> float:
    """Return how long it was from the stop of one master until the next one was there."""
    stopped = next(each.began for each in ran if "systemctl disable" in each.line)
    replaced = next(
        each.ended for each in ran if " promote " in each.line or "restart" in each.line
    )
    return replaced - stopped


def _prepare(site: Site, kit: DriverKit, jars: Path) -> None:
    site.handlers["mqadmin"] = java_units.mqadmin(kit, site.nameservers)
    # A stock broker is silent for longer than the quick settings allow.
    site.machines["10.0.0.2"].settings.update(SLOW)
    conf = site.machines["10.0.0.1"].path("etc/rocketmq/broker.conf")
    conf.write_text(f"{_CONF}namesrvAddr={site.nameservers}\n")
    site.systemctl.makers[java_units.BROKER] = lambda machine: java_units.make_broker(
        machine, jars, machine.path("etc/rocketmq/broker.conf")
    )
    site.systemctl.makers[java_units.NAMESERVER] = lambda machine: java_units.make_nameserver(
        machine, jars
    )
    for machine in site.machines:
        site.do(machine, f"systemctl start {java_units.NAMESERVER}")
    site.do("10.0.0.1", f"systemctl start {java_units.BROKER}")


async def main(table: CaseTable, folder: Path) -> None:
    await need_java_tools()
    jars = await fetch_jars(_SERVERS_POM)
    say("compiling what the stock client is to do ...")
    kit = await DriverKit.prepare(folder)
    operations = Operations(table, PEER)
    await follow(operations, kit, jars, folder)


if __name__ == "__main__":
    sys.exit(run_check(main, timeout_s=TIMEOUT_S))
