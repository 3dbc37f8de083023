"""`rmq pipeline archive` on the workers of a cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pyarrow.dataset as ds
import trio
from cluster_session import TOPICS
from formats_cases import expect_both

from interop.support.cases import expect

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cluster_session import ClusterSession
    from standalone import Submitted

PART: Final = "archive"
MORE: Final[Mapping[str, int]] = {"Orders": 1000, "Payments": 200}


async def run_archive_cases(session: ClusterSession) -> None:
    out = session.folder / "archive"
    await need_archive(session)
    await run_archive_again(session)

    with session.operation(PART, "run again, there is nothing new"):
        done = await _submit(session, out)
        expect("new messages", done.result["records"], 0)
        expect("messages", done.result["facts"]["messages"], session.ledger.total())

    with session.operation(PART, "its files hold what our client reads, each message once") as case:
        archived = await trio.to_thread.run_sync(_archived, out)
        wanted = {
            (topic, *place): body
            for topic in TOPICS
            for place, body in (await trio.to_thread.run_sync(session.read, topic)).items()
        }
        expect("messages", len(archived), len(wanted))
        expect("places and bodies", dict(archived) == wanted, True)
        case.note(f"{len(archived)} messages")

    with session.operation(PART, "the manifest: first and last offset and count of every queue"):
        manifest = json.loads(await trio.Path(out / "manifest.json").read_text())
        told = {
            (each["topic"], each["broker_name"], each["queue_id"]): (
                each["first"],
                each["last"],
                each["count"],
            )
            for each in manifest["queues"]
        }
        expect("queues", told, await trio.to_thread.run_sync(_filled_queues, session))

    with session.operation(PART, "from the store of the slave: the same messages") as case:
        copy = session.table("from-store")
        store = session.slave.folder / "store"
        done = await session.submit(
            "archive",
            *("--from-store", str(store), "--broker-name", session.slave.name),
            *("--topic", ",".join(TOPICS), "--out", str(copy)),
        )
        done.expect("holds")
        stored = await trio.to_thread.run_sync(_archived, copy)
        expect("messages", len(stored), len(archived))
        expect("places and bodies", dict(stored) == dict(archived), True)
        case.note(expect_both(done))


async def need_archive(session: ClusterSession) -> None:
    """Archive everything, unless that is done: parts can be run alone."""
    if not (session.folder / "archive").exists():
        await _archive(session, "what there is, each message once", session.ledger.total())


async def run_archive_again(session: ClusterSession) -> None:
    """Send some more and archive again."""
    await session.fill(MORE)
    await _archive(session, "run again, it adds what is new", sum(MORE.values()))


async def _archive(session: ClusterSession, name: str, new: int) -> None:
    with session.operation(PART, name) as case:
        done = await _submit(session, session.folder / "archive")
        expect("new messages", done.result["records"], new)
        expect("messages", done.result["facts"]["messages"], session.ledger.total())
        case.note(f"{new} messages; {expect_both(done)}")


async def _submit(session: ClusterSession, out: Path) -> Submitted:
    done = await session.submit(
        "archive", "-n", session.nameserver, "--topic", ",".join(TOPICS), "--out", str(out)
    )
    done.expect("holds")
    return done


def _filled_queues(session: ClusterSession) -> dict[tuple[str, str, int], tuple[int, int, int]]:
    """Return the first and last offset and the number of messages of queues that have some."""
    found: dict[tuple[str, str, int], list[int]] = {}
    for topic in TOPICS:
        for queue_id, offset in session.read(topic):
            found.setdefault((topic, session.master.name, queue_id), []).append(offset)
    return {queue: (min(all_), max(all_), len(all_)) for queue, all_ in found.items()}


def _archived(out: Path) -> list[tuple[tuple[str, int, int], bytes]]:
    """Return what the files of an archive hold, with their places, read without Spark."""
    table = ds.dataset(out / "data", partitioning="hive").to_table(
        columns=["topic", "queueId", "queueOffset", "body"]
    )
    return [
        ((row["topic"], row["queueId"], row["queueOffset"]), row["body"])
        for row in table.to_pylist()
    ]
