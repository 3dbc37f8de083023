"""The other pipelines on the workers of a cluster: what each finds, and its exit codes."""

from __future__ import annotations

import shutil
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from archive_cases import need_archive
from cluster_session import TOPICS
from formats_cases import expect_both

from interop.support.cases import expect, expect_true
from interop.support.spark import flip_a_bit
from interop.support.topics import create_topics
from interop.support.waiting import wait_until
from rmq.client.blocking import BlockingAdmin, BlockingConsumer, BlockingProducer
from rmq.client.core.flows import ask
from rmq.client.core.messages import Message
from rmq.errors import NoRouteError
from rmq.model.names import dlq_topic
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import ConsumerSendMsgBackRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster_session import ClusterSession

PART: Final = "pipelines"
SLOW: Final = "slow"
LAG: Final = 700
"""Of the group `SLOW`."""
MAIL: Final = "Mail"
LETTERS: Final[Mapping[str, int]] = {"billing": 5, "shipping": 3}
"""By group, how many messages of topic `MAIL` it has given up."""
AGAIN: Final = "Again"
DEAD_LEVEL: Final = -1
"""The delay level at which a message that is sent back is dead at once."""
CASE_S: Final = 240
GROWTH_S: Final = 300
"""So long after the first message there are the three whole minutes that a growth takes."""


async def run_verdict_cases(session: ClusterSession) -> None:
    await create_topics(session.cluster, session.master, {MAIL: 2, AGAIN: 2})
    await _report(session)
    await _dead_letters(session)
    await _duplicates(session)
    await _replay(session)
    await _verify(session)
    await _forecast(session)


async def _report(session: ClusterSession) -> None:
    await trio.to_thread.run_sync(_fall_behind, session)
    arguments = ("-n", session.nameserver, "--topic", ",".join(TOPICS))
    out = session.table("report")

    with session.operation(PART, "report: messages, and the lag of a group: exit code 0") as case:
        done = await session.submit("report", *arguments, "--out", str(out))
        done.expect("holds")
        expect("messages", done.result["records"], session.ledger.total())
        lags = {each["group"]: each["lag"] for each in done.result["facts"]["groups"]}
        expect("lag", lags, {SLOW: LAG})
        expect_true("a page", (out / "report.html").is_file())
        case.note(expect_both(done))

    with session.operation(PART, "report: a limit that is exceeded: exit code 1"):
        limit = ("--max-lag", str(LAG - 1))
        done = await session.submit("report", *arguments, *limit, "--out", str(out))
        done.expect("fails")
        (finding,) = done.result["findings"]
        expect("group and lag", (finding["group"], finding["lag"]), (SLOW, LAG))


async def _dead_letters(session: ClusterSession) -> None:
    await trio.to_thread.run_sync(_bury, session)
    await wait_until("dead letters", partial(_are_dead, session), timeout_s=60)
    out = session.table("dlq")
    arguments = ("-n", session.nameserver, "--out", str(out))
    letters = sum(LETTERS.values())

    with session.operation(PART, "dlq: dead letters of two groups: exit code 1") as case:
        done = await session.submit("dlq", *arguments)
        done.expect("fails")
        told: Counter[str] = Counter()
        for each in done.result["findings"]:
            told[each["group"]] += each["open"]
        expect("dead letters", told, LETTERS)
        expect_true("a page", (out / "dlq.html").is_file())
        case.note(expect_both(done))

    with session.operation(PART, "dlq --redrive: each is sent again, once: exit code 0") as case:
        done = await session.submit("dlq", *arguments, "--redrive", "--all")
        done.expect("holds")
        expect("redriven", done.result["facts"]["redriven"], letters)
        mail = await trio.to_thread.run_sync(session.read, MAIL)
        expect("copies of each", set(Counter(mail.values()).values()), {2})
        expect("messages", len(mail), 2 * letters)
        case.note(expect_both(done))


async def _duplicates(session: ClusterSession) -> None:
    arguments = ("-n", session.nameserver, "--topic")

    with session.operation(PART, "duplicates: each message once: exit code 0") as case:
        done = await session.submit("duplicates", *arguments, ",".join(TOPICS))
        done.expect("holds")
        expect("messages", done.result["records"], session.ledger.total())
        case.note(expect_both(done))

    with session.operation(PART, "duplicates: what was redriven: exit code 1") as case:
        done = await session.submit("duplicates", *arguments, MAIL)
        done.expect("fails")
        causes = done.result["facts"]["extra_copies_by_cause"]
        expect("copies", causes, {"redrive": sum(LETTERS.values())})
        case.note(expect_both(done))


