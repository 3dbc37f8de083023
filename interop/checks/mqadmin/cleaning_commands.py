"""Commands that clean up: what they delete, and what they leave."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING, Final

from interop.support.cases import expect
from interop.support.cluster import CLUSTER
from interop.support.java_messages import Outgoing
from interop.support.mqadmin import expect_in
from interop.support.printed import runtime_values, table
from interop.support.waiting import wait_until

if TYPE_CHECKING:
    from interop.checks.mqadmin.admin_session import AdminSession
    from interop.support.java_messages import Sent

OLD: Final = "Old"
NEW: Final = "New"
FILLER_BYTES: Final = 200_000
FILLER_COUNT: Final = 20
OLD_S: Final = 7 * 24 * 3600
# The stock broker looks for the first time a minute after its start.
DELETED_WITHIN_S: Final = 90


async def run_cleaning_commands(session: AdminSession) -> None:
    """Run this last: old messages of all topics are gone afterwards."""
    noise = random.Random(7)
    await session.create_topic(OLD, queues=1)
    await session.create_topic(NEW, queues=1)
    (old,) = await session.producer.send(Outgoing(OLD, b"old"))
    filler = [Outgoing(NEW, noise.randbytes(FILLER_BYTES)) for _ in range(FILLER_COUNT)]
    await session.producer.send(*filler)
    (new,) = await session.producer.send(Outgoing(NEW, b"new"))

    with session.operation("cleanUnusedTopic", "nothing that is in use is lost"):
        address = session.broker.address
        expect("printed", (await session.mqadmin("cleanUnusedTopic", "-b", address)), "success")
        expect("printed", (await session.mqadmin("cleanUnusedTopic", "-c", CLUSTER)), "success")
        expect("old", await _bounds(session, OLD), ("0", "1"))
        expect("new", await _bounds(session, NEW), ("0", str(FILLER_COUNT + 1)))

    with session.operation("cleanExpiredCQ", "nothing has expired"):
        expect("printed", (await session.mqadmin("cleanExpiredCQ", "-c", CLUSTER)), "success")
        expect("old", await _bounds(session, OLD), ("0", "1"))

    with session.operation("deleteExpiredCommitLog", "files", timeout_s=DELETED_WITHIN_S + 10):
        _make_old(session)
        output = await session.mqadmin("deleteExpiredCommitLog", "-b", address)
        expect("printed", output, "success")
        await _wait_deleted(session, old)
        reason = await session.refused("queryMsgById", "-i", old.offset_message_id)
        expect_in("CODE: 1 ", reason)
        found = await session.producer.view(new.offset_message_id)
        expect("what is new", found.body, b"new")

    with session.operation("cleanExpiredCQ", "queues whose messages are gone"):
        expect("printed", (await session.mqadmin("cleanExpiredCQ", "-b", address)), "success")
        expect("old", await _bounds(session, OLD), ("0", "0"))
        expect("end of the new one", (await _bounds(session, NEW))[1], str(FILLER_COUNT + 1))


def _make_old(session: AdminSession) -> None:
    """Have all files but the one in use look as if they were of last week."""
    *full, _ = sorted((session.broker.folder / "store" / "commitlog").iterdir())
    long_ago = time.time() - OLD_S
    for path in full:
        os.utime(path, (long_ago, long_ago))


async def _wait_deleted(session: AdminSession, sent: Sent) -> None:
    physical_offset = int(sent.offset_message_id[16:], 16)

    async def deleted() -> bool:
        output = await session.mqadmin("brokerStatus", "-b", session.broker.address)
        return int(runtime_values(output)["commitLogMinOffset"]) > physical_offset

    await wait_until("old files to be deleted", deleted, timeout_s=DELETED_WITHIN_S)


async def _bounds(session: AdminSession, topic: str) -> tuple[str, str]:
    ((_, _, low, high, *_),) = table(await session.mqadmin("topicStatus", "-t", topic), columns=5)
    return low, high
