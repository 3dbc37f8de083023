"""statsAll: what went in and out of a topic, as brokers count it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from interop.support.cases import expect_true
from interop.support.java_messages import Outgoing
from interop.support.printed import table
from interop.support.waiting import wait_until

if TYPE_CHECKING:
    from interop.checks.mqadmin.admin_session import AdminSession

STATS: Final = "Stats"
COUNTED: Final = "counted"
COUNT: Final = 10
# Brokers read their counters every 10 s.
READ_WITHIN_S: Final = 25


async def run_statistics_commands(session: AdminSession) -> None:
    await session.create_topic(STATS)
    await session.producer.send(*(Outgoing(STATS, b"counted") for _ in range(COUNT)))
    await session.consume_all(COUNTED, STATS, COUNT)

    with session.operation("statsAll", "messages in and out of a topic"):
        row: list[str] = []

        async def read() -> bool:
            nonlocal row
            (row,) = table(await session.mqadmin("statsAll", "-t", STATS), columns=7)
            return row[5:] == [str(COUNT)] * 2

        await wait_until(f"{COUNT} in and out", read, timeout_s=READ_WITHIN_S)
        expect_true(f"the topic and its group, not {row}", row[:3] == [STATS, COUNTED, "0"])
        expect_true(f"rates, not {row}", float(row[3]) > 0 and float(row[4]) > 0)

    with session.operation("statsAll", "active topics only"):
        rows = table(await session.mqadmin("statsAll", "-a"), columns=7)
        expect_true("the topic", any(row[:2] == [STATS, COUNTED] for row in rows))
        expect_true("no idle one", not any(row[0] == "OFFSET_MOVED_EVENT" for row in rows))
