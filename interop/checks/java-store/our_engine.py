"""Our engine on a store directory: opening, reading everything, being killed, checking files."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
from numbered_runs import is_batch, new_messages
from stored_message import from_record

from interop.support.cases import MismatchError, expect, expect_true
from rmq.model.offsets import PhysicalOffset
from rmq.model.record import decode_records
from rmq.model.record_layout import BLANK_BYTES
from rmq.store.append import AppendStatus
from rmq.store.core import StoreCore
from rmq.store.reader import Reader
from rmq.store.segments import segment_name
from rmq.store.verify import verify
from rmq.store.verify.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from store_place import StorePlace
    from stored_message import Readings, StoredMessage

    from rmq.store.append import AppendResult

_WRITER: Final = Path(__file__).resolve().parent / "killed_writer.py"
_WRITER_TIMEOUT_S: Final = 40
_FAST_S: Final = 0.04
_GET_COUNT: Final = 32
_TORN_SIZES: Final = range(600, 1200)
_PHYSICAL_OFFSET_AT: Final = 28
_FOREVER_MS: Final = 2**62


@contextmanager
def our_engine(
    place: StorePlace, *, now_ms: Callable[[], int] | None = None
) -> Iterator[StoreCore]:
    """Open a store and close it cleanly at the end."""
    core = StoreCore(place.config(), store_host=place.store_host, now_ms=now_ms)
    try:
        yield core
    except BaseException:
        core.release()
        raise
    core.close()
    expect_true("no abort file after a clean close", not place.abort.exists())


def append_runs(core: StoreCore, runs: Iterable[int]) -> None:
    """Append runs of numbered messages."""
    for run in runs:
        messages = new_messages(run)
        require_put(core.append_batch(messages) if is_batch(run) else core.append(messages))


def require_put(results: Sequence[AppendResult]) -> Sequence[AppendResult]:
    for result in results:
        if result.status is not AppendStatus.PUT_OK:
            raise MismatchError(f"our engine refuses a message: {result}")
    return results


def read_all(core: StoreCore) -> Readings:
    """Read every message of every queue, as a consumer would."""
    readings: Readings = {}
    for queue in core.queues:
        messages = readings.setdefault((queue.topic, queue.queue_id), [])
        offset = queue.min_offset
        while offset < queue.next_offset:
            result = core.reads.get(queue.topic, queue.queue_id, offset, _GET_COUNT)
            expect_true(f"messages at {offset} of {queue.topic}", result.next_offset > offset)
            for view in result.records:
                messages += map(from_record, decode_records(view))
            offset = result.next_offset
    return readings


def query(
    core: StoreCore, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = _FOREVER_MS
) -> list[StoredMessage]:
    """Return the messages with a key, in the order of the log."""
    views = core.reads.query(topic, key, _GET_COUNT * 2, begin_ms, end_ms)
    return [from_record(record) for view in views for record in decode_records(view)]


def read_live(place: StorePlace) -> Readings:
    """Read every message beside the process that has the store open."""
    with _reader(place) as reader:
        expect_true("a lock that is seen", reader.state.is_live)
        return {
            (queue.topic, queue.queue_id): [
                from_record(record) for record in reader.messages(queue.topic, queue.queue_id)
            ]
            for queue in reader.queues()
        }


def verify_files(place: StorePlace) -> str:
    """Check all files against each other; return what is worth a note."""
    with _reader(place) as reader:
        findings = list(verify(reader))
    errors = [str(finding) for finding in findings if finding.severity is Severity.ERROR]
    expect(f"{len(errors)} errors, the first of which", errors[:3], [])
    return f"{len(findings)} notes" if findings else ""


def _reader(place: StorePlace) -> Reader:
    sizes = place.geometry
    return Reader(place.root, index_slots=sizes.index_slots, index_entries=sizes.index_entries)


@dataclass(frozen=True)
class StockRecovery:
    """What a stock broker makes of a store that was killed, by RocketMQ 4.9.8's rules."""

    start: int
    """The physical offset from which it reads the log, and dispatches it again."""
    segments_read: int
    segments: int
    indexed_below: int
    """Records below this offset are in index files that it keeps."""

    def keeps_key_of(self, message: StoredMessage) -> bool:
        offset = message.physical_offset
        return offset >= self.start or offset + message.size <= self.indexed_below


