"""Logs of a master and a slave, small enough to damage every byte of them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.model.record_layout import BLANK_BYTES, BLANK_MAGIC, RECORD_PREFIX
from rmq.spark.jobs.audit.compare import compare_stretches
from rmq.spark.jobs.audit.ends import look_at, open_pair
from rmq.spark.jobs.audit.naming import Task, name_differences
from rmq.spark.jobs.audit.plan import Plan, by_segment, make_plan, merged, stretches
from rmq.store.segments import segment_name
from tests.store.built_records import build_record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rmq.spark.jobs.audit.naming import Row
    from rmq.spark.jobs.audit.plan import Range

SEGMENT_BYTES: Final = 4096


@dataclass(frozen=True)
class Placed:
    """A record of a built log."""

    offset: int
    size: int
    number: int


def write_log(
    root: Path, numbers: Iterable[int], *, start: int = 0, constant_body: bool = False
) -> list[Placed]:
    """Write a log that holds records with these numbers; the queue offset is the number."""
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    placed: list[Placed] = []
    segment = bytearray()
    first = start
    for number in numbers:
        body = b"x" * 200 if constant_body else f"{number} ".encode() * (10 + number % 7)
        key = f"UNIQ_KEY\x01K{number:06d}\x02"
        record = b""
        for _ in range(2):
            record = build_record(
                body=body,
                topic=b"Orders",
                properties=key.encode(),
                queue_id=number % 4,
                queue_offset=number // 4,
                physical_offset=first + len(segment),
                store_ms=1_700_000_000_000 + number,
            )
            if len(segment) + len(record) + BLANK_BYTES <= SEGMENT_BYTES:
                break
            room = SEGMENT_BYTES - len(segment)
            segment += RECORD_PREFIX.pack(room, BLANK_MAGIC) + bytes(room - BLANK_BYTES)
            (folder / segment_name(first)).write_bytes(segment)
            first += SEGMENT_BYTES
            segment = bytearray()
        placed.append(Placed(first + len(segment), len(record), number))
        segment += record
    segment += bytes(SEGMENT_BYTES - len(segment))
    (folder / segment_name(first)).write_bytes(segment)
    return placed


def copy_log(master: Path, slave: Path) -> None:
    """Make the slave a copy of the master."""
    if slave.exists():
        shutil.rmtree(slave)
    shutil.copytree(master, slave)


def overwrite(root: Path, offset: int, data: bytes) -> None:
    """Write bytes at a physical offset."""
    first = offset - offset % SEGMENT_BYTES
    with (root / "commitlog" / segment_name(first)).open("r+b") as file:
        file.seek(offset - first)
        file.write(data)


def read(root: Path, offset: int, size: int) -> bytes:
    """Read bytes at a physical offset."""
    first = offset - offset % SEGMENT_BYTES
    content = (root / "commitlog" / segment_name(first)).read_bytes()
    return content[offset - first : offset - first + size]


def flip(root: Path, offset: int, bit: int = 0) -> None:
    """Flip one bit."""
    overwrite(root, offset, bytes([read(root, offset, 1)[0] ^ (1 << bit)]))


def audit(master: Path, slave: Path) -> tuple[Plan, list[Range], list[Row]]:
    """Do what the tasks of the pipeline do, in this process."""
    readers = open_pair(master, slave, None, None)
    with readers[0], readers[1]:
        ends = look_at(*readers)
    plan = make_plan(*ends)
    folders = (master / "commitlog", slave / "commitlog")
    parts = stretches(plan.compared, plan.segment_bytes, 1000)
    runs = [run for each in compare_stretches(parts, *folders) for run in each.runs]
    runs = merged([*runs, plan.beyond])
    tasks = [Task(first, tuple(each)) for first, each in by_segment(runs, SEGMENT_BYTES).items()]
    named = name_differences(
        tasks, (folders[0], ends[0].end), (folders[1], ends[1].end), plan.segment_bytes
    )
    return plan, runs, list(named)
