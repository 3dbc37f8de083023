"""Both readers as Spark uses them, on a real master and its slave, without Spark.

Spark hands offsets over as JSON and compares them as text, calls `initialOffset` more than once,
and makes a new reader after a restart; so do these tests.
"""

from __future__ import annotations

import json
import pickle
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from rmq.errors import ClientError, ConfigError, NoNameserverError
from rmq.spark.schema import arrow_schema
from rmq.spark.wire import batch as batches
from rmq.spark.wire import stream
from rmq.spark.wire.batch import RocketmqBatchReader
from rmq.spark.wire.data_loss import DataLossError
from rmq.spark.wire.planning import Range
from rmq.spark.wire.positions import as_offset, read_offset
from rmq.spark.wire.progress import commit_progress
from rmq.spark.wire.reading import read_range
from rmq.spark.wire.settings import SourceOptions
from rmq.spark.wire.stream import RocketmqStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import InputPartition

    from tests.spark.wire.wire_cluster import WireCluster

Offset = dict[str, Any]
ALL = ReadAllAvailable()


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def as_spark(offset: Offset) -> Offset:
    """Return an offset as it comes back from Spark."""
    found: Offset = json.loads(json.dumps(offset))
    return found


def read(
    reader: RocketmqBatchReader | RocketmqStreamReader, partitions: Sequence[InputPartition]
) -> list[int]:
    """Return the bodies that tasks read, with a reader of their own as in Spark."""
    copy = pickle.loads(pickle.dumps(reader))
    return [
        int(body)
        for partition in pickle.loads(pickle.dumps(list(partitions)))
        for batch in copy.read(partition)
        for body in batch.column("body").to_pylist()
    ]


