"""Consumer offsets, against the files of a stock broker, a plain model, and hostile names."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.tables.consumer_offsets import ConsumerOffsets
from rmq.errors import MalformedJsonError
from rmq.model import fastjson
from rmq.model.offsets import ConsumerOffset, QueueOffset
from rmq.remoting.bodies import BodyError, ConsumerOffsetSerializeWrapper
from tests.broker.tables.table_kit import finish, golden_files

FILES = golden_files("consumerOffset.json")
HOST = "192.0.2.1:50000"
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


def filled(*rows: tuple[str, str, int, int]) -> ConsumerOffsets:
    """Return a table with rows of topic, group, queue and offset."""
    offsets = ConsumerOffsets()
    for topic, group, queue_id, offset in rows:
        offsets.commit(HOST, group, topic, queue_id, ConsumerOffset(offset))
    return offsets


# --- one queue ---


def test_an_offset_is_found_again_by_group_topic_and_queue() -> None:
    offsets = filled(("T", "g", 0, 5), ("T", "g", 1, 6), ("T", "h", 0, 7), ("U", "g", 0, 8))
    assert offsets.query("g", "T", 0) == 5
    assert offsets.query("g", "T", 1) == 6
    assert offsets.query("h", "T", 0) == 7
    assert offsets.query("g", "U", 0) == 8
    assert len(offsets) == 3


def test_what_was_never_committed_is_minus_one() -> None:
    offsets = filled(("T", "g", 0, 5))
    assert offsets.query("g", "T", 1) == -1
    assert offsets.query("g", "U", 0) == -1
    assert offsets.query("T", "g", 0) == -1


def test_an_offset_that_moves_back_is_logged_and_stored(caplog: pytest.LogCaptureFixture) -> None:
    offsets = filled(("T", "g", 3, 50))
    caplog.set_level(logging.WARNING)
    offsets.commit(HOST, "g", "T", 3, ConsumerOffset(49))
    assert offsets.query("g", "T", 3) == 49
    (line,) = caplog.messages
    assert line == f"consumer offset moved back by {HOST}: T@g, queue 3, from 50 to 49"


def test_moving_on_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    filled(("T", "g", 0, 1), ("T", "g", 0, 2), ("T", "g", 0, 2), ("T", "g", 1, 0))
    assert caplog.messages == []


def test_only_an_offset_that_moves_is_a_change() -> None:
    offsets = filled(("T", "g", 0, 5))
    changes = offsets.changes
    offsets.commit(HOST, "g", "T", 0, ConsumerOffset(5))
    assert offsets.changes == changes
    offsets.commit(HOST, "g", "T", 0, ConsumerOffset(6))
    assert offsets.changes == changes + 1
    offsets.commit(HOST, "g", "T", 1, ConsumerOffset(6))
    assert offsets.changes == changes + 2


@pytest.mark.parametrize("offset", [-1, -7, 0, INT64_MAX, INT64_MIN])
def test_any_64_bit_offset_survives_a_file(offset: int) -> None:
    offsets = filled(("T", "g", 0, offset))
    assert offsets.query("g", "T", 0) == offset
    again = ConsumerOffsets()
    again.load(offsets.render())
    assert again.query("g", "T", 0) == offset


@pytest.mark.parametrize("offset", [INT64_MAX + 1, INT64_MIN - 1, 2**80])
@pytest.mark.parametrize("known", [True, False], ids=["known-queue", "new-queue"])
def test_an_offset_beyond_64_bits_is_refused_and_changes_nothing(offset: int, known: bool) -> None:
    offsets = filled(("T", "g", 0, 5)) if known else ConsumerOffsets()
    before = offsets.render(), offsets.changes
    with pytest.raises(ValueError, match=f"consumer offset {offset} of T@g"):
        offsets.commit(HOST, "g", "T", 0, ConsumerOffset(offset))
    assert (offsets.render(), offsets.changes) == before


@pytest.mark.parametrize("queue_id", [2**31, -(2**31) - 1])
def test_a_queue_beyond_32_bits_is_refused_and_changes_nothing(queue_id: int) -> None:
    offsets = filled(("T", "g", 0, 5))
    before = offsets.render(), offsets.changes
    for topic in ("T", "U"):
        with pytest.raises(ValueError, match=f"queue id {queue_id} of {topic}@g"):
            offsets.commit(HOST, "g", topic, queue_id, ConsumerOffset(1))
    assert (offsets.render(), offsets.changes) == before


# --- topics and groups ---


def test_topics_and_groups_are_found_by_each_other() -> None:
    offsets = filled(
        ("T", "g", 0, 1), ("T", "h", 0, 1), ("U", "g", 0, 1), ("TT", "gg", 0, 1), ("xT", "xg", 0, 1)
    )
    assert offsets.pairs() == [("T", "g"), ("T", "h"), ("U", "g"), ("TT", "gg"), ("xT", "xg")]
    assert offsets.topics_of("g") == {"T", "U"}
    assert offsets.groups_of("T") == {"g", "h"}
    assert finish(offsets.finding_topics("g")) == {"T", "U"}
    assert finish(offsets.finding_groups("T")) == {"g", "h"}
    assert offsets.topics_of("nobody") == set()
    assert offsets.groups_of("nothing") == set()
    assert offsets.offsets("g", "T") == {0: 1}
    assert offsets.offsets("nobody", "T") == {}


def test_offsets_handed_out_are_a_copy() -> None:
    offsets = filled(("T", "g", 0, 1))
    offsets.offsets("g", "T")[0] = ConsumerOffset(99)
    offsets.to_body().offset_table["T@g"][0] = 99
    assert offsets.query("g", "T", 0) == 1


@pytest.mark.parametrize(
    ("topic", "group"),
    [("a@b", "c"), ("a", "b@c"), ("a@b", "c@d"), ("@", "@"), ("a", ""), ("a@", "")],
)
def test_names_with_a_separator_inside_keep_their_offsets(topic: str, group: str) -> None:
    offsets = filled((topic, group, 0, 7), ("x", "y", 0, 1))
    again = ConsumerOffsets()
    again.load(offsets.render())
    for table in (offsets, again):
        assert table.query(group, topic, 0) == 7
        assert table.offsets(group, topic) == {0: 7}
        # Nobody can tell the topic from the group, so nothing is found or removed by either.
        assert table.topics_of(group) == set()
        assert table.groups_of(topic) == set()
        assert table.remove_group(group) == 0
        assert table.remove_topic(topic) == 0
        assert table.query(group, topic, 0) == 7


def test_a_topic_without_a_name_has_groups() -> None:
    assert filled(("", "g", 0, 1)).topics_of("g") == {""}


def test_a_group_begins_where_another_one_is() -> None:
    offsets = filled(("T", "old", 0, 5), ("T", "old", 1, 6), ("T", "new", 2, 9))
    changes = offsets.changes
    assert offsets.clone("old", "new", "T")
    assert offsets.offsets("new", "T") == {0: 5, 1: 6}
    assert offsets.changes > changes
    offsets.commit(HOST, "new", "T", 0, ConsumerOffset(50))
    assert offsets.query("old", "T", 0) == 5


def test_nothing_is_cloned_from_a_group_without_offsets() -> None:
    offsets = filled(("T", "new", 0, 9))
    changes = offsets.changes
    assert not offsets.clone("old", "new", "T")
    assert offsets.offsets("new", "T") == {0: 9}
    assert offsets.changes == changes


def test_removing_a_group_leaves_all_others() -> None:
    offsets = filled(("T", "g", 0, 1), ("U", "g", 0, 1), ("T", "gg", 0, 1), ("g", "h", 0, 1))
    changes = offsets.changes
    assert offsets.remove_group("g") == 2
    assert offsets.changes > changes
    assert sorted(offsets.to_body().offset_table) == ["T@gg", "g@h"]
    assert offsets.remove_group("g") == 0


def test_removing_a_topic_leaves_all_others() -> None:
    offsets = filled(("T", "g", 0, 1), ("T", "h", 0, 1), ("TT", "g", 0, 1), ("U", "T", 0, 1))
    assert offsets.remove_topic("T") == 2
    assert sorted(offsets.to_body().offset_table) == ["TT@g", "U@T"]
    assert offsets.query("g", "T", 0) == -1


def test_the_lowest_offset_of_all_groups_is_found_by_queue() -> None:
    offsets = filled(
        ("T", "g", 1, 20), ("T", "g", 0, 10), ("T", "h", 0, 8), ("T", "old", 0, 2), ("U", "g", 0, 1)
    )
    first = {0: 8, 1: 0}

    def first_offset(topic: str, queue_id: int) -> QueueOffset:
        assert topic == "T"
        return QueueOffset(first[queue_id])

    assert finish(offsets.finding_min_offsets("T", None, first_offset)) == {0: 8, 1: 20}
    assert finish(offsets.finding_min_offsets("T", "x,h,y", first_offset)) == {0: 10, 1: 20}
    assert finish(offsets.finding_min_offsets("T", "g,h", first_offset)) == {}
    assert finish(offsets.finding_min_offsets("nothing", " ", first_offset)) == {}
    assert len(offsets) == 4


# --- files and bodies ---


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_a_golden_file_is_read_and_written_again_byte_for_byte(text: str) -> None:
    offsets = ConsumerOffsets()
    offsets.load(text)
    assert offsets.render() == text


def test_pairs_are_listed_as_by_a_stock_broker_whatever_the_order_they_came_in() -> None:
    text = FILES["clean-master/config/consumerOffset.json"]
    table = ConsumerOffsetSerializeWrapper.decode(text.encode()).offset_table
    assert len(table) == 14
    offsets = ConsumerOffsets()
    for key in sorted(table):
        topic, group = key.split("@")
        for queue_id in reversed(table[key]):
            offsets.commit(HOST, group, topic, queue_id, ConsumerOffset(table[key][queue_id]))
    assert offsets.render() == text


def test_an_empty_table_is_written_as_by_a_stock_broker() -> None:
    assert ConsumerOffsets().render() == FILES["crashed/config/consumerOffset.json"]
    assert ConsumerOffsets().encode() == b'{"offsetTable":{}}'


def test_loading_replaces_all_there_was() -> None:
    offsets = filled(("T", "g", 0, 1), ("U", "g", 0, 1))
    changes = offsets.changes
    assert offsets.load('{"offsetTable":{"V@g":{3:4,1:2},"empty@g":{}}}') == 1
    assert offsets.changes > changes
    assert offsets.to_body().offset_table == {"V@g": {1: 2, 3: 4}}
    assert offsets.query("g", "T", 0) == -1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", BodyError),
        ('{"offsetTable":{"T@g":{0:1', MalformedJsonError),
        ("\0\0\0\0", MalformedJsonError),
        ('{"offsetTable":{"T@g":{0:9223372036854775808}}}', BodyError),
        ('{"offsetTable":{"T@g":{2147483648:1}}}', BodyError),
        ('{"offsetTable":{"T@g":{x:1}}}', BodyError),
        ('{"offsetTable":{"T@g":7}}', BodyError),
    ],
    ids=["empty", "truncated", "zeros", "offset", "queue", "queue-name", "number"],
)
def test_a_bad_file_is_refused_and_changes_nothing(text: str, error: type[Exception]) -> None:
    offsets = filled(("T", "g", 0, 1))
    before = offsets.render(), offsets.changes
    with pytest.raises(error):
        offsets.load(text)
    assert (offsets.render(), offsets.changes) == before


def test_a_slave_takes_over_what_its_master_has_and_keeps_the_rest() -> None:
    offsets = filled(("T", "g", 0, 1), ("T", "g", 1, 1), ("U", "g", 0, 1))
    changes = offsets.changes
    master = ConsumerOffsetSerializeWrapper(offset_table={"T@g": {1: 5, 0: 4}, "V@g": {2: 3}})
    offsets.merge(master)
    assert offsets.to_body().offset_table == {"T@g": {0: 4, 1: 5}, "U@g": {0: 1}, "V@g": {2: 3}}
    assert offsets.changes > changes
    changes = offsets.changes
    offsets.merge(master)
    assert offsets.changes == changes


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
rows = st.lists(
    st.tuples(names, names, st.integers(-(2**31), 2**31 - 1), st.integers(INT64_MIN, INT64_MAX)),
    max_size=40,
)


@given(rows)
def test_what_is_written_is_what_fastjson_writes_and_reads_back(
    committed: list[tuple[str, str, int, int]],
) -> None:
    offsets = filled(*committed)
    model = {(f"{topic}@{group}", queue_id): offset for topic, group, queue_id, offset in committed}
    body = offsets.to_body()
    assert offsets.render() == fastjson.pretty(body).decode()
    assert offsets.encode() == body.encode()
    again = ConsumerOffsets()
    assert again.load(offsets.render()) == len(offsets)
    assert again.render() == offsets.render()
    for table in (body.offset_table, again.to_body().offset_table):
        assert {(key, queue): table[key][queue] for key in table for queue in table[key]} == model
        assert all(list(queues) == sorted(queues) for queues in table.values())
    for topic, group, queue_id, _ in committed:
        assert again.query(group, topic, queue_id) == model[f"{topic}@{group}", queue_id]


def test_a_large_table_comes_in_pieces_that_make_the_whole() -> None:
    offsets = ConsumerOffsets()
    for number in range(4_000):
        for queue_id in range(8):
            offsets.commit(
                HOST, f"group-{number % 7}", f"topic-{number}", queue_id, ConsumerOffset(number)
            )
    pieces = list(offsets.render_pieces())
    assert len(pieces) > 5
    assert "".join(pieces) == fastjson.pretty(offsets.to_body()).decode()
    assert offsets.encode() == offsets.to_body().encode()


def test_a_table_may_change_between_the_pieces() -> None:
    offsets = ConsumerOffsets()
    for number in range(10_000):
        offsets.commit(HOST, f"group-{number % 3}", f"topic-{number}", 0, ConsumerOffset(1))
    pieces = offsets.render_pieces()
    begun: list[str] = []
    while sum(map(bool, begun)) < 2:
        begun.append(next(pieces))
    offsets.remove_group("group-1")
    offsets.commit(HOST, "group-0", "topic-0", 0, ConsumerOffset(2))
    offsets.commit(HOST, "new", "topic", 0, ConsumerOffset(3))
    text = "".join([*begun, *pieces])
    table = ConsumerOffsetSerializeWrapper.decode(text.encode()).offset_table
    assert "topic@new" not in table
    for number in range(0, 10_000, 3):
        assert table[f"topic-{number}@group-0"] in ({0: 1}, {0: 2})
    left = sum(1 for key in table if key.endswith("@group-1"))
    assert 0 < left < 3_333


def test_queues_are_listed_in_order_whatever_the_order_they_came_in() -> None:
    offsets = filled(*(("T", "g", queue_id, 10 + queue_id) for queue_id in (3, 0, 2, 1, -1)))
    in_order = {-1: 9, 0: 10, 1: 11, 2: 12, 3: 13}
    assert list(offsets.to_body().offset_table["T@g"].items()) == list(in_order.items())
    assert offsets.encode() == b'{"offsetTable":{"T@g":{-1:9,0:10,1:11,2:12,3:13}}}'
    offsets.commit(HOST, "g", "T", -2, ConsumerOffset(8))
    assert "-2:8,-1:9,0:10" in offsets.render()


def test_what_came_out_of_order_is_forgotten_with_the_rest() -> None:
    offsets = filled(("T", "g", 1, 1), ("T", "g", 0, 1))
    offsets.remove_group("g")
    assert offsets.to_body().offset_table == {}
    offsets.commit(HOST, "g", "T", 5, ConsumerOffset(5))
    assert offsets.to_body().offset_table == {"T@g": {5: 5}}
