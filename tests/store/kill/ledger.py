"""What was acknowledged, and the proof that a store has it: all of it, in order, once, and equal.

A `Ledger` lives as long as a store. `check` takes the store as recovered after a kill; it raises
`LostError` with everything that is wrong, so that one failure tells the whole story.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec

from rmq.errors import StoreError
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.properties import UNIQ_KEY
from rmq.model.record import StoredRecord, decode_record, decode_records
from rmq.store.reader import Reader
from rmq.store.reads import GetStatus
from rmq.store.verify import Verifier
from rmq.store.verify.finding import Severity
from tests.store.kill.workload import Ack, Geometry, MessageName, Workload

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from rmq.store.core import StoreCore

_READ_COUNT: Final = 1000
_KEY_SAMPLE: Final = 40
_COMPLAINTS_MAX: Final = 20
_LATEST_MS: Final = 2**62


class LostError(Exception):
    """A store does not have what it said it has."""

    def __init__(self, complaints: list[str]) -> None:
        shown = complaints[:_COMPLAINTS_MAX]
        if len(complaints) > len(shown):
            shown.append(f"and {len(complaints) - len(shown)} more")
        super().__init__("\n".join(shown))


class Seen(msgspec.Struct):
    """What a check saw."""

    messages: int = 0
    unacknowledged: int = 0
    keys: int = 0


class Ledger:
    """The acknowledgements of one store."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.acks: dict[str, Ack] = {}
        self._workload = Workload(geometry)

    def add(self, ack: Ack) -> None:
        assert ack.name not in self.acks, f"{ack.name} was acknowledged twice"
        self.acks[ack.name] = ack

    def forget_from(self, end: int) -> int:
        """Give up what lay behind the end of the log, for stores that may lose it."""
        lost = [ack.name for ack in self.acks.values() if ack.physical_offset >= end]
        for name in lost:
            del self.acks[name]
        return len(lost)

    def check(self, core: StoreCore, rng: random.Random) -> Seen:
        """Hold a recovered store against what was acknowledged."""
        check = _Check(core, self._workload)
        for queue in list(core.queues):
            check.read_queue(queue.topic, queue.queue_id)
        check.compare(self.acks)
        if not self.geometry.is_transient:
            check.find_torn_batches()
        names = sorted(check.found)
        check.query_keys(rng.sample(names, min(_KEY_SAMPLE, len(names))))
        if check.complaints:
            raise LostError(check.complaints)
        return Seen(len(names), len(check.found.keys() - self.acks.keys()), check.keys)

    def check_unrecovered(self, root: Path, since: set[str]) -> None:
        """Hold the files of a killed store, as they are, against what was acknowledged last."""
        complaints: list[str] = []
        with Reader(
            root,
            commit_log_paths=self.geometry.config(root).commit_log_paths,
            segment_bytes=self.geometry.segment_bytes,
            index_slots=self.geometry.index_slots,
            index_entries=self.geometry.index_entries,
        ) as reader:
            for name in since:
                ack = self.acks[name]
                try:
                    record = reader.record_at(PhysicalOffset(ack.physical_offset))
                except StoreError as exc:
                    complaints.append(f"{name} cannot be read: {exc}")
                    continue
                if record is None or record.properties.get(UNIQ_KEY) != name:
                    complaints.append(f"{name} is not at physical offset {ack.physical_offset}")
        if complaints:
            raise LostError(complaints)

    def verify(self, root: Path) -> None:
        """Run the full check of a store directory; nothing may be wrong after a recovery."""
        with Reader(
            root,
            commit_log_paths=self.geometry.config(root).commit_log_paths,
            segment_bytes=self.geometry.segment_bytes,
            index_slots=self.geometry.index_slots,
            index_entries=self.geometry.index_entries,
        ) as reader:
            errors = [
                str(finding)
                for finding in Verifier(reader).run()
                if finding.severity is Severity.ERROR
            ]
        if errors:
            raise LostError(errors)