class Query:
    """A streaming query, as far as its source sees it."""

    def __init__(self, options: SourceOptions, checkpoint: list[Offset]) -> None:
        self.reader = RocketmqStreamReader(options)
        self.checkpoint = checkpoint
        """The ends of all batches."""

    def run(self) -> list[int]:
        """Read what there is, as with the trigger availableNow; return it in order."""
        self.reader.prepareForTriggerAvailableNow()
        found: list[int] = []
        for _ in range(50):
            bodies = self.step()
            if bodies is None:
                return sorted(found)
            found += bodies
        raise AssertionError(f"no end is in sight: {self.checkpoint[-3:]}")

    def step(self) -> list[int] | None:
        """Plan a batch and read it; None if there is nothing to do."""
        start = self.checkpoint[-1] if self.checkpoint else as_spark(self.reader.initialOffset())
        end = as_spark(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        if self.checkpoint and json.dumps(end) == json.dumps(self.checkpoint[-1]):
            return None
        self.checkpoint.append(end)
        return self.replay()

    def replay(self) -> list[int]:
        """Read the last batch of the checkpoint."""
        *before, end = self.checkpoint
        start = before[-1] if before else as_spark(self.reader.initialOffset())
        return read(self.reader, self.reader.partitions(start, end))


# --- batches ---------------------------------------------------------------------------------


def batch(cluster: WireCluster, **options: str) -> list[int]:
    reader = RocketmqBatchReader(cluster.source(**options))
    return sorted(read(reader, reader.partitions()))


def test_messages_are_read_as_they_are(cluster: WireCluster) -> None:
    cluster.create_topic("Reading")
    bodies = numbers(0, 3000)
    cluster.send("Reading", bodies[:1000], tag="a")
    cluster.send("Reading", bodies[1000:2000], tag="BB")
    cluster.send("Reading", bodies[2000:], tag="Aa")
    part = Range(cluster.queue("Reading"), 10, 2900)

    def table(**options: str) -> pa.Table:
        source = cluster.source(subscribe="Reading", **options)
        return pa.Table.from_batches(read_range(source, part), arrow_schema(source.columns))

    found = table()
    assert found["body"].to_pylist() == bodies[10:2900]
    assert set(found["topic"].to_pylist()) == {"Reading"}
    expected = cluster.messages("Reading")[10:2900]
    assert found["msgId"].to_pylist() == [message.message_id for message in expected]
    assert found["tags"].to_pylist() == [message.tag for message in expected]
    assert table(tags="BB", columns="body")["body"].to_pylist() == bodies[1000:2000]
    some = table(tags="a || Aa")
    assert some["queueOffset"].to_pylist() == [*range(10, 1000), *range(2000, 2900)]
    part = Range(cluster.queue("NoSuchTopic"), 0, 1)
    with pytest.raises(ClientError, match="topic NoSuchTopic: no broker has it"):
        table(pullRetries="0")


def test_topics_and_queues_are_chosen(cluster: WireCluster) -> None:
    for number, topic in enumerate(("ChooseA", "ChooseB", "%RETRY%ChooseA")):
        cluster.create_topic(topic, queues=2)
        for queue_id in range(2):
            first = 100 * number + 10 * queue_id
            cluster.send(topic, numbers(first, first + 10), queue_id)
    a, b, retry = range(20), range(100, 120), range(200, 220)
    assert batch(cluster, subscribe="ChooseA") == [*a]
    assert batch(cluster, subscribe="ChooseA,%RETRY%ChooseA") == [*a, *retry]
    assert batch(cluster, subscribePattern="Choose[AB]") == [*a, *b]
    assert batch(cluster, subscribePattern=".*Choose.*") == [*a, *b]
    everything = batch(cluster, subscribePattern=".*Choose.*", includeSystemTopics="true")
    assert everything == [*a, *b, *retry]
    assert batch(cluster, subscribePattern="NothingLikeIt.*") == []
    one = '{"ChooseB": {"broker-a": [1]}}'
    assert batch(cluster, assign=one) == [*range(110, 120)]
    assert batch(cluster, subscribe="ChooseA", minPartitions="7") == [*a]
    reader = RocketmqBatchReader(cluster.source(subscribe="ChooseA", minPartitions="7"))
    assert len(reader.partitions()) == 7
    with pytest.raises(ConfigError, match="there is no topic ChooseB, broker broker-a, queue 2"):
        batch(cluster, assign='{"ChooseB": {"broker-a": [1, 2]}}')


def test_a_topic_that_does_not_exist_is_told_with_near_ones(cluster: WireCluster) -> None:
    cluster.create_topic("Shipments")
    with pytest.raises(ConfigError) as caught:
        batch(cluster, subscribe="Shipment")
    assert "subscribe: topic Shipment does not exist" in str(caught.value)
    assert "did you mean Shipments?" in str(caught.value)


def test_a_nameserver_that_is_not_there_is_told_soon() -> None:
    options = SourceOptions({"nameservers": "127.0.0.1:1", "subscribe": "T"})
    started = time.monotonic()
    with pytest.raises(NoNameserverError, match="do the nameservers run") as caught:
        RocketmqBatchReader(options).partitions()
    assert "127.0.0.1:1" in str(caught.value)
    assert time.monotonic() - started < 10


def test_a_batch_starts_and_ends_where_it_is_told(cluster: WireCluster) -> None:
    cluster.create_topic("Bounds", queues=2)
    cluster.send("Bounds", numbers(0, 50), 0)
    cluster.send("Bounds", numbers(50, 100), 1)
    cluster.commit("readers", "Bounds", {0: 20, 1: 30})

    def at(first: int, second: int) -> str:
        return json.dumps({"Bounds": {"broker-a": {"0": first, "1": second}}})

    def bounds(**options: str) -> list[int]:
        return batch(cluster, subscribe="Bounds", **options)

    assert bounds(startingOffsets=at(10, -2), endingOffsets=at(-1, 5)) == [*range(10, 55)]
    waiting = [*range(20, 50), *range(80, 100)]
    assert bounds(startingOffsets="group", group="readers") == waiting
    consumed = [*range(20), *range(50, 80)]
    assert bounds(endingOffsets="group", group="readers") == consumed
    assert bounds(startingOffsets="group", group="nobody") == [*range(100)]
    assert bounds(startingOffsets=at(40, 40), endingOffsets="group", group="readers") == []
    with pytest.raises(ConfigError, match=r"no offset is given for topic Bounds, .* queue 1"):
        bounds(startingOffsets='{"Bounds": {"broker-a": {"0": 1}}}')
    with pytest.raises(DataLossError, match="offset 51 is asked for, and it ends at 50"):
        bounds(startingOffsets=at(51, 0))
    with pytest.raises(DataLossError, match=r"it had offsets up to 51, and ends at 50 now"):
        bounds(endingOffsets=at(51, 0))
    assert bounds(startingOffsets=at(51, 0), failOnDataLoss="false") == [*range(50, 100)]
    assert bounds(endingOffsets=at(51, 2), failOnDataLoss="false") == [*range(52)]


def test_times_are_found_exactly(cluster: WireCluster) -> None:
    cluster.create_topic("Times")
    sent = 0
    for size in (700, 1, 300, 999, 5):
        # Each batch is stored within one millisecond.
        cluster.send("Times", numbers(sent, sent + size))
        sent += size
    stored = [message.stored_at_ms for message in cluster.messages("Times")]
    assert stored == sorted(stored)
    moments = sorted(set(stored))
    assert max(stored.count(moment) for moment in moments) >= 300

    def from_time(**options: str) -> list[int]:
        return batch(cluster, subscribe="Times", **options)

    for moment in {*moments, moments[0] - 1, moments[-1] - 1, moments[1] + 1}:
        first = sum(stored_ms < moment for stored_ms in stored)
        assert from_time(startingTimestamp=str(moment)) == [*range(first, sent)]
        assert from_time(endingTimestamp=str(moment)) == [*range(first)]
    late = str(moments[-1] + 1)
    assert from_time(endingTimestamp=late) == [*range(sent)]
    with pytest.raises(ConfigError, match=r"startingTimestamp: .* nothing was stored at"):
        from_time(startingTimestamp=late)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert from_time(startingTimestamp=late, **latest) == []
    assert from_time(startingTimestamp=str(moments[0]), endingTimestamp=late) == [*range(sent)]


# --- streams ---------------------------------------------------------------------------------


def test_a_stream_reads_in_limits_and_goes_on_after_a_restart(cluster: WireCluster) -> None:
    cluster.create_topic("Limits", queues=3)
    cluster.send("Limits", numbers(0, 500), 0)
    cluster.send("Limits", numbers(500, 510), 1)
    options = cluster.source(
        subscribe="Limits", startingOffsets="earliest", maxOffsetsPerTrigger="100"
    )
    checkpoint: list[Offset] = []
    assert Query(options, checkpoint).run() == [*range(510)]
    sizes = [sum(read_offset(end).values()) for end in checkpoint]
    assert sizes == [0, 100, 200, 300, 400, 500, 510], "the first batch only pins the start"
    assert Query(options, checkpoint).run() == []
    cluster.send("Limits", numbers(510, 520), 2)
    cluster.create_topic("Limits", queues=4)
    cluster.send("Limits", numbers(520, 530), 3)
    assert Query(options, checkpoint).run() == [*range(510, 530)]
    assert read_offset(checkpoint[-1])[cluster.queue("Limits", 3)] == 10


def test_the_start_of_the_first_batch_is_kept(cluster: WireCluster) -> None:
    cluster.create_topic("Pinned")
    cluster.send("Pinned", numbers(0, 10))
    options = cluster.source(subscribe="Pinned", startingOffsets="latest")
    query = Query(options, [])
    assert query.step() == []
    cluster.send("Pinned", numbers(10, 20))
    # The process died before the first batch was done; Spark asks for the start once more, and
    # gets another one.
    again = Query(options, query.checkpoint)
    assert read_offset(again.reader.initialOffset()) != read_offset(query.checkpoint[0])
    assert again.replay() == []
    assert again.run() == [*range(10, 20)]


def test_a_query_that_stopped_at_its_start_reads_what_came_since(cluster: WireCluster) -> None:
    cluster.create_topic("Stopped")
    options = cluster.source(subscribe="Stopped", startingOffsets="earliest")
    checkpoint: list[Offset] = []
    assert Query(options, checkpoint).run() == []
    assert checkpoint == [{"Stopped": {"broker-a": {"0": 0}}}]
    cluster.send("Stopped", numbers(0, 10))
    again = Query(options, checkpoint)
    # As Spark tells a reader where it was.
    assert again.reader.partitions(checkpoint[-1], checkpoint[-1]) == []
    assert again.run() == [*range(10)]


def test_what_comes_after_a_bounded_query_began_is_left_for_the_next(cluster: WireCluster) -> None:
    cluster.create_topic("Frozen", queues=2)
    cluster.send("Frozen", numbers(0, 10))
    options = cluster.source(subscribe="Frozen", startingOffsets="earliest")
    query = Query(options, [])
    query.reader.prepareForTriggerAvailableNow()
    assert query.step() == []
    cluster.send("Frozen", numbers(10, 20))
    cluster.create_topic("Frozen", queues=3)
    cluster.send("Frozen", numbers(20, 30), 2)
    assert query.step() == [*range(10)]
    assert query.step() is None
    assert query.reader.reportLatestOffset() == {
        "Frozen": {"broker-a": {"0": 20, "1": 0, "2": 10}}
    }, "what waits can be seen all the same"
    assert Query(options, query.checkpoint).run() == [*range(10, 30)]


def test_offsets_of_a_stream_are_always_in_the_same_order(cluster: WireCluster) -> None:
    for topic in ("SortZ", "SortA"):
        cluster.create_topic(topic, queues=11)
    options = cluster.source(subscribe="SortZ,SortA", startingOffsets="earliest")
    reader = RocketmqStreamReader(options)
    initial = reader.initialOffset()
    shuffled = {
        topic: {name: dict(reversed(at.items())) for name, at in brokers.items()}
        for topic, brokers in reversed(as_offset(read_offset(initial)).items())
    }
    for offset in (initial, reader.latestOffset(shuffled, ALL)):
        assert json.dumps(offset) == json.dumps(offset, sort_keys=True)
    assert reader.latestOffset(shuffled, ReadMaxRows(5)) == shuffled


def test_a_checkpoint_of_another_topic_is_refused(cluster: WireCluster) -> None:
    cluster.create_topic("Mine")
    reader = RocketmqStreamReader(cluster.source(subscribe="Mine"))
    theirs = {"Theirs": {"broker-a": {"0": 7}}}
    for call in (
        lambda: reader.latestOffset(theirs, ALL),
        lambda: reader.partitions(theirs, theirs),
    ):
        with pytest.raises(ConfigError, match=r"topic Theirs, .*checkpointLocation of its own"):
            call()
    with pytest.raises(ConfigError, match="offset"):
        reader.latestOffset({"partition": 7}, ALL)


def test_a_group_is_told_how_far_the_query_is(cluster: WireCluster) -> None:
    cluster.create_topic("Told", queues=2)
    cluster.send("Told", numbers(0, 10), 1)
    given = cluster.options(subscribe="Told", commitGroup="watchers", startingOffsets="earliest")
    query = Query(SourceOptions(given), [])
    query.run()
    # Spark tells of a batch when it begins the next one: the last is not told of.
    query.reader.commit(query.checkpoint[-2])
    assert cluster.committed("watchers", "Told", 1) == 0
    end = json.dumps(query.checkpoint[-1])
    progress = {"sources": [{"endOffset": end}]}
    assert commit_progress(progress, given) == {
        cluster.queue("Told", 0): 0,
        cluster.queue("Told", 1): 10,
    }
    assert cluster.committed("watchers", "Told", 1) == 10
    commit_progress(progress, cluster.options(subscribe="Told"), "others")
    # Stock tools look for groups by their retry topics, which they have before any consumer.
    for group in ("watchers", "others"):
        cluster.wait_for_topic(f"%RETRY%{group}")
    assert cluster.committed("others", "Told", 1) == 10
    assert commit_progress(None, given) == {}
    assert commit_progress({"sources": [{"endOffset": "null"}]}, given) == {}
    for wrong, options, number in (
        (progress, cluster.options(subscribe="Told"), 0),
        (progress, given, 1),
        (progress, cluster.options(subscribe="Mine", commitGroup="g"), 0),
    ):
        with pytest.raises(ConfigError):
            commit_progress(wrong, options, source=number)


def test_a_group_that_cannot_be_told_is_no_reason_to_fail(
    cluster: WireCluster, caplog: pytest.LogCaptureFixture
) -> None:
    reader = RocketmqStreamReader(cluster.source(subscribe="Told", commitGroup="watchers"))
    reader.commit({"NoSuchTopic": {"broker-a": {"0": 7}}})
    reader.commit({"nonsense": 5})
    assert caplog.text.count("group watchers was not told how far the query is") == 2


# --- losses ----------------------------------------------------------------------------------


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is not waited for."""
    monkeypatch.setattr(stream, "PATIENCE_S", 0.0)


@pytest.mark.usefixtures("no_patience")
def test_a_topic_that_is_deleted_is_a_loss(cluster: WireCluster) -> None:
    for topic in ("Doomed", "Safe"):
        cluster.create_topic(topic)
        cluster.send(topic, numbers(0, 10))
    given = {"subscribePattern": "Doomed|Safe", "startingOffsets": "earliest"}
    query = Query(cluster.source(**given), [])
    query.run()
    planned = [*query.checkpoint, as_offset({**read_offset(query.checkpoint[-1])})]
    cluster.delete_topic("Doomed")
    cluster.send("Safe", numbers(10, 20))
    with pytest.raises(DataLossError, match=r"topic Doomed, .*: it is gone, read up to offset 10"):
        Query(cluster.source(**given), [*query.checkpoint]).run()
    lenient = cluster.source(**given, failOnDataLoss="false")
    checkpoint = [*query.checkpoint]
    assert Query(lenient, checkpoint).run() == [*range(10, 20)]
    assert read_offset(checkpoint[-1])[cluster.queue("Doomed")] == 10

    # A batch that was planned before.
    planned[-1]["Doomed"]["broker-a"]["0"] = 15
    with pytest.raises(DataLossError, match="it is gone, offset 15 was to be read up to"):
        Query(cluster.source(**given), planned).replay()
    assert Query(lenient, planned).replay() == []

    # Another topic of the same name: what is at these offsets now, nobody knows.
    cluster.create_topic("Doomed")
    cluster.send("Doomed", numbers(100, 105))
    with pytest.raises(DataLossError, match="it had offsets up to 10, and ends at 5 now"):
        Query(cluster.source(**given), [*query.checkpoint]).run()
    assert Query(lenient, checkpoint).run() == []
    assert read_offset(checkpoint[-1])[cluster.queue("Doomed")] == 5
    cluster.send("Doomed", numbers(105, 110))
    assert Query(lenient, checkpoint).run() == [*range(105, 110)]


def test_a_topic_that_is_deleted_while_a_task_reads_it_is_a_loss(cluster: WireCluster) -> None:
    for topic in ("Dying", "Dead"):
        cluster.create_topic(topic)
        cluster.send(topic, numbers(0, 3000))

    def reading(topic: str, fails: str) -> Iterator[pa.RecordBatch]:
        options = cluster.source(
            subscribe=topic, batchRows="32", pullBatchSize="32", failOnDataLoss=fails
        )
        yield from read_range(options, Range(cluster.queue(topic), 0, 3000))

    dying = reading("Dying", "true")
    assert next(dying).num_rows == 32
    cluster.delete_topic("Dying")
    with pytest.raises(DataLossError, match=r"topic Dying, .* missing: the topic was deleted"):
        list(dying)
    dead = reading("Dead", "false")
    assert next(dead).num_rows == 32
    cluster.delete_topic("Dead")
    assert sum(each.num_rows for each in dead) < 2900, "only what was under way already"


def test_a_topic_that_is_away_for_a_moment_is_waited_for(
    cluster: WireCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("Away")
    options = cluster.source(subscribe="Away", startingOffsets="earliest")
    checkpoint: list[Offset] = []
    Query(options, checkpoint).run()
    cluster.delete_topic("Away")
    waits = []

    def create_meanwhile(_self: object, _seconds: float) -> None:
        waits.append(1)
        if len(waits) == 2:
            cluster.create_topic("Away")
            cluster.send("Away", numbers(0, 10))

    monkeypatch.setattr("rmq.client.blocking.connections.Connections.sleep", create_meanwhile)
    query = Query(options, checkpoint)
    assert query.step() == [*range(10)]
    assert len(waits) >= 2


# --- failover: last, because it takes the master away ----------------------------------------


def test_reading_goes_on_at_the_slave_and_at_the_new_master(
    cluster: WireCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("Failover", queues=2)
    cluster.send("Failover", numbers(0, 5000), 0)
    cluster.send("Failover", numbers(5000, 10_000), 1)
    begun_ms = cluster.messages("Failover", 0)[0].stored_at_ms
    # The slave of a real pair knows topics within a moment.
    cluster.wait_in_sync()
    options = cluster.source(
        subscribe="Failover", startingOffsets="earliest", maxOffsetsPerTrigger="4000"
    )
    query = Query(options, [])
    query.reader.prepareForTriggerAvailableNow()
    assert query.step() == []
    found = query.step()
    assert found is not None
    part = Range(cluster.queue("Failover"), 0, 5000)
    reading = read_range(cluster.source(subscribe="Failover", batchRows="100"), part)
    rows: list[int] = next(reading).column("queueOffset").to_pylist()

    cluster.kill_master()
    for rest in reading:
        rows += rest.column("queueOffset").to_pylist()
    assert rows == [*range(5000)], "the slave is read where the master was"
    # The driver asks the slave, too: for offsets, times and groups.
    monkeypatch.setattr(batches, "START_PATIENCE_S", 0.0)
    more = query.step()
    assert more is not None
    found += more
    timed = batch(cluster, subscribe="Failover", startingTimestamp=str(begun_ms))
    assert timed == [*range(10_000)]
    grouped = batch(cluster, subscribe="Failover", startingOffsets="group", group="nobody")
    assert grouped == [*range(10_000)]

    cluster.promote_slave()
    while (more := query.step()) is not None:
        found += more
    assert sorted(found) == [*range(10_000)]
    cluster.send("Failover", numbers(10_000, 10_010), 1)
    assert Query(options, query.checkpoint).run() == [*range(10_000, 10_010)]
