"""What servers under fuzz leave on disk: whether it can be read, and nothing is lost."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

import trio

from rmq.broker.broker import serve_broker
from rmq.broker.tables.groups import BUILT_IN_GROUPS
from rmq.broker.tables.saved import Tables
from rmq.nameserver.config import load_nameserver_config
from rmq.nameserver.kv_keeper import KvKeeper
from rmq.remoting.client import open_client
from rmq.store.config import parse_delay_levels
from rmq.store.reader import Reader
from rmq.store.verify import Verifier
from rmq.store.verify.finding import Kind, Severity
from tests.fuzz.servers.probe import TOPIC, verify_ledger
from tests.fuzz.servers.rig import DELAY_LEVELS, HOST, broker_config, entries_of
from tests.fuzz.servers.watch import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rmq.broker.broker import Broker
    from tests.fuzz.servers.probe import Probe
    from tests.fuzz.servers.rig import Rig
    from tests.fuzz.servers.watch import Note

Entries = dict[tuple[str, int], list[tuple[int, int, int] | None]]


def copy_files(folder: Path) -> Path:
    """Return a copy of all files as they are now: what is left when a process is killed."""
    copy = folder.with_name(folder.name + "-killed")
    shutil.copytree(folder, copy)
    return copy


async def check_files(folder: Path, rig: Rig, note: Note) -> None:
    """Read everything but the log again."""
    try:
        load_nameserver_config(folder / "namesrv.conf", environ={})
        await KvKeeper(folder / "kvConfig.json").load()
        tables = Tables(broker_config(folder, None, {}, 0).current, rig.broker._now_ms)
        tables.load()
    except Exception as exc:  # noqa: BLE001 - any kind is what is looked for
        note(f"a file cannot be read again: {kind_of(exc)}", str(exc))
        return
    broker = rig.broker
    _compare("topics", dict(broker.topics.items()), dict(tables.topics.items()), note)
    _compare("groups", dict(broker.groups.items()), dict(tables.groups.items()), note)
    _compare(
        "offsets",
        broker.offsets.to_body().offset_table,
        tables.offsets.to_body().offset_table,
        note,
    )


def _compare(
    name: str, before: Mapping[str, object], after: Mapping[str, object], note: Note
) -> None:
    rows = [
        repr(key)
        for key in {**before, **after}
        # What is built in comes back with a restart.
        if before.get(key) != after.get(key) and not (key in BUILT_IN_GROUPS and key in after)
    ]
    if rows:
        note(f"the file of {name} has another content", ", ".join(rows))


def check_store(folder: Path, note: Note) -> None:
    """Check every record, entry and key of a store."""
    with Reader(folder / "store") as reader:
        levels = parse_delay_levels(DELAY_LEVELS)
        for finding in Verifier(reader, delay_levels_ms=levels).run():
            # The records of a topic that was deleted and made again are told from new ones by
            # nothing but that they have no entries.
            is_lasting = finding.kind is not Kind.QUEUE or f"/{TOPIC}/" in finding.path
            if finding.severity is Severity.ERROR and is_lasting:
                note(f"the store is not sound: {finding.kind.value}", str(finding))


class Promised(NamedTuple):
    """What a broker has acknowledged."""

    ledger: dict[int, tuple[int, int]]
    """All messages, as in `Answers`."""
    sent: list[list[bytes]]
    """The messages of the probe by queue."""
    entries: Entries
    """Those of all queues."""


def promised(rig: Rig, probe: Probe) -> Promised:
    """Return what was acknowledged so far."""
    sent = [list(bodies) for bodies in probe.sent]
    return Promised(dict(rig.answers.ledger), sent, entries_of(rig.broker))


async def open_again(folder: Path, promised: Promised, note: Note, when: str) -> None:
    """Start a broker on what was left, and look for everything that was acknowledged."""
    live = broker_config(folder, None, {}, 0)
    async with trio.open_nursery() as nursery, open_client() as client:
        broker: Broker = await nursery.start(serve_broker, live)
        now = entries_of(broker)
        for key, before in promised.entries.items():
            if now.get(key, [])[: len(before)] != before:
                note(
                    f"a queue has other entries {when}",
                    f"{key}: {len(before)} entries from {before[:3]} became"
                    f" {len(now.get(key, []))} from {now.get(key, [])[:3]}",
                )
        address = f"{HOST}:{broker.server.port}"
        await verify_ledger(client, address, promised.ledger, promised.sent, note, when)
        broker.stop()
