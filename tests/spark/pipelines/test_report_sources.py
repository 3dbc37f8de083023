"""Where the report gets groups and queues from: real brokers, and stores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rmq.client.blocking import BlockingAdmin, BlockingConsumer, BlockingProducer
from rmq.client.core.config import ClientConfig
from rmq.client.core.messages import Message
from rmq.model.record import NewMessage
from rmq.spark.jobs.report import sources
from rmq.spark.jobs.report.lag import by_group, skews
from rmq.spark.jobs.report.sources import cluster_progress, store_progress
from rmq.spark.jobs.report.store_topics import topic_queues
from rmq.store.reader import Reader
from tests.patching import patch
from tests.spark.pipelines.pipeline_cluster import pipeline_cluster
from tests.spark.pipelines.verify_kit import START_MS, files_below, open_store
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rmq.spark.jobs.report.sources import Progress

NOW_S = START_MS / 1000 + 3_600


# --- brokers ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientConfig]:
    """A group that has read nothing of Orders and Bills, and Alone, which nobody reads."""
    with pipeline_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        for topic in ("Alone", "Bills", "Orders"):
            cluster.create_topic(topic, queues=4)
            with (
                BlockingConsumer(cluster.nameserver, "readers") as consumer,
                BlockingProducer(cluster.nameserver, "tests") as producer,
            ):
                used = consumer.queues(topic)[: 1 if topic == "Alone" else 4]
                for queue in used:
                    producer.send(Message(topic, b"x"), queue=queue)
                if topic != "Alone":
                    consumer.commit(dict.fromkeys(used, 0))
        yield ClientConfig(nameservers=cluster.nameserver)


def test_queues_are_known_of_topics_that_nobody_reads(config: ClientConfig) -> None:
    for topics in ((), ("Alone", "Orders")):
        found = cluster_progress(config, topics)
        assert {queue for topic, _, queue in found.queues if topic == "Alone"} == {0, 1, 2, 3}
        (skew,) = skews({("Alone", "broker-a", 0): 1}, found.queues)
        assert (skew.ratio, skew.queues) == (4.0, 4)
        assert (found.failures, found.age_failures) == ([], [])
        assert all(lag.unread_ms is not None for lag in found.lags)


def test_ages_that_nobody_asked_for_are_not_known(
    config: ClientConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "ASKED_MAX", 6)
    found = cluster_progress(config, ())
    ages = {lag.topic: lag.lag_s for lag in by_group(found.lags, NOW_S)}
    assert ages["Bills"] is not None
    assert ages["Orders"] is None
    (failure,) = found.age_failures
    assert failure == (
        "age of what group readers has not read of Orders, in 2 queues: more than 6 queues have"
        " unread messages, and no more are asked"
    )
    assert found.failures == []


def test_a_first_unread_message_that_is_not_there(
    config: ClientConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is so for a moment only: the message is deleted after its queue was looked at.
    monkeypatch.setattr(BlockingAdmin, "message_at", lambda *_: None)
    found = cluster_progress(config, ("Orders",))
    assert [lag.lag_s for lag in by_group(found.lags, NOW_S)] == [None]
    (failure,) = found.age_failures
    assert "group readers has not read of Orders, in 4 queues: there is no message at" in failure


# --- stores -----------------------------------------------------------------------------------


def _write(root: Path, used: Mapping[int, int]) -> Path:
    store = open_store(root)
    for queue_id, count in used.items():
        for number in range(count):
            store.append([NewMessage("Orders", queue_id, b"body of %d" % number, b"")])
    store.close()
    (root / "config").mkdir()
    return root


def _write_topics(root: Path, **queues: int) -> None:
    table = {
        topic: {"topicName": topic, "readQueueNums": count, "writeQueueNums": count}
        for topic, count in queues.items()
    }
    text = json.dumps({"topicConfigTable": table, "dataVersion": {}})
    (root / "config" / "topics.json").write_text(text)


def _write_offsets(root: Path, offsets: Mapping[int, int]) -> None:
    text = json.dumps({"offsetTable": {"Orders@G": offsets}})
    (root / "config" / "consumerOffset.json").write_text(text)


def _progress(root: Path) -> Progress:
    with Reader(root) as reader:
        return store_progress(reader, root, "b", ())


def test_queues_of_a_store_that_have_no_messages(tmp_path: Path) -> None:
    root = _write(tmp_path, {2: 10, 5: 10})
    _write_topics(root, Orders=8, Other=4)
    found = _progress(root)
    assert {queue for topic, _, queue in found.queues if topic == "Orders"} == set(range(8))
    (skew,) = skews({("Orders", "b", 2): 10, ("Orders", "b", 5): 10}, found.queues)
    assert (skew.ratio, skew.queues) == (4.0, 8)
    assert found.queue_failures == []


@pytest.mark.parametrize("content", [None, b"", b'{"topicConfigTable":{"Ord'])
def test_queues_of_a_store_that_does_not_tell_them(tmp_path: Path, content: bytes | None) -> None:
    root = _write(tmp_path, {2: 10, 5: 10})
    if content is not None:
        (root / "config" / "topics.json").write_bytes(content)
    found = _progress(root)
    assert {queue for _, _, queue in found.queues} == {2, 5}
    (failure,) = found.queue_failures
    assert "topics.json" in failure
    # Brokers keep the file before it.
    _write_topics(root, Orders=8)
    (root / "config" / "topics.json").rename(root / "config" / "topics.json.bak")
    assert _progress(root).queue_failures == []


def test_topics_are_read_as_stock_brokers_write_them(tmp_path: Path) -> None:
    known = topic_queues(golden.unpack(golden.CLEAN_MASTER, tmp_path))
    assert known is not None
    assert known["GoldenTopic"] == 4


def test_a_damaged_record_has_no_age(tmp_path: Path) -> None:
    root = _write(tmp_path, {0: 10, 1: 10})
    _write_offsets(root, {0: 3, 1: 10})
    (lag,) = by_group(_progress(root).lags, NOW_S)
    assert (lag.lag, lag.lag_s is not None) == (7, True)
    assert _progress(root).age_failures == []
    (path,) = files_below(root, "commitlog")[:1]
    patch(path, path.read_bytes().index(b"body of 3"), b"B")
    found = _progress(root)
    (lag,) = by_group(found.lags, NOW_S)
    assert (lag.lag, lag.lag_s) == (7, None)
    (failure,) = found.age_failures
    assert failure.startswith("age of what group G has not read of Orders: ")
    assert "queue 0 offset 3" in failure
