"""One flipped bit anywhere in what can be checked is found, and never more than that fails.

What a record has besides its body, its place, its queue, its tag and its keys (hosts, times, flags,
other properties) carries no checksum in the format of RocketMQ 4.9.8: a change there is not found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.store.reader import Reader
from rmq.store.verify import verify
from rmq.store.verify.finding import Finding, Kind, Severity
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

FLIPS: Final = settings(max_examples=15)
INDEX_SLOTS_END: Final = 40 + 4 * golden.INDEX_SLOTS
RECORD_FIELDS: Final = {
    "size, magic and crc": (0, 12),
    "queue": (12, 16),
    "queue offset and physical offset": (20, 36),
    "body length and body": (84, 200),
}


class Area(NamedTuple):
    """Bytes of a file that are in use."""

    path: Path
    start: int
    stop: int


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store for all flips of this module; each is undone."""
    return golden.unpack(golden.CRASHED_RECOVERED, tmp_path_factory.mktemp("flips"))


def queue_areas(root: Path) -> list[Area]:
    reader = Reader(root)
    areas: list[Area] = []
    for bounds in reader.queues():
        for segment in reader.queue_files(bounds.topic, bounds.queue_id).segments:
            used = min(segment.size, bounds.max_offset * 20 - segment.first)
            areas.append(Area(segment.path, 0, used))
    return areas


def index_areas(root: Path) -> list[Area]:
    areas: list[Area] = []
    for view in Reader(root).index_files():
        used = INDEX_SLOTS_END + view.header.entry_count * 20
        areas += [Area(view.path, 0, INDEX_SLOTS_END), Area(view.path, INDEX_SLOTS_END + 20, used)]
    return areas


def errors_after(root: Path, path: Path, position: int, bit: int) -> list[Finding]:
    """Flip a bit, check the store, and flip it back."""
    with path.open("r+b") as file:
        file.seek(position)
        old = file.read(1)
        file.seek(position)
        file.write(bytes([old[0] ^ 1 << bit]))
        file.flush()
        reader = Reader(root, index_slots=golden.INDEX_SLOTS, index_entries=golden.INDEX_ENTRIES)
        found = [each for each in verify(reader) if each.severity is Severity.ERROR]
        file.seek(position)
        file.write(old)
    return found


@FLIPS
@given(data=st.data())
def test_a_flipped_bit_of_a_queue_is_found_in_its_file(root: Path, data: st.DataObject) -> None:
    area = data.draw(st.sampled_from(queue_areas(root)))
    position = data.draw(st.integers(area.start, area.stop - 1))
    found = errors_after(root, area.path, position, data.draw(st.integers(0, 7)))
    assert [(each.kind, each.path, each.queue_offset) for each in found] == [
        (Kind.QUEUE, str(area.path), (int(area.path.name) + position) // 20)
    ]


@FLIPS
@given(data=st.data())
def test_a_flipped_bit_of_the_index_is_found_in_its_file(root: Path, data: st.DataObject) -> None:
    area = data.draw(st.sampled_from(index_areas(root)))
    position = data.draw(st.integers(area.start, area.stop - 1))
    found = errors_after(root, area.path, position, data.draw(st.integers(0, 7)))
    assert found
    assert {each.kind for each in found} == {Kind.INDEX}
    assert str(area.path) in {each.path for each in found}


@pytest.mark.parametrize("field", RECORD_FIELDS)
@settings(max_examples=5)
@given(data=st.data())
def test_a_flipped_bit_of_a_record_is_found(root: Path, field: str, data: st.DataObject) -> None:
    # One of the last records may lie behind nothing that is sound, and then it is the end.
    record = data.draw(st.sampled_from(golden.records(golden.CRASHED)[:-1]))
    start, stop = RECORD_FIELDS[field]
    offset = record.physical_offset + data.draw(st.integers(start, stop - 1))
    position = offset % golden.SEGMENT_BYTES
    path = root / "commitlog" / f"{offset - position:020d}"
    found = errors_after(root, path, position, data.draw(st.integers(0, 7)))
    assert found
    assert {each.kind for each in found} <= {Kind.RECORD, Kind.QUEUE, Kind.INDEX}