class _Check:
    """One walk through a store."""

    def __init__(self, core: StoreCore, workload: Workload) -> None:
        self.complaints: list[str] = []
        self.found: dict[str, StoredRecord] = {}
        self.keys = 0
        self._core = core
        self._workload = workload

    def read_queue(self, topic: str, queue_id: int) -> None:
        """Read a queue from its beginning; its messages must be dense, sound and in order."""
        last_of: dict[tuple[int, int], MessageName] = {}
        expected = 0
        where = f"queue {queue_id} of {topic}"
        while True:
            got = self._core.reads.get(topic, queue_id, QueueOffset(expected), _READ_COUNT)
            if got.status is not GetStatus.FOUND:
                break
            for record in (record for view in got.records for record in decode_records(view)):
                if record.queue_offset != expected:
                    self._complain(f"{where}: {record.queue_offset} instead of {expected}")
                    return
                expected += 1
                self._take(where, record, last_of)
        end_statuses = (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE)
        if got.status not in end_statuses or got.max_offset != expected:
            self._complain(f"{where}: at {expected} of {got.max_offset} it says {got.status.value}")

    def _take(
        self, where: str, record: StoredRecord, last_of: dict[tuple[int, int], MessageName]
    ) -> None:
        text = record.properties.get(UNIQ_KEY, "")
        place = f"{where}, offset {record.queue_offset}"
        try:
            name = MessageName.parse(text)
            message = self._workload.message(name)
        except (ValueError, TypeError, IndexError):
            self._complain(f"{place}: {text!r} was never written")
            return
        if text in self.found:
            first = self.found[text]
            self._complain(f"{place}: {text} is there twice, also at {first.physical_offset}")
        self.found[text] = record
        is_equal = (
            record.topic == message.topic
            and record.queue_id == message.queue_id
            and record.body == message.body
            and record.properties_bytes == message.properties
            and record.flag == message.flag
            and record.born_ms == message.born_ms
            and record.born_host == message.born_host
        )
        if not is_equal:
            self._complain(f"{place}: {text} is not what was written")
        last = last_of.get((name.run, name.producer))
        if last is not None and last >= name:
            self._complain(f"{place}: {text} comes after {last}")
        last_of[name.run, name.producer] = name

    def compare(self, acks: dict[str, Ack]) -> None:
        """Find what was acknowledged and is not there, or elsewhere."""
        for ack in acks.values():
            record = self.found.get(ack.name)
            if record is None:
                self._complain(f"{ack.name} is gone, it was acknowledged: {ack}")
                continue
            stored = Ack(
                ack.name,
                record.topic,
                record.queue_id,
                record.queue_offset,
                record.physical_offset,
                record.size,
                crc32(record.body),
            )
            if stored != ack:
                self._complain(f"{ack.name} was acknowledged as {ack}, but is {stored}")

    def find_torn_batches(self) -> None:
        """A batch is stored whole or not at all."""
        members: defaultdict[tuple[int, int, int], int] = defaultdict(int)
        for text in self.found:
            name = MessageName.parse(text)
            members[name[:3]] += 1
        for (run, producer, number), count in members.items():
            step = self._workload.step(run, producer, number)
            if step.is_batch and count != len(step.messages):
                self._complain(
                    f"of batch {run}-{producer}-{number} there are {count} of"
                    f" {len(step.messages)} messages"
                )

    def query_keys(self, names: list[str]) -> None:
        """Ask the index for messages by the keys only they have."""
        for name in names:
            record = self.found[name]
            for key in (name, f"key-{name}"):
                views = self._core.reads.query(record.topic, key, 32, 0, _LATEST_MS)
                offsets = [decode_record(view).physical_offset for view in views]
                self.keys += 1
                if offsets != [record.physical_offset]:
                    self._complain(
                        f"key {key} leads to {offsets}, it is at {record.physical_offset}"
                    )

    def _complain(self, text: str) -> None:
        self.complaints.append(text)
