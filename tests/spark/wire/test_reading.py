"""What a task reads: every offset once, whatever the broker does; or an error that says what."""

from __future__ import annotations

import logging
import multiprocessing
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rmq.errors import ConnectFailedError
from rmq.remoting.codes import ResponseCode
from rmq.spark.schema import arrow_schema
from rmq.spark.wire import clients, reading
from rmq.spark.wire.data_loss import DataLossError
from rmq.spark.wire.planning import Range
from rmq.spark.wire.reading import BadRangeError, read_range
from tests.spark.wire.played_queue import QUEUE, PlayedQueue, played_queue, record

if TYPE_CHECKING:
    from rmq.remoting.command import Command
    from rmq.spark.wire.settings import SourceOptions
    from tests.client.blocking.scripted_peer import Link


def offsets(options: SourceOptions, start: int, end: int) -> list[int]:
    """Return the offsets that a task reads, having seen that their bodies belong to them."""
    found = pa.Table.from_batches(
        read_range(options, Range(QUEUE, start, end)), arrow_schema(options.columns)
    )
    numbers: list[int] = found["queueOffset"].to_pylist()
    assert found["body"].to_pylist() == [b"%d" % number for number in numbers]
    return numbers


# --- a broker that is played -----------------------------------------------------------------


def test_a_range_is_read_exactly() -> None:
    with played_queue() as queue:
        for start, end in ((0, 100), (3, 4), (7, 93), (99, 100)):
            assert offsets(queue.options(), start, end) == list(range(start, end))


def test_batches_have_as_many_rows_as_they_may() -> None:
    with played_queue() as queue:
        for rows, expected in ((1000, [100]), (40, [40, 40, 20]), (3, [3, 3, 3, 1] * 10)):
            options = queue.options(batchRows=str(rows), columns="body")
            batches = list(read_range(options, Range(QUEUE, 0, 100)))
            assert [batch.num_rows for batch in batches] == expected
            assert batches[0].schema == arrow_schema(["body"])


def test_what_is_gathered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "GATHERED_BYTES_MAX", 20 * len(record(0)))
    with played_queue() as queue:
        batches = list(read_range(queue.options(), Range(QUEUE, 0, 100)))
        assert [batch.num_rows for batch in batches] == [20, 20, 20, 20, 20]


def test_messages_that_are_deleted_while_they_are_read_are_a_loss() -> None:
    with played_queue() as queue:

        def delete(link: Link, request: Command) -> None:
            queue.first = 47
            queue.answer(link, request)

        queue.failures[30] = delete
        with pytest.raises(DataLossError) as caught:
            offsets(queue.options(), 0, 100)
        said = str(caught.value)
        for word in (
            "topic Scripted, broker a, queue 0",
            "30 to 47",
            "retention",
            "failOnDataLoss",
        ):
            assert word in said
        queue.first = 0
        queue.failures[30] = delete
        found = offsets(queue.options(failOnDataLoss="false"), 0, 100)
        assert found == [*range(30), *range(47, 100)]


def test_a_queue_that_begins_with_a_deleted_file_is_read_on_behind_it() -> None:
    """A stock broker whose queue has lost all messages keeps its first offset, deletes the file of
    the queue, and answers PULL_NOT_FOUND with the next file; new messages may come behind it."""
    with played_queue() as queue:
        queue.deleted, queue.missing = range(30), set(range(30, 60))
        assert offsets(queue.options(failOnDataLoss="false"), 0, 100) == list(range(60, 100))
        with pytest.raises(DataLossError, match=r"offsets 0 to 60 are missing"):
            offsets(queue.options(), 0, 100)


def test_an_end_that_is_lowered_while_it_is_read_is_a_loss() -> None:
    with played_queue(end=35) as queue:
        with pytest.raises(DataLossError, match=r"35 to 100 are missing: it ends at 35.*failover"):
            offsets(queue.options(), 0, 100)
        assert offsets(queue.options(failOnDataLoss="false"), 0, 100) == list(range(35))


def test_a_topic_that_is_deleted_while_it_is_read_is_a_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def deleted(link: Link, request: Command) -> None:
        remark = "topic[Scripted] not exist, apply first please!"
        link.answer(request, code=ResponseCode.TOPIC_NOT_EXIST, remark=remark)

    with played_queue() as queue:
        queue.failures[30] = deleted
        with pytest.raises(DataLossError) as caught:
            offsets(queue.options(), 0, 100)
        for words in (
            "topic Scripted, broker a, queue 0",
            "30 to 100",
            "the topic was deleted",
            "failOnDataLoss",
        ):
            assert words in str(caught.value)
        queue.failures[30] = deleted
        assert offsets(queue.options(failOnDataLoss="false"), 0, 100) == list(range(30))
        assert "offsets 30 to 100 are missing: the topic was deleted" in caplog.text


@pytest.mark.parametrize(
    "missing", [{0}, {55}, {99}, set(range(40, 60)), set(range(95, 100)), {3, 4, 77}], ids=str
)
def test_a_gap_is_a_loss(missing: set[int]) -> None:
    with played_queue() as queue:
        queue.missing = missing
        with pytest.raises(DataLossError, match=f"offsets {min(missing)} to .* are missing"):
            offsets(queue.options(), 0, 100)
        found = offsets(queue.options(failOnDataLoss="false"), 0, 100)
        assert found == [number for number in range(100) if number not in missing]


