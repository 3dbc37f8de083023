"""Commands that move the offsets of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from interop.support.cases import expect
from interop.support.java_messages import Outgoing
from interop.support.mqadmin import expect_in
from interop.support.printed import table

if TYPE_CHECKING:
    from interop.checks.mqadmin.admin_session import AdminSession

REWOUND: Final = "Rewound"
OFFLINE: Final = "rewound-offline"
ONLINE: Final = "rewound-online"
COPY: Final = "rewound-copy"
PAUSE_S: Final = 0.05
# A client that is told to go back forgets everything, waits 10 s and begins again.
RESET_WITHIN_S: Final = 40


async def run_offset_commands(session: AdminSession) -> None:
    (queue,) = await session.create_topic(REWOUND, queues=1)
    for n in range(8):
        await session.producer.send(Outgoing(REWOUND, f"rewound {n}".encode()))
        await trio.sleep(PAUSE_S)
    stored = await session.reader.read_queue(queue, count=8)
    await session.consume_all(OFFLINE, REWOUND, 8)
    await session.consume_all(ONLINE, REWOUND, 8)
    name = session.broker.name

    with session.operation("resetOffsetByTime", "a group that is offline, to a time"):
        output = await session.mqadmin(
            "resetOffsetByTime", "-g", OFFLINE, "-t", REWOUND, "-s", str(stored[5].store_ms)
        )
        first, *rows = table(output, columns=6)
        expect_in("rollback consumer offset by specified", " ".join(first))
        expect("queue", [row[:6] for row in rows], [[name, "0", "8", "8", "5", "5"]])
        expect("offset", await session.progress(OFFLINE, REWOUND), {0: (8, 5)})

    with session.operation("cloneGroupOffset", "offsets of one group for another"):
        output = await session.mqadmin("cloneGroupOffset", "-s", OFFLINE, "-d", COPY, "-t", REWOUND)
        expect_in(f"clone group offset success. srcGroup[{OFFLINE}], destGroup=[{COPY}]", output)
        async with session.driver.pull_consumer("copy", group=COPY) as copy:
            expect("offset", await copy.committed(queue), 5)

    with session.operation("resetOffsetByTime", "a group that is offline, consumed again"):
        async with session.driver.push_consumer("again", group=OFFLINE, topic=REWOUND) as again:
            got = await again.wait_received(3)
            expect("bodies", {m.body for m in got}, {m.body for m in stored[5:]})

    with session.operation("skipAccumulatedMessage", "a group that is offline"):
        await session.mqadmin("resetOffsetByTime", "-g", OFFLINE, "-t", REWOUND, "-s", "0")
        expect("before", await session.progress(OFFLINE, REWOUND), {0: (8, 0)})
        output = await session.mqadmin("skipAccumulatedMessage", "-g", OFFLINE, "-t", REWOUND)
        expect("queue", table(output, columns=6), [[name, "0", "8", "0", "8", "8"]])
        expect("after", await session.progress(OFFLINE, REWOUND), {0: (8, 8)})

    async with session.driver.push_consumer("online", group=ONLINE, topic=REWOUND) as online:
        with session.operation("resetOffsetByTime", "a group that is online, consumed again"):
            output = await session.mqadmin(
                "resetOffsetByTime", "-g", ONLINE, "-t", REWOUND, "-s", str(stored[2].store_ms)
            )
            expect("queue", table(output, columns=3)[-1], [name, "0", "2"])
            got = await online.wait_received(6, timeout_s=RESET_WITHIN_S)
            expect("bodies", {m.body for m in got}, {m.body for m in stored[2:]})

        with session.operation("skipAccumulatedMessage", "a group that is online"):
            output = await session.mqadmin("skipAccumulatedMessage", "-g", ONLINE, "-t", REWOUND)
            expect("queue", table(output, columns=3), [[name, "0", "8"]])

    with session.operation("resetOffsetByTime", "an unknown group"):
        reason = await session.refused(
            "resetOffsetByTime", "-g", "strangers", "-t", REWOUND, "-s", "0"
        )
        expect_in("CODE: 1  DESC: THe consumer group <strangers> not exist", reason)
