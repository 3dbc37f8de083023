"""Broadcasting: each consumer gets everything, and keeps its own offsets in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from inbox import Inbox

from interop.support.expectations import expect_once, expect_sent, numbered
from rmq.remoting.bodies import MessageModel

if TYPE_CHECKING:
    from python_session import PythonSession

PART: Final = "broadcasting"
GROUP: Final = "py-broadcast"


async def run_broadcasting_cases(session: PythonSession) -> None:
    await _everybody(session)
    await _offset_files(session)


async def _everybody(session: PythonSession) -> None:
    with session.operation(PART, "ours and a stock consumer: each gets everything"):
        await session.create_topic("PyBroadcast")
        messages = numbered("PyBroadcast", 20)
        mine = Inbox()
        folder = session.cluster.folder / "broadcasting"
        ours = session.push_consumer(
            GROUP,
            "PyBroadcast",
            mine,
            message_model=MessageModel.BROADCASTING,
            offset_folder=folder,
        )
        stock = session.driver.push_consumer(
            "broadcast", group=GROUP, topic="PyBroadcast", model="BROADCASTING"
        )
        async with ours, stock as theirs:
            expect_sent(await session.java.send(*messages[:10]))
            expect_sent(await session.send(*messages[10:]))
            expect_once(await mine.wait(20), messages)
            expect_once(await theirs.wait_received(20), messages)


async def _offset_files(session: PythonSession) -> None:
    """Both keep their offsets in one file, if they call themselves the same."""
    messages = numbered("PyOffsetFile", 30)
    options = {"group": "offset-file", "topic": "PyOffsetFile", "model": "BROADCASTING"}
    folder = session.driver.folder / ".rocketmq_offsets"

    with session.operation(PART, "ours goes on where a stock consumer's file ends"):
        await session.create_topic("PyOffsetFile")
        expect_sent(await session.java.send(*messages[:10]))
        async with session.driver.push_consumer("offset-file", **options) as stock:
            expect_once(await stock.wait_received(10), messages[:10])
            address = stock.client_id.split("@")[0]
        expect_sent(await session.java.send(*messages[10:20]))
        inbox = Inbox()
        mine = session.push_consumer(
            "offset-file",
            "PyOffsetFile",
            inbox,
            config=session.config(instance_name="offset-file", local_address=address),
            message_model=MessageModel.BROADCASTING,
            offset_folder=folder,
        )
        async with mine:
            expect_once(await inbox.wait(10), messages[10:20])

    with session.operation(PART, "a stock consumer goes on where our file ends"):
        expect_sent(await session.java.send(*messages[20:]))
        async with session.driver.push_consumer("offset-file", **options) as stock:
            expect_once(await stock.wait_received(10), messages[20:])