def test_losses_that_are_passed_over_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with played_queue() as queue:
        queue.missing = {55}
        with caplog.at_level(logging.WARNING):
            offsets(queue.options(failOnDataLoss="false"), 0, 100)
    assert "queue 0: offsets 55 to 56 are missing" in caplog.text


def test_by_a_filter_gaps_are_no_loss_and_tags_are_compared() -> None:
    # To Java, the hashes of these two are the same: the broker sends both.
    tags = {0: b"TAGS\x01Aa", 1: b"TAGS\x01BB", 2: b""}
    with played_queue() as queue:
        queue.record = lambda at: record(at, properties=tags[at % 3])
        queue.missing = set(range(2, 100, 3))
        assert offsets(queue.options(tags="BB"), 0, 90) == list(range(1, 90, 3))
        assert offsets(queue.options(tags="Aa || BB"), 2, 12) == [3, 4, 6, 7, 9, 10]
        options = queue.options(tags="Aa", columns="queueId", batchRows="7")
        batches = list(read_range(options, Range(QUEUE, 0, 100)))
        assert sum(batch.num_rows for batch in batches) == 34
        assert max(batch.num_rows for batch in batches) <= 7
        # But for those that the broker says are gone.
        queue.missing |= set(range(40, 60))
        with pytest.raises(DataLossError, match="offsets 40 to 50 are missing"):
            offsets(queue.options(tags="BB"), 0, 90)


def test_messages_that_come_twice_are_refused() -> None:
    with played_queue() as queue:
        queue.record = lambda at: record(min(at, 33))
        for options in (queue.options(), queue.options(tags="TagA")):
            with pytest.raises(BadRangeError, match="not in order"):
                offsets(options, 0, 100)


@pytest.mark.parametrize(
    ("fields", "why"),
    [({"magic": 5}, "magic"), ({"total_size": 7}, "size"), ({"body_crc": 5}, "CRC")],
    ids=str,
)
def test_damage_is_named(fields: dict[str, int], why: str) -> None:
    with played_queue() as queue:
        queue.record = lambda at: record(at, **(fields if at == 42 else {}))
        with pytest.raises(BadRangeError, match=why) as caught:
            offsets(queue.options(), 0, 100)
        assert "topic Scripted, broker a, queue 0" in str(caught.value)


def test_a_broker_that_comes_back_is_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "PAUSE_S", 0.01)

    def lose(link: Link, request: Command) -> None:
        link.close()

    with played_queue() as queue:
        queue.failures.update({0: lose, 30: lose, 90: lose})
        assert offsets(queue.options(), 0, 100) == list(range(100))


def test_a_broker_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "PAUSE_S", 0.01)
    with played_queue() as queue:
        assert queue.cluster is not None
        peer = queue.cluster["a"].peer
        assert peer is not None
        peer.close()
        with pytest.raises(ConnectFailedError):
            offsets(queue.options(), 0, 100)
        assert not clients._open, "the next task has a client of its own"


# --- clients that are kept -------------------------------------------------------------------


def test_a_client_is_kept_and_after_an_error_it_is_not() -> None:
    with played_queue() as queue:
        options = queue.options()
        offsets(options, 0, 10)
        (kept,) = clients._open.values()
        reader = read_range(options, Range(QUEUE, 0, 100))
        next(reader)
        # As Spark does that has enough rows.
        del reader
        offsets(queue.options(), 0, 10)
        assert list(clients._open.values()) == [kept]
        offsets(queue.options(consumerGroup="another"), 0, 10)
        assert len(clients._open) == 2
        queue.end = 5
        with pytest.raises(DataLossError):
            offsets(options, 0, 10)
        assert kept not in clients._open.values()
        assert not kept.client.is_open
        clients.close_clients()
        assert not clients._open


def test_clients_that_are_kept_are_few() -> None:
    with played_queue() as queue:
        for number in range(clients.CLIENTS_MAX + 3):
            offsets(queue.options(consumerGroup=f"g{number}"), 0, 10)
        groups = [consumer.group for consumer in clients._open.values()]
        assert groups == [f"g{number}" for number in range(3, clients.CLIENTS_MAX + 3)]


def _read_in_child(queue: PlayedQueue, found: multiprocessing.Queue[list[int]]) -> None:
    found.put(offsets(queue.options(), 0, 100))


def test_a_forked_process_goes_on_with_connections_of_its_own() -> None:
    with played_queue() as queue:
        reader = read_range(queue.options(batchRows="10"), Range(QUEUE, 0, 100))
        next(reader)
        forks = multiprocessing.get_context("fork")
        found: multiprocessing.Queue[list[int]] = forks.Queue()
        child = forks.Process(target=_read_in_child, args=(queue, found))
        child.start()
        assert found.get(timeout=20) == list(range(100))
        child.join()
        assert sum(batch.num_rows for batch in reader) == 90