def foresee_stock_recovery(place: StorePlace) -> StockRecovery:
    """Say from the files what a stock broker will do."""
    with _reader(place) as reader:
        checkpoint = reader.state.checkpoint
        assert checkpoint is not None
        segments = [segment for segment in reader.segments if segment.first < reader.end_offset]
        starts = [
            segment.first
            for segment in segments
            for head in islice(reader.heads(PhysicalOffset(segment.first)), 1)
            if head.store_ms <= checkpoint.min_ms
        ]
        start = max(starts, default=segments[0].first)
        # A file without a byte is one that was being created.
        kept = [file.header for file in reader.index_files() if file.size]
        indexed_below = max(
            (header.end_offset for header in kept if header.end_ms <= checkpoint.index_ms),
            default=0,
        )
    read = sum(segment.first >= start for segment in segments)
    return StockRecovery(start, read, len(segments), indexed_below)


# ---- ends that are not clean ---------------------------------------------------------------------


async def write_and_be_killed(place: StorePlace, first_run: int, *, slow_s: float = 0) -> int:
    """Have another process write until it is killed with SIGKILL; return the last run it put."""
    sizes = place.geometry
    command = [
        sys.executable,
        str(_WRITER),
        str(place.root),
        str(place.port),
        str(first_run),
        str(slow_s),
        *map(str, vars(sizes).values()),
    ]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    received = bytearray()
    try:
        with trio.fail_after(_WRITER_TIMEOUT_S):
            received += await process.stdout.receive_some()
            with trio.move_on_after(slow_s + _FAST_S * random.uniform(0.5, 1.5)):
                while True:
                    received += await _more_of(process)
            process.kill()
            while more := await process.stdout.receive_some():
                received += more
    finally:
        with trio.CancelScope(shield=True):
            if process.poll() is None:
                process.kill()
            await process.wait()
            await process.stdout.aclose()
    lines = received.decode().split("\n")[:-1]
    expect_true("an abort file after a kill", place.abort.exists())
    expect("runs that were put", lines, [str(first_run + i) for i in range(len(lines))])
    return first_run + len(lines) - 1


async def _more_of(process: trio.Process) -> bytes:
    assert process.stdout is not None
    received = await process.stdout.receive_some()
    if not received:
        raise MismatchError(f"the writer ended by itself with code {await process.wait()}")
    return bytes(received)


def leave_torn_record(place: StorePlace, *, has_head: bool) -> int:
    """Leave part of a record behind the last one, as who was killed while copying it does.

    A stock broker copies from the front: the head is there, the rest is not. Our engine copies the
    first eight bytes last. Returns where the log ends.
    """
    with _reader(place) as reader:
        end = reader.end_offset
        model = next(head for head in reader.heads() if head.size in _TORN_SIZES)
        record = bytearray(reader.log.read(model.physical_offset, model.size))
    record[_PHYSICAL_OFFSET_AT : _PHYSICAL_OFFSET_AT + 8] = end.to_bytes(8)
    segment_bytes = place.geometry.segment_bytes
    position = end % segment_bytes
    if position + len(record) + BLANK_BYTES > segment_bytes:
        # So near the end of a segment nobody would have begun to copy.
        return end
    path = place.root / "commitlog" / segment_name(end - position)
    with path.open("r+b") as file:
        file.seek(position)
        # Half of it ends inside the body.
        file.write(record[: len(record) // 2] if has_head else bytes(8) + record[8:])
    return end
