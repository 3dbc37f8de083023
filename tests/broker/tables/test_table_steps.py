"""Tables are gone through in steps: each does a bounded part of the work, and the result is that of
doing all at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.tables import versioned
from rmq.broker.tables.consumer_offsets import ConsumerOffsets
from rmq.broker.tables.order import spread_hash, table_order, table_order_in_steps
from rmq.model.offsets import ConsumerOffset, QueueOffset
from tests.broker.tables.table_kit import finish, group_table, topic_table

if TYPE_CHECKING:
    from collections.abc import Generator

    import pytest

T = TypeVar("T")

PAIRS = 20_000


def counted(steps: Generator[None, None, T]) -> tuple[int, T]:
    """Do all steps; return how many there were, and the result."""
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


def many_offsets() -> ConsumerOffsets:
    offsets = ConsumerOffsets(lambda: 1)
    for number in range(PAIRS):
        group, topic = f"group-{number // 2}", f"topic-{number % 2}"
        offsets.commit("host", group, topic, 0, ConsumerOffset(number))
    return offsets


# --- the order of names ---------------------------------------------------------------------------


@given(st.lists(st.text(max_size=4), max_size=200, unique=True), st.sampled_from([16, 64, 2048]))
def test_the_order_found_in_steps_is_that_found_at_once(names: list[str], size: int) -> None:
    hashes = {name: spread_hash(name) for name in names}
    assert finish(table_order_in_steps(hashes, size)) == table_order(hashes, size)


def test_the_order_of_many_names_is_found_in_many_steps() -> None:
    hashes = {f"topic-{number}@group": spread_hash(f"{number}") for number in range(PAIRS)}
    steps, order = counted(table_order_in_steps(hashes, 1024))
    assert order == table_order(hashes, 1024)
    assert steps > PAIRS // 2000


# --- consumer offsets -----------------------------------------------------------------------------


def test_names_among_many_offsets_are_found_in_steps() -> None:
    offsets = many_offsets()
    for finding, expected in (
        (offsets.finding_topics("group-7"), offsets.topics_of("group-7")),
        (offsets.finding_groups("topic-1"), offsets.groups_of("topic-1")),
    ):
        steps, found = counted(finding)
        assert found == expected
        assert steps >= PAIRS // 2000
    steps, topics = counted(offsets.finding_topics_by_group())
    assert topics["group-7"] == ["topic-0", "topic-1"]
    assert len(topics) == PAIRS // 2
    assert steps >= PAIRS // 2000
    steps, lowest = counted(offsets.finding_min_offsets("topic-1", None, lambda *_: QueueOffset(0)))
    assert lowest == {0: 1}
    assert steps >= PAIRS // 2 // 500


def test_offsets_are_found_while_others_come_and_go() -> None:
    offsets = many_offsets()
    finding = offsets.finding_min_offsets("topic-1", None, lambda *_: QueueOffset(0))
    for _ in range(12):
        next(finding)
    offsets.remove_group("group-0")
    offsets.commit("host", "new", "topic-1", 0, ConsumerOffset(0))
    assert finish(finding) in ({0: 1}, {0: 3})


def test_an_order_found_while_pairs_come_and_go_is_not_kept() -> None:
    offsets = many_offsets()
    pieces = offsets.encode_pieces()
    begun = [next(pieces) for _ in range(5)]
    offsets.commit("host", "late", "topic-0", 0, ConsumerOffset(5))
    offsets.remove_group("group-3")
    text = b"".join([*begun, *pieces])
    assert b'@group-3"' not in text
    after = ConsumerOffsets(lambda: 1)
    assert after.load(offsets.render()) == PAIRS - 2 + 1
    assert offsets.encode() == offsets.to_body().encode()
    assert b"topic-0@late" in offsets.encode()


# --- topics and groups ----------------------------------------------------------------------------


def test_the_file_of_many_new_groups_is_prepared_in_steps() -> None:
    groups = group_table()
    for number in range(500):
        groups.find(f"group-{number}")
    pieces = list(groups.render_pieces())
    assert len(pieces) > 500 // 16
    assert "".join(pieces) == groups.render()
    # What is known by then is not made again.
    groups.find("one-more")
    assert len(list(groups.render_pieces())) == 1


def test_a_group_that_comes_while_the_file_is_prepared_is_in_it() -> None:
    groups = group_table()
    for number in range(100):
        groups.find(f"group-{number}")
    pieces = groups.render_pieces()
    next(pieces)
    groups.find("late")
    groups.delete("group-99")
    assert "".join(pieces) == groups.render()


def test_many_topics_are_encoded_in_steps_and_once_per_change() -> None:
    topics = topic_table()
    for number in range(500):
        topics.create_on_send_back(f"topic-{number}", 1)
    steps, body = counted(topics.encoding())
    assert body == topics.to_body().encode()
    assert steps > 500 // 32
    assert counted(topics.encoding()) == (1, body)
    topics.delete("topic-3")
    _, later = counted(topics.encoding())
    assert later == topics.to_body().encode() != body


def test_what_was_encoded_while_the_table_changed_is_the_table_of_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versioned, "_ENTRIES_PER_STEP", 1)
    topics = topic_table()
    encoding = topics.encoding()
    next(encoding)
    topics.create_on_send_back("late", 1)
    assert finish(encoding) == topics.to_body().encode()
    assert finish(topics.encoding()) == topics.to_body().encode()
