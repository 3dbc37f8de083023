"""Many keys at once are indexed as one by one."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rmq.model.offsets import PhysicalOffset
from rmq.store.index_file import Index
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import START_MS, Clock

FOLDER = Path("index")

records_of_runs = st.lists(
    st.lists(st.integers(0, 50), max_size=4),  # the hashes of the keys of one record
    min_size=1,
    max_size=12,
)


def new_index(storage: MemoryStorage) -> Index:
    return Index(storage, FOLDER, slots=5, capacity=9, now_ms=Clock())


@given(runs=st.lists(records_of_runs, max_size=8), again=st.booleans())
def test_runs_give_the_files_of_single_records(runs: list[list[list[int]]], again: bool) -> None:
    one, other = MemoryStorage(), MemoryStorage()
    together, apart = new_index(one), new_index(other)
    physical = PhysicalOffset(0)
    for number, run in enumerate(runs):
        store_ms = START_MS + number * 1700
        keyed: list[tuple[int, PhysicalOffset, int]] = []
        for hashes in run:
            physical += 100
            mine = [(key_hash, physical, store_ms) for key_hash in hashes]
            apart.put_records(mine, physical)
            keyed += mine
        together.put_records(keyed, physical)
        if again:
            # What failed half way is done again: everything but the last record is known.
            old = [entry for entry in keyed if entry[1] < physical]
            current = together.current
            if (
                old
                and current is not None
                and current.end_offset >= physical
                and not current.is_full
            ):
                together.put_records(old, old[-1][1])
    together.publish()
    apart.publish()
    assert [file.state for file in together.files] == [file.state for file in apart.files]
    names = one.names(FOLDER) if runs else []
    assert names == (other.names(FOLDER) if runs else [])
    for name in names:
        assert one.read(FOLDER / name) == other.read(FOLDER / name)