async def _replay(session: ClusterSession) -> None:
    await need_archive(session)
    with session.operation(PART, "replay: a topic of the archive: exit code 0") as case:
        done = await session.submit(
            "replay",
            *("-n", session.nameserver, "--from", str(session.folder / "archive")),
            *("--source-topic", "Payments", "--topic", AGAIN),
        )
        done.expect("holds")
        expect("messages", done.result["facts"]["found"], session.ledger["Payments"])
        bodies = [
            sorted((await trio.to_thread.run_sync(session.read, topic)).values())
            for topic in ("Payments", AGAIN)
        ]
        expect("the same bodies", bodies[0] == bodies[1], True)
        case.note(f"{len(bodies[1])} messages; {expect_both(done)}")


async def _verify(session: ClusterSession) -> None:
    with session.operation(PART, "verify: the store of the running master: exit code 0") as case:
        done = await session.submit("verify", "--store", str(session.master.folder / "store"))
        done.expect("holds")
        expect_true("all messages", done.result["records"] >= session.ledger.total())
        case.note(f"{done.result['records']} records; {expect_both(done)}")

    with session.operation(PART, "verify: one flipped bit is found: exit code 1") as case:
        await session.wait_copied()
        copy = session.table("verified")
        shutil.copytree(session.slave.folder / "store", copy)
        offset = flip_a_bit(copy)
        done = await session.submit("verify", "--store", str(copy))
        done.expect("fails")
        errors = [each for each in done.result["findings"] if each["severity"] == "error"]
        told = [(each["kind"], each["physical_offset"]) for each in errors]
        expect("errors", told, [("record", offset)])
        case.note(f"physical offset {offset}; {expect_both(done)}")


async def _forecast(session: ClusterSession) -> None:
    with session.operation(PART, "forecast: too little history: exit code 2"):
        done = await session.submit(
            "forecast",
            *("--history", str(session.table("report")), "--capacity", "900G"),
            *("--out", str(session.table("forecast-of-history"))),
        )
        done.expect("unknown")
        expect_true(f"why in {done.result['verdict']}", "too little history" in done.output)

    with session.operation(
        PART, "forecast: from what brokers tell: exit code 0", timeout_s=CASE_S + GROWTH_S
    ) as case:
        await trio.sleep_until(session.filled_at + GROWTH_S)
        out = session.table("forecast")
        done = await session.submit(
            "forecast", "-n", session.nameserver, "--capacity", "900G", "--out", str(out)
        )
        done.expect("holds")
        growing = {each["topic"] for each in done.result["facts"]["topics"]}
        expect_true(f"topics among {growing}", growing >= {*TOPICS})
        expect_true("a page", (out / "forecast.html").is_file())
        case.note(expect_both(done))


def _fall_behind(session: ClusterSession) -> None:
    """Have a group read all of a topic but the last messages of one queue."""
    with BlockingConsumer(session.nameserver, SLOW) as consumer:
        ends = consumer.end_offsets(consumer.queues("Orders"))
        first = min(ends)
        consumer.commit({**ends, first: ends[first] - LAG})


def _bury(session: ClusterSession) -> None:
    """Send messages, and send each back for a group that has given it up."""
    with (
        BlockingProducer(session.nameserver, "writers") as producer,
        BlockingAdmin(session.nameserver) as admin,
        BlockingConsumer(session.nameserver, "readers") as consumer,
    ):
        for group, letters in LETTERS.items():
            admin.create_group(group, broker=session.master.address)
            for number in range(letters):
                sent = producer.send(Message(MAIL, f"{group} {number}".encode()))
                at = sent.queue_offset
                (message,) = consumer.read_range(sent.queue, at, at + 1)
                header = ConsumerSendMsgBackRequest(
                    offset=message.physical_offset, group=group, delay_level=DEAD_LEVEL
                )
                flow = ask(session.master.address, RequestCode.CONSUMER_SEND_MSG_BACK, header)
                admin.run(flow)


async def _are_dead(session: ClusterSession) -> bool:
    def found() -> dict[str, int]:
        return {group: len(session.read(dlq_topic(group))) for group in LETTERS}

    try:
        return await trio.to_thread.run_sync(found) == LETTERS
    except NoRouteError:
        # The nameserver has not heard of the topic yet.
        return False
