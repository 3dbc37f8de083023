"""Up to where two logs are the same, over random logs, ends and beginnings."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.broker.replication.log_comparison import STEPS, common_prefix, common_records
from rmq.broker.replication.log_digests import log_digests
from rmq.model.offsets import PhysicalOffset

if TYPE_CHECKING:
    from rmq.broker.replication.log_comparison import Ask
    from rmq.remoting.bodies import HaDigestsBody


class _Log:
    def __init__(self, data: bytes, begin: int = 0) -> None:
        self.data = data
        self.begin = PhysicalOffset(begin)

    @property
    def end(self) -> PhysicalOffset:
        return PhysicalOffset(len(self.data))

    def digest(self, start: int, stop: int) -> bytes:
        return hashlib.sha256(self.data[start:stop]).digest()


def _asking(other: _Log) -> tuple[list[tuple[int, int, int]], Ask]:
    asked: list[tuple[int, int, int]] = []

    async def ask(start: int, stop: int, step: int) -> HaDigestsBody:
        asked.append((start, stop, step))
        return await log_digests(other, start, stop, step)

    return asked, ask


def _prefix(one: _Log, other: _Log) -> tuple[int, int]:
    _, ask = _asking(other)
    return trio.run(common_prefix, one, ask)


sizes = st.integers(0, 300_000)


@settings(max_examples=60)
@given(sizes, sizes, sizes)
def test_the_common_part_is_found_as_finely_as_digests_go(
    same: int, more_here: int, more_there: int
) -> None:
    common = b"\1" * same
    one = _Log(common + b"\2" * more_here)
    other = _Log(common + b"\3" * more_there)
    found, other_end = _prefix(one, other)
    assert other_end == other.end
    assert found <= same
    if more_here and more_there:
        assert same - found < STEPS[-1]
    else:
        assert found == same


def test_what_the_other_one_has_dropped_counts_as_the_same() -> None:
    one = _Log(bytes(100_000))
    other = _Log(b"\5" * 50_000 + bytes(50_000), begin=50_000)
    assert _prefix(one, other) == (100_000, 100_000)


def test_logs_without_a_common_range_have_nothing_in_common() -> None:
    one = _Log(bytes(100_000), begin=60_000)
    other = _Log(bytes(50_000))
    assert _prefix(one, other) == (60_000, 50_000)


def test_a_log_that_is_empty_and_one_that_is_not() -> None:
    assert _prefix(_Log(b""), _Log(bytes(10))) == (0, 10)
    assert _prefix(_Log(bytes(10)), _Log(b"")) == (0, 0)


@settings(max_examples=60)
@given(st.lists(st.integers(1, 9_000), min_size=1, max_size=40), st.data())
def test_messages_are_compared_one_by_one_in_the_end(
    lengths: list[int], data: st.DataObject
) -> None:
    ends = [PhysicalOffset(sum(lengths[: i + 1])) for i in range(len(lengths))]
    same = data.draw(st.integers(0, len(lengths)))
    cut = ends[same - 1] if same else 0
    one = _Log(bytes(cut) + b"\2" * (ends[-1] - cut))
    other = _Log(bytes(cut) + b"\3" * data.draw(st.integers(0, ends[-1])))
    asked, ask = _asking(other)

    async def compare() -> int:
        return await common_records(one, ask, PhysicalOffset(0), ends, other.end)

    assert trio.run(compare) == cut
    assert len(asked) <= 6
