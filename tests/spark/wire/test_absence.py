"""Brokers and nameservers that are away while the driver plans: what is only away is waited for,
and never skipped.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable

from rmq.errors import BrokersFailedError, NoNameserverError
from rmq.spark.wire.batch import RocketmqBatchReader
from rmq.spark.wire.cluster import PATIENCE_S, START_PATIENCE_S
from rmq.spark.wire.data_loss import DataLossError, QueuesAwayError
from rmq.spark.wire.planning import Range
from rmq.spark.wire.positions import as_offset, read_offset
from rmq.spark.wire.progress import commit_progress
from rmq.spark.wire.stream import RocketmqStreamReader
from tests.spark.wire.played_cluster import Clock, played_cluster, queue_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.model.queues import MessageQueue
    from rmq.spark.wire.settings import SourceOptions
    from tests.spark.wire.played_cluster import PlayedCluster

A, B = queue_of("T", "a"), queue_of("T", "b")
BOTH = {A: 0, B: 0}
EITHER = pytest.mark.parametrize("fails", ["true", "false"])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def cluster() -> Iterator[PlayedCluster]:
    """Topic T has a queue on each of two brokers, with ten messages."""
    with played_cluster("a", "b") as it:
        it.fill("T", "a", end=10)
        it.fill("T", "b", end=10)
        yield it


def latest(reader: RocketmqStreamReader, start: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
    return read_offset(reader.latestOffset(as_offset(start), ReadAllAvailable()))


def planned(
    options: SourceOptions, start: dict[MessageQueue, int], end: dict[MessageQueue, int]
) -> list[Range]:
    """Return what tasks read of a batch, by a reader that has just been started."""
    parts = RocketmqStreamReader(options).partitions(as_offset(start), as_offset(end))
    return [part.value for part in parts]


# --- batches that are planned ------------------------------------------------------------------


@EITHER
def test_a_planned_batch_waits_for_a_broker_that_restarts(
    cluster: PlayedCluster, clock: Clock, fails: str
) -> None:
    options = cluster.options(subscribe="T", failOnDataLoss=fails)
    cluster["b"].is_up = False

    def restart() -> None:
        cluster["b"].is_up = True

    clock.then = restart
    assert planned(options, BOTH, {A: 10, B: 10}) == [Range(A, 0, 10), Range(B, 0, 10)]
    assert clock.waits == 3


@EITHER
def test_a_planned_batch_is_not_passed_over_because_a_broker_stays_away(
    cluster: PlayedCluster, clock: Clock, fails: str
) -> None:
    options = cluster.options(subscribe="T", failOnDataLoss=fails)
    cluster["b"].is_up = False
    with pytest.raises(QueuesAwayError) as caught:
        planned(options, BOTH, {A: 10, B: 10})
    for words in ("topic T, broker b, queue 0", "the broker is away", "start it again"):
        assert words in str(caught.value)
    assert clock.passed == PATIENCE_S
    # Neither when it is the only one that has the topic: to the nameserver there is no topic then.
    cluster["a"].is_up = False
    with pytest.raises(QueuesAwayError, match="broker a, queue 0; topic T, broker b, queue 0"):
        planned(options, BOTH, {A: 10, B: 10})


def test_a_queue_that_may_not_be_read_at_present_is_not_passed_over(
    cluster: PlayedCluster, clock: Clock
) -> None:
    cluster["b"].perm = 2
    with pytest.raises(QueuesAwayError, match=r"broker b, queue 0.*permission"):
        planned(cluster.options(subscribe="T", failOnDataLoss="false"), BOTH, {A: 10, B: 10})
    assert clock.waits


@pytest.mark.parametrize("what", ["topic", "queue"])
def test_what_is_known_to_be_gone_is_a_loss_and_may_be_passed_over(
    cluster: PlayedCluster, clock: Clock, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    gone = queue_of("T", "b", 1) if what == "queue" else B
    if what == "topic":
        # Its broker is there, and does not have it any more.
        cluster.delete("T", "b")
        cluster.fill("Other", "b", end=1)
    start, end = {A: 0, gone: 0}, {A: 10, gone: 10}
    with pytest.raises(DataLossError, match="it is gone, offset 10 was to be read up to"):
        planned(cluster.options(subscribe="T"), start, end)
    assert clock.passed == PATIENCE_S, "a broker that restarts tells of its topics late"
    lenient = cluster.options(subscribe="T", failOnDataLoss="false")
    assert planned(lenient, start, end) == [Range(A, 0, 10)]
    assert "skipped: topic T, broker b" in caplog.text


def test_to_plan_a_batch_only_its_topics_are_asked_for(
    cluster: PlayedCluster, clock: Clock
) -> None:
    cluster.fill("Other", "a", end=5)
    options = cluster.options(subscribePattern="T|Other")
    other = queue_of("Other", "a")
    cluster.asked.clear()
    assert planned(options, {**BOTH, other: 5}, {A: 10, B: 10, other: 5}) == [
        Range(A, 0, 10),
        Range(B, 0, 10),
    ]
    assert cluster.asked == ["T"]
    assert not clock.waits


# --- where the next batch ends -----------------------------------------------------------------


def test_a_stream_waits_for_a_broker_and_then_says_that_it_is_away(
    cluster: PlayedCluster, clock: Clock
) -> None:
    reader = RocketmqStreamReader(cluster.options(subscribe="T"))
    cluster["b"].is_up = False
    with pytest.raises(QueuesAwayError, match="topic T, broker b, queue 0"):
        latest(reader, BOTH)
    assert clock.passed == PATIENCE_S

    def restart() -> None:
        cluster["b"].is_up = True

    clock.then, clock.after = restart, clock.waits + 2
    assert latest(reader, BOTH) == {A: 10, B: 10}


def test_a_stream_that_tolerates_losses_goes_on_with_other_brokers_meanwhile(
    cluster: PlayedCluster, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    reader = RocketmqStreamReader(cluster.options(subscribe="T", failOnDataLoss="false"))
    cluster["b"].is_up = False
    assert latest(reader, BOTH) == {A: 10, B: 0}
    assert not clock.waits
    assert "topic T, broker b, queue 0" in caplog.text
    assert "skipped: " not in caplog.text
    cluster["b"].is_up = True
    assert latest(reader, {A: 10, B: 0}) == {A: 10, B: 10}


@EITHER
def test_a_broker_that_was_away_when_a_bounded_run_began_has_its_part_in_it(
    cluster: PlayedCluster, clock: Clock, fails: str
) -> None:
    reader = RocketmqStreamReader(cluster.options(subscribe="T", failOnDataLoss=fails))
    cluster["b"].is_up = False
    reader.prepareForTriggerAvailableNow()
    cluster["b"].is_up = True
    cluster.fill("T", "a", end=15)
    assert latest(reader, BOTH) == {A: 10, B: 10}
    cluster.fill("T", "b", end=15)
    assert latest(reader, {A: 10, B: 10}) == {A: 10, B: 10}, "the run has an end"
    assert not clock.waits


def test_a_broker_that_was_away_when_the_query_began_is_read_from_its_first_message(
    cluster: PlayedCluster, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.fill("T", "b", first=4, end=10)
    cluster["b"].is_up = False
    reader = RocketmqStreamReader(cluster.options(subscribe="T", startingOffsets="latest"))
    assert read_offset(reader.initialOffset()) == {A: 10}
    cluster["b"].is_up = True
    with caplog.at_level(logging.WARNING):
        assert latest(reader, {A: 10}) == {A: 10, B: 4}
    assert "brokers were not there when it began" in caplog.text
    assert "topic T, broker b, queue 0" in caplog.text
    assert planned(cluster.options(subscribe="T"), {A: 10}, {A: 10, B: 4}) == []
    assert latest(reader, {A: 10, B: 4}) == {A: 10, B: 10}
    # What is deleted from now on is a loss.
    cluster.fill("T", "b", first=7, end=10)
    with pytest.raises(DataLossError, match="offsets 4 to 7 are wanted"):
        planned(cluster.options(subscribe="T"), {A: 10, B: 4}, {A: 10, B: 10})
    assert not clock.waits


# --- slaves ------------------------------------------------------------------------------------


def test_a_slave_that_begins_later_is_no_loss(cluster: PlayedCluster, clock: Clock) -> None:
    cluster["b"].is_up, cluster["b"].has_slave = False, True
    cluster["b"].slave_places["T", 0] = (6, 9)
    for fails in ("true", "false"):
        options = cluster.options(subscribe="T", failOnDataLoss=fails)
        assert latest(RocketmqStreamReader(options), {A: 10, B: 2}) == {A: 10, B: 9}
        # The task waits for the master.
        assert planned(options, {A: 10, B: 2}, {A: 10, B: 10}) == [Range(B, 2, 10)]
    assert not clock.waits, "a stream goes on at the slave at once"


def test_a_new_queue_waits_for_its_master(
    cluster: PlayedCluster, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cluster["b"].is_up, cluster["b"].has_slave = False, True
    reader = RocketmqStreamReader(cluster.options(subscribe="T"))
    assert latest(reader, {A: 10}) == {A: 10}
    assert "not read before their masters say where they begin: topic T, broker b" in caplog.text
    cluster["b"].is_up = True
    assert latest(reader, {A: 10}) == {A: 10, B: 0}
    assert not clock.waits


def test_a_query_that_begins_prefers_what_masters_say(cluster: PlayedCluster, clock: Clock) -> None:
    cluster["b"].is_up, cluster["b"].has_slave = False, True
    cluster["b"].slave_places["T", 0] = (6, 9)

    def restart() -> None:
        cluster["b"].is_up = True

    clock.then = restart
    options = cluster.options(subscribe="T", startingOffsets="earliest")
    assert read_offset(RocketmqStreamReader(options).initialOffset()) == {A: 0, B: 0}
    cluster["b"].is_up, clock.after = False, clock.waits + 2
    parts = RocketmqBatchReader(options).partitions()
    assert [part.value for part in parts] == [Range(A, 0, 10), Range(B, 0, 10)]


def test_a_start_that_only_a_slave_knows_is_told(
    cluster: PlayedCluster, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cluster["b"].is_up, cluster["b"].has_slave = False, True
    cluster["b"].slave_places["T", 0] = (6, 9)
    given = {"subscribe": "T", "startingOffsets": "earliest"}
    with pytest.raises(DataLossError, match="broker b, queue 0: its master does not answer"):
        RocketmqStreamReader(cluster.options(**given)).initialOffset()
    assert clock.passed == START_PATIENCE_S
    with pytest.raises(DataLossError, match="begins at offset 6"):
        RocketmqBatchReader(cluster.options(**given)).partitions()
    lenient = cluster.options(**given, failOnDataLoss="false")
    assert read_offset(RocketmqStreamReader(lenient).initialOffset()) == {A: 0, B: 6}
    parts = RocketmqBatchReader(lenient).partitions()
    assert [part.value for part in parts] == [Range(A, 0, 10), Range(B, 6, 9)]
    assert "its master does not answer" in caplog.text
    # A slave that has all of the queue leaves no doubt.
    cluster["b"].slave_places["T", 0] = (0, 9)
    assert read_offset(RocketmqStreamReader(cluster.options(**given)).initialOffset()) == BOTH


# --- busy brokers and absent nameservers ---------------------------------------------------------


def test_a_busy_broker_is_asked_again(cluster: PlayedCluster, clock: Clock) -> None:
    reader = RocketmqStreamReader(cluster.options(subscribe="T"))
    cluster["b"].busy = 2
    assert latest(reader, BOTH) == {A: 10, B: 10}
    assert clock.waits == 2
    cluster["b"].busy = 10_000
    with pytest.raises(BrokersFailedError, match="OVERLOAD"):
        latest(reader, BOTH)
    assert clock.passed >= PATIENCE_S


@pytest.mark.parametrize("choice", [{"subscribe": "T"}, {"subscribePattern": "T.*"}], ids=str)
def test_streams_go_on_without_nameservers(
    cluster: PlayedCluster, clock: Clock, choice: dict[str, str]
) -> None:
    reader = RocketmqStreamReader(cluster.options(**choice))
    assert latest(reader, BOTH) == {A: 10, B: 10}
    cluster.nameserver_answers = False
    cluster.fill("T", "b", end=20)
    assert latest(reader, {A: 10, B: 10}) == {A: 10, B: 20}
    parts = reader.partitions(as_offset({A: 10, B: 10}), as_offset({A: 10, B: 20}))
    assert [part.value for part in parts] == [Range(B, 10, 20)]
    assert not clock.waits


@pytest.mark.parametrize("choice", [{"subscribe": "T"}, {"subscribePattern": "T.*"}], ids=str)
def test_nameservers_are_waited_for_when_nothing_is_known(
    cluster: PlayedCluster, clock: Clock, choice: dict[str, str]
) -> None:
    cluster.nameserver_answers = False
    reader = RocketmqStreamReader(cluster.options(**choice))
    with pytest.raises(NoNameserverError):
        latest(reader, BOTH)
    assert clock.passed == PATIENCE_S
    with pytest.raises(NoNameserverError):
        reader.prepareForTriggerAvailableNow()

    def restart() -> None:
        cluster.nameserver_answers = True

    clock.then, clock.after = restart, clock.waits + 2
    assert latest(reader, BOTH) == {A: 10, B: 10}


def test_routes_of_a_stream_with_long_pauses_are_not_forgotten(
    cluster: PlayedCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    later_s = 0.0
    for module in ("client", "routes"):
        name = f"rmq.client.blocking.{module}._monotonic"
        monkeypatch.setattr(name, lambda: 5000.0 + later_s)
    reader = RocketmqStreamReader(cluster.options(subscribe="T"))
    assert latest(reader, BOTH) == {A: 10, B: 10}
    later_s = 600.0
    cluster.nameserver_answers = False
    assert latest(reader, BOTH) == {A: 10, B: 10}
    assert not clock.waits


# --- groups ------------------------------------------------------------------------------------


def test_a_group_is_told_of_topics_that_are_there(
    cluster: PlayedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    options = cluster.options(subscribePattern="T|Gone", commitGroup="g")
    gone = queue_of("Gone", "a")
    end = as_offset({A: 5, gone: 7, B: 6})
    RocketmqStreamReader(options).commit(end)
    assert cluster["a"].committed == {("T", 0): 5}
    assert cluster["b"].committed == {("T", 0): 6}
    assert "topic Gone" in caplog.text
    given = {"nameservers": cluster.nameserver, "subscribePattern": "T|Gone"}
    progress = {"sources": [{"endOffset": json.dumps(end)}]}
    assert commit_progress(progress, given, "g") == {A: 5, B: 6}, "what it was told of"


# --- the reader itself -------------------------------------------------------------------------


def test_the_start_is_looked_up_once(cluster: PlayedCluster, clock: Clock) -> None:
    """Spark asks twice, and more often when it repeats the first batch."""
    reader = RocketmqStreamReader(cluster.options(subscribe="T", startingOffsets="latest"))
    first: dict[str, Any] = reader.initialOffset()
    cluster.fill("T", "a", end=99)
    cluster.asked.clear()
    assert reader.initialOffset() == first
    assert not cluster.asked
    assert not clock.waits


def test_nothing_depends_on_stop() -> None:
    """Spark kills the process of a reader without having called it."""
    assert RocketmqStreamReader.stop is DataSourceStreamReader.stop
