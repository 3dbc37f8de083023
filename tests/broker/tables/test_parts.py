"""Tables in parts: what is there all the time comes, whatever happens between two parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.tables import offset_parts
from rmq.broker.tables.consumer_offsets import ConsumerOffsets
from rmq.broker.tables.offset_resets import OffsetResets
from rmq.broker.tables.offset_tables import OffsetTables
from rmq.broker.tables.offsets_body import SharedOffsets
from rmq.broker.tables.parts import PART_BYTES_MAX, Place, WantedPart, place_now, wanted_part
from rmq.model.offsets import ConsumerOffset
from rmq.remoting.bodies import (
    ConsumerOffsetSerializeWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tests.broker.tables.table_kit import Clock, finish, topic_table

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "192.0.2.1:50000"
OWN = frozenset({"own@checker", "op@checker"})


def parts_of(
    offsets: ConsumerOffsets,
    bytes_max: int = 1,
    between: Callable[[], None] = lambda: None,
) -> list[SharedOffsets]:
    """Return all parts of a table, doing something between each two."""
    found: list[SharedOffsets] = []
    place = ""
    while True:
        part = finish(offsets.part(WantedPart(bytes_max, place), OWN))
        found.append(SharedOffsets.decode(part.body))
        place = part.next_place
        if not place:
            return found
        between()


def filled(*keys: str, queues: int = 1) -> ConsumerOffsets:
    offsets = ConsumerOffsets(Clock())
    table = {key: dict.fromkeys(range(queues), number) for number, key in enumerate(keys)}
    offsets.merge(ConsumerOffsetSerializeWrapper(offset_table=table))
    return offsets


# --- requests ------------------------------------------------------------------------------------


def test_a_request_without_the_fields_asks_for_everything() -> None:
    assert wanted_part({}) is None
    assert wanted_part({"logEnd": "", "partFrom": "1:2:3"}) is None


def test_a_request_says_how_much_and_from_where() -> None:
    assert wanted_part({"partBytes": "1000"}) == WantedPart(1000, "")
    assert wanted_part({"partBytes": "0", "partFrom": "1:2:3"}) == WantedPart(1, "1:2:3")
    assert wanted_part({"partBytes": "9999999999", "partFrom": "1:2:3:-4"}) == WantedPart(
        PART_BYTES_MAX, "1:2:3:-4"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"partBytes": ""},
        {"partBytes": "-1"},
        {"partBytes": "1e3"},
        {"partBytes": "12345678901"},
        {"partBytes": "1", "partFrom": "x"},
        {"partBytes": "1", "partFrom": "1:2"},
        {"partBytes": "1", "partFrom": "1:2:3:"},
        {"partBytes": "1", "partFrom": "1:-2:3"},
    ],
    ids=str,
)
def test_fields_that_make_no_sense_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="is not"):
        wanted_part(fields)


def test_a_place_moves_up_by_what_was_removed_before_it() -> None:
    place = Place(table=7, removed=2, position=10, queue=4)
    assert place_now(place.text(), 7, 2) == place
    assert place_now(place.text(), 7, 5) == Place(7, 5, 7)
    assert place_now(place.text(), 7, 50) == Place(7, 50, 0)
    assert place_now(place.text(), 8, 2) == Place(8, 2, 0), "after a restart from the beginning"
    assert place_now(place.text(), 7, 1) == Place(7, 1, 0)
    assert place_now("", 7, 2) == Place(7, 2, 0)


# --- offsets -------------------------------------------------------------------------------------


def test_parts_together_are_the_table() -> None:
    offsets = filled(*(f"t@g{number}" for number in range(100)))
    parts = parts_of(offsets, 200)
    assert 5 < len(parts) < 20
    together: dict[str, dict[int, int]] = {}
    for part in parts:
        assert not together.keys() & part.offset_table.keys()
        together |= part.offset_table
    assert together == offsets.to_body().offset_table
    assert parts_of(filled()) == [SharedOffsets()]


def test_the_progress_of_the_broker_is_in_the_last_part() -> None:
    offsets = filled("own@checker", "t@a", "op@checker", "t@b")
    offsets.reset(HOST, "checker", "own", 0, ConsumerOffset(-5))
    parts = parts_of(offsets)
    assert [set(part.offset_table) for part in parts] == [{"t@a"}, {"t@b"}, OWN]
    assert [set(part.resets) for part in parts] == [set(), set(), {"own@checker"}]


def test_a_pair_of_many_queues_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_parts, "QUEUES_PER_ROW", 10)
    offsets = filled("t@a", "t@b", "t@c", queues=25)
    for queue in (3, 12, 24):
        offsets.commit(HOST, "b", "t", queue, ConsumerOffset(90))
        offsets.reset(HOST, "b", "t", queue, ConsumerOffset(7))
    parts = parts_of(offsets, 10_000)
    assert [{key: len(table) for key, table in part.offset_table.items()} for part in parts] == [
        {"t@a": 10},
        {"t@a": 10},
        {"t@a": 5, "t@b": 10},
        {"t@b": 10},
        {"t@b": 5, "t@c": 10},
        {"t@c": 10},
        {"t@c": 5},
    ]
    assert [sorted(part.resets.get("t@b", ())) for part in parts[2:5]] == [[3], [12], [24]]
    slave = filled("t@b", queues=25)
    slave.merge(SharedOffsets(offset_table={"t@b": dict.fromkeys(range(25), 80)}))
    for part in parts:
        slave.merge(part)
    assert slave.offsets("b", "t") == dict.fromkeys(range(25), 80) | {3: 7, 12: 7, 24: 7}


def test_a_part_has_few_resets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_parts, "RESETS_BYTES_MAX", 100)
    offsets = filled(*(f"t@g{number}" for number in range(100)))
    for number in range(100):
        offsets.remove_group(f"g{number}")
    parts = parts_of(offsets, 1_000_000)
    assert len(parts) > 10
    assert sum(len(part.resets) for part in parts) == 100
    slave = filled(*(f"t@g{number}" for number in range(100)))
    for part in parts:
        slave.merge(part)
    assert len(slave) == 0


def test_resets_that_are_forgotten_between_two_parts_hide_no_others() -> None:
    clock = Clock()
    resets = OffsetResets(clock, count_max=20)
    tables = OffsetTables()
    found: set[str] = set()

    def note(*groups: str) -> None:
        for group in groups:
            clock.now_ms += 1
            resets.note(f"t@{group}", [0])

    def part(place: str) -> str:
        made = finish(offset_parts.offsets_part(tables, resets, WantedPart(150, place), OWN, 1))
        found.update(SharedOffsets.decode(made.body).resets)
        return made.next_place

    note(*(f"old-{number}" for number in range(10)), *(f"kept-{number}" for number in range(10)))
    place = part("")
    assert "t@old-0" in found
    assert "t@old-9" not in found
    note("new")  # one too many: the older half is forgotten
    assert "t@old-9" not in resets.table()
    while place:
        place = part(place)
    assert found > {f"t@kept-{number}" for number in range(1, 10)} | {"t@new"}


keys = st.sampled_from([f"t@g{number}" for number in range(8)])
actions = st.lists(
    st.tuples(st.sampled_from(["commit", "reset", "remove"]), keys, st.integers(0, 3)), max_size=6
)


@given(
    st.lists(st.tuples(keys, st.integers(0, 3), st.integers(0, 50)), max_size=12),
    st.lists(actions, max_size=12),
    st.integers(1, 60),
)
def test_whatever_happens_between_parts_the_rest_is_copied(
    rows: list[tuple[str, int, int]],
    rounds: list[list[tuple[str, str, int]]],
    bytes_max: int,
) -> None:
    master, slave = ConsumerOffsets(Clock()), ConsumerOffsets(Clock())
    for key, queue, offset in rows:
        master.commit(HOST, key[2:], "t", queue, ConsumerOffset(offset))
    for part in parts_of(master):
        slave.merge(part)
    assert slave.to_body().offset_table == master.to_body().offset_table
    touched: set[str] = set()
    todo = list(rounds)

    def between() -> None:
        for what, key, queue in todo.pop(0) if todo else ():
            group = key[2:]
            touched.add(key)
            if what == "remove":
                master.remove_group(group)
            elif what == "commit":
                master.commit(
                    HOST,
                    group,
                    "t",
                    queue,
                    ConsumerOffset(max(60, master.query(group, "t", queue) + 1)),
                )
            else:
                master.reset(HOST, group, "t", queue, ConsumerOffset(1))

    fresh = ConsumerOffsets(Clock())
    for part in parts_of(master, bytes_max, between):
        slave.merge(part)
        fresh.merge(part)
    table = master.to_body().offset_table
    for key in table.keys() - touched:
        assert fresh.to_body().offset_table[key] == table[key]
    # And what was touched is put right by the next copy.
    for part in parts_of(master, bytes_max):
        slave.merge(part)
    assert slave.to_body().offset_table == table


# --- topics and groups ---------------------------------------------------------------------------


@given(st.lists(st.integers(0, 20), max_size=10), st.integers(1, 800))
def test_topics_that_stay_are_in_some_part(removed: list[int], bytes_max: int) -> None:
    topics = topic_table()
    for number in range(21):
        topics.put(TopicConfig(topic_name=f"Topic-{number}", read_queue_nums=number))
    todo = list(removed)
    found: dict[str, TopicConfig] = {}
    place = ""
    while True:
        part = finish(topics.part(WantedPart(bytes_max, place)))
        body = TopicConfigSerializeWrapper.decode(part.body)
        assert body.data_version == topics.version
        found |= body.topic_config_table
        place = part.next_place
        if not place:
            break
        if todo:
            topics.delete(f"Topic-{todo.pop(0)}")
    for name, topic in topics.items():
        assert found[name] == topic


def test_a_part_is_written_like_the_whole() -> None:
    topics = topic_table()
    part = finish(topics.part(WantedPart(1_000_000, "")))
    assert part.next_place == ""
    assert TopicConfigSerializeWrapper.decode(part.body) == topics.to_body()
    assert len(part.body) == len(finish(topics.encoding()))
