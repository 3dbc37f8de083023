"""Consumer offsets between master and slave: they grow, but for resets, and fit the queues."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.tables.consumer_offsets import ConsumerOffsets
from rmq.broker.tables.offset_resets import OffsetResets
from rmq.broker.tables.offsets_body import SharedOffsets, decode_in_steps
from rmq.errors import ProtocolError
from rmq.model import fastjson
from rmq.model.offsets import ConsumerOffset, QueueOffset
from rmq.remoting.bodies import BodyError, ConsumerOffsetSerializeWrapper
from tests.broker.tables.table_kit import Clock, finish

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "192.0.2.1:50000"


def filled(*rows: tuple[str, str, int, int], clock: Clock | None = None) -> ConsumerOffsets:
    """Return a table with rows of topic, group, queue and offset."""
    offsets = ConsumerOffsets(clock or Clock())
    for topic, group, queue_id, offset in rows:
        offsets.commit(HOST, group, topic, queue_id, ConsumerOffset(offset))
    return offsets


def told(offsets: ConsumerOffsets) -> SharedOffsets:
    """Return what a slave gets."""
    return SharedOffsets.decode(offsets.encode())


# --- growing -------------------------------------------------------------------------------------


def test_each_queue_has_the_larger_offset_of_the_two() -> None:
    slave = filled(("T", "g", 0, 5), ("T", "g", 1, 9), ("T", "g", 3, 1))
    slave.merge(told(filled(("T", "g", 0, 7), ("T", "g", 1, 3), ("T", "g", 2, 4))))
    assert slave.offsets("g", "T") == {0: 7, 1: 9, 2: 4, 3: 1}
    assert list(slave.offsets("g", "T")) == [0, 1, 2, 3]


def test_what_has_not_grown_is_no_change() -> None:
    slave = filled(("T", "g", 0, 5), ("T", "g", 1, 9))
    changes = slave.changes
    for table in ({0: 5, 1: 9}, {0: 4}, {1: 9}, {}):
        slave.merge(ConsumerOffsetSerializeWrapper(offset_table={"T@g": table}))
    assert slave.changes == changes


# --- resets --------------------------------------------------------------------------------------


def order_and_commit(master: ConsumerOffsets) -> None:
    master.order_reset("g", "T", {0: ConsumerOffset(2)})
    master.commit(HOST, "g", "T", 0, ConsumerOffset(2))


def choose(master: ConsumerOffsets) -> None:
    master.reset(HOST, "g", "T", 0, ConsumerOffset(2))


def clone(master: ConsumerOffsets) -> None:
    master.commit(HOST, "source", "T", 0, ConsumerOffset(2))
    master.clone("source", "g", "T")


def begin_anew_group(master: ConsumerOffsets) -> None:
    master.remove_group("g")
    master.commit(HOST, "g", "T", 0, ConsumerOffset(2))


def begin_anew_topic(master: ConsumerOffsets) -> None:
    master.remove_topic("T")
    master.commit(HOST, "g", "T", 0, ConsumerOffset(2))


def clamp(master: ConsumerOffsets) -> None:
    assert master.clamp(lambda _topic, _queue: QueueOffset(2)) == 1


RESETS = [order_and_commit, choose, clone, begin_anew_group, begin_anew_topic, clamp]


@pytest.mark.parametrize("reset", RESETS, ids=lambda reset: reset.__name__)
def test_what_was_chosen_is_taken_once(reset: Callable[[ConsumerOffsets], None]) -> None:
    master = filled(("T", "g", 0, 9))
    slave = filled()
    slave.merge(told(master))
    reset(master)
    slave.merge(told(master))
    assert slave.query("g", "T", 0) == master.query("g", "T", 0) == 2
    # From then on it grows again, whatever is told about that reset.
    slave.commit(HOST, "g", "T", 0, ConsumerOffset(8))
    slave.merge(told(master))
    assert slave.query("g", "T", 0) == 8


@pytest.mark.parametrize("reset", RESETS, ids=lambda reset: reset.__name__)
def test_whoever_learned_of_a_reset_tells_it_on(reset: Callable[[ConsumerOffsets], None]) -> None:
    master = filled(("T", "g", 0, 9))
    middle, last = filled(), filled(("T", "g", 0, 9))
    middle.merge(told(master))
    reset(master)
    middle.merge(told(master))
    last.merge(told(middle))
    assert last.query("g", "T", 0) == 2


def test_a_commit_that_is_late_is_no_reset() -> None:
    master = filled(("T", "g", 0, 9), ("T", "g", 0, 5))
    assert told(master).resets == {}
    assert master.encode() == b'{"offsetTable":{"T@g":{0:5}}}'


def test_only_queues_that_go_back_are_reset() -> None:
    master = filled(("T", "g", 0, 9), ("T", "g", 1, 9), ("T", "g", 2, 9))
    targets = {0: 3, 1: 9, 2: 20, 7: 1}
    offsets = {queue_id: ConsumerOffset(offset) for queue_id, offset in targets.items()}
    master.order_reset("g", "T", offsets)
    for queue_id in (0, 1, 2, 7):
        master.commit(HOST, "g", "T", queue_id, ConsumerOffset(4))
    assert set(told(master).resets["T@g"]) == {0}


def test_an_order_is_used_up_by_the_first_who_follows_it() -> None:
    master = filled(("T", "g", 0, 9))
    master.order_reset("g", "T", {0: ConsumerOffset(3)})
    master.commit(HOST, "g", "T", 0, ConsumerOffset(12))
    assert told(master).resets == {}, "going on is not going back"
    master.commit(HOST, "g", "T", 0, ConsumerOffset(3))
    numbers = told(master).resets
    master.commit(HOST, "g", "T", 0, ConsumerOffset(2))
    assert told(master).resets == numbers


def test_numbers_grow_though_the_clock_does_not() -> None:
    clock = Clock()
    master = filled(("T", "g", 0, 9), clock=clock)
    seen: list[int] = []
    for step_ms in (0, 0, -500, 2000):
        clock.now_ms += step_ms
        master.commit(HOST, "g", "T", 0, ConsumerOffset(9))
        master.reset(HOST, "g", "T", 0, ConsumerOffset(1))
        seen.append(told(master).resets["T@g"][0])
    assert seen == [1000, 1001, 1002, 2500]


def test_a_new_master_goes_on_counting_where_the_old_one_was() -> None:
    old = filled(("T", "g", 0, 9), clock=Clock())
    old.reset(HOST, "g", "T", 0, ConsumerOffset(1))
    behind = Clock()
    behind.now_ms = 5
    new = filled(clock=behind)
    new.merge(told(old))
    new.commit(HOST, "g", "T", 0, ConsumerOffset(9))
    new.reset(HOST, "g", "T", 0, ConsumerOffset(2))
    old.commit(HOST, "g", "T", 0, ConsumerOffset(50))
    old.merge(told(new))
    assert old.query("g", "T", 0) == 2


def test_resets_are_in_the_file_and_come_back_from_it() -> None:
    master = filled(("T", "g", 0, 9), ("T", "g", 1, 9), ("U", "g", 0, 1))
    master.reset(HOST, "g", "T", 1, ConsumerOffset(3))
    master.remove_topic("U")
    text = master.render()
    assert text == (
        '{\n\t"offsetTable":{\n\t\t"T@g":{0:9,1:3\n\t\t}\n\t},'
        '\n\t"resets":{\n\t\t"T@g":{1:1000\n\t\t},\n\t\t"U@g":{0:1001\n\t\t}\n\t}\n}'
    )
    assert text == fastjson.pretty(master.to_body()).decode()
    assert master.encode() == master.to_body().encode()
    again = filled()
    again.load(text)
    assert again.render() == text
    # A stock broker that finds the file passes over what it does not know.
    table = ConsumerOffsetSerializeWrapper.decode(text.encode()).offset_table
    assert table == {"T@g": {0: 9, 1: 3}}


def test_a_bounded_number_of_resets_is_remembered() -> None:
    clock = Clock()
    resets = OffsetResets(clock, count_max=100)
    for number in range(1000):
        clock.now_ms += 1
        resets.note(f"T@group-{number}", [0])
        assert len(resets) <= 100
    kept = resets.table()
    assert f"T@group-{999}" in kept
    assert "T@group-0" not in kept
    assert len(kept) == len(resets) >= 50


# --- the ends of queues --------------------------------------------------------------------------


def test_offsets_behind_the_ends_of_queues_go_back_to_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    offsets = filled(("T", "g", 0, 9), ("T", "g", 1, 9), ("T", "h", 0, 5), ("gone", "g", 0, 4))
    ends = {("T", 0): 6, ("T", 1): 9}
    changes = offsets.changes
    assert offsets.clamp(lambda topic, queue_id: QueueOffset(ends.get((topic, queue_id), 0))) == 2
    assert offsets.to_body().offset_table == {
        "T@g": {0: 6, 1: 9},
        "T@h": {0: 5},
        "gone@g": {0: 0},
    }
    assert offsets.changes > changes
    assert caplog.messages == [
        "consumer offsets of T@g are beyond the queues and go back: queue 0 from 9 to 6",
        "consumer offsets of gone@g are beyond the queues and go back: queue 0 from 4 to 0",
    ]
    changes = offsets.changes
    assert offsets.clamp(lambda _topic, _queue_id: QueueOffset(100)) == 0
    assert offsets.changes == changes


# --- in pieces -----------------------------------------------------------------------------------


def test_pairs_that_belong_together_are_of_one_moment() -> None:
    offsets = ConsumerOffsets(Clock())
    for number in range(10_000):
        offsets.commit(HOST, "g", f"topic-{number}", 0, ConsumerOffset(1))
    pairs = frozenset({"topic-0@g", "topic-9999@g"})
    pieces: list[bytes] = []
    for piece in offsets.encode_pieces(last=pairs):
        pieces.append(piece)
        moment = len(pieces)
        for number in (0, 9999):
            offsets.commit(HOST, "g", f"topic-{number}", 0, ConsumerOffset(moment))
    whole = b"".join(pieces)
    assert whole.count(b'"topic-0@g"') == 1
    table = SharedOffsets.decode(whole).offset_table
    assert len(table) == 10_000
    assert table["topic-0@g"] == table["topic-9999@g"] == {0: len(pieces) - 2}


def test_a_reset_between_two_pieces_is_not_hidden() -> None:
    master = ConsumerOffsets(Clock())
    for number in range(10_000):
        master.commit(HOST, "g", f"topic-{number}", 0, ConsumerOffset(100))
    slave = ConsumerOffsets(Clock())
    slave.merge(told(master))
    pieces: list[bytes] = []
    for number, piece in enumerate(master.encode_pieces()):
        pieces.append(piece)
        for topic in range(number, 10_000, 1000):
            master.reset(HOST, "g", f"topic-{topic}", 0, ConsumerOffset(7))
    slave.merge(SharedOffsets.decode(b"".join(pieces)))
    slave.merge(told(master))
    assert slave.to_body().offset_table == master.to_body().offset_table


names = st.text(st.sampled_from('ab@{}",:\\%0}'), max_size=6)
queues = st.dictionaries(st.integers(0, 9), st.integers(-5, 99), min_size=1, max_size=4)
tables = st.dictionaries(names, queues)
sane_tables = st.dictionaries(st.text(st.sampled_from("ab@%|_-0"), max_size=6), queues)


@given(sane_tables, sane_tables, st.integers(1, 40))
def test_an_answer_may_be_read_in_pieces(
    offsets: dict[str, dict[int, int]], resets: dict[str, dict[int, int]], piece_bytes: int
) -> None:
    body = SharedOffsets(offset_table=offsets, resets=resets)
    assert finish(decode_in_steps(body.encode(), piece_bytes)) == body


@given(tables, tables, st.integers(1, 40))
def test_names_that_no_stock_client_has_are_read_right_or_refused(
    offsets: dict[str, dict[int, int]], resets: dict[str, dict[int, int]], piece_bytes: int
) -> None:
    body = SharedOffsets(offset_table=offsets, resets=resets)
    try:
        decoded = finish(decode_in_steps(body.encode(), piece_bytes))
    except BodyError:
        return
    assert decoded == body


@pytest.mark.parametrize("name", ["x},", 'x},"y', ",0:", "{0:", "a}b{c"])
def test_a_name_of_such_a_kind_does_not_keep_a_long_table_from_being_read(name: str) -> None:
    offsets = {f"topic-{number}@group": {0: number} for number in range(200)}
    odd = {name: {0: 1}}
    body = SharedOffsets(offset_table=dict(list(offsets.items())[:100]) | odd | offsets)
    for piece_bytes in range(1000, 1060):
        assert finish(decode_in_steps(body.encode(), piece_bytes)) == body


def test_an_answer_that_is_written_in_another_way_is_refused() -> None:
    body = b'{"offsetTable":{"a@g":{0:1}} ,"resets":{"a@g":{0:1},"b@g":{0:1},"c@g":{0:1}}}'
    assert finish(decode_in_steps(body)).resets.keys() == {"a@g", "b@g", "c@g"}
    with pytest.raises(BodyError, match="another member"):
        finish(decode_in_steps(body, 20))


def test_the_answer_of_a_later_version_is_read() -> None:
    body = b'{"dataVersion":{"counter":1},"offsetTable":{"a@g":{0:1},"b@g":{0:2}}}'
    assert finish(decode_in_steps(body, 20)).offset_table == {"a@g": {0: 1}, "b@g": {0: 2}}


@given(tables, st.integers(1, 40), st.data())
def test_half_an_answer_is_refused(
    offsets: dict[str, dict[int, int]], piece_bytes: int, data: st.DataObject
) -> None:
    whole = SharedOffsets(offset_table=offsets).encode()
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(ProtocolError):
        finish(decode_in_steps(part, piece_bytes))


@given(tables, tables)
def test_merging_gives_the_larger_of_each(
    mine: dict[str, dict[int, int]], theirs: dict[str, dict[int, int]]
) -> None:
    offsets = ConsumerOffsets(Clock())
    offsets.merge(ConsumerOffsetSerializeWrapper(offset_table=mine))
    offsets.merge(ConsumerOffsetSerializeWrapper(offset_table=theirs))
    expected = {
        key: {
            queue: max(
                table[queue] for table in (mine.get(key, {}), theirs.get(key, {})) if queue in table
            )
            for queue in mine.get(key, {}).keys() | theirs.get(key, {}).keys()
        }
        for key in mine.keys() | theirs.keys()
    }
    assert offsets.to_body().offset_table == expected
    assert offsets.encode() == offsets.to_body().encode()
