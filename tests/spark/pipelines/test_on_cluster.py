"""Pipelines that talk to brokers, on a real master and its slave."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from rmq.spark.jobs.archive.table import read_archive
from rmq.spark.pipelines import archive, audit, report
from rmq.spark.pipelines.job import main
from rmq.spark.wire.clients import close_clients
from rmq.store.reader import Reader
from tests.ha.processes.pair import MASTER, SLAVE
from tests.spark.wire.wire_cluster import WAIT_S, wire_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rmq.spark.pipelines.job import Pipeline
    from tests.spark.wire.wire_cluster import WireCluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stores of the cluster are."""
    return tmp_path_factory.mktemp("pipelines")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[WireCluster]:
    with wire_cluster(folder) as it:
        yield it
    close_clients()


def _bodies(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def _wait_for_flush(store: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    with Reader(store) as reader:
        while reader.end_offset == 0:
            assert time.monotonic() < deadline, f"{store} stays empty"
            time.sleep(0.05)
            reader.refresh()


def test_archive_and_report(
    spark: SparkSession,
    cluster: WireCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(pipeline: Pipeline, *arguments: str) -> dict[str, Any]:
        code = main(pipeline, ["-n", cluster.nameserver, "--json", *arguments])
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert told["exit_code"] == code, told
        return told

    out = tmp_path / "archive"
    archiving = ("--topic", "Orders,Other", "--out", str(out))
    cluster.create_topic("Orders", queues=2)
    cluster.create_topic("Other")
    cluster.send("Orders", _bodies(0, 300), queue_id=0)
    cluster.send("Orders", _bodies(300, 400), queue_id=1)
    cluster.send("Other", _bodies(400, 450))
    told = run(archive.PIPELINE, *archiving)
    assert (told["outcome"], told["records"]) == ("holds", 450)
    cluster.send("Orders", _bodies(450, 500), queue_id=1)
    cluster.commit("billing", "Orders", {0: 290, 1: 100})
    told = run(archive.PIPELINE, *archiving)
    assert (told["outcome"], told["records"], told["facts"]["messages"]) == ("holds", 50, 500)
    numbers = [int(row["body"]) for row in read_archive(spark, out).select("body").collect()]
    assert sorted(numbers) == list(range(500))
    # The topic is made again: its offsets begin anew, with other messages.
    cluster.delete_topic("Other")
    cluster.create_topic("Other")
    cluster.send("Other", _bodies(0, 60))
    told = run(archive.PIPELINE, *archiving)
    assert (told["outcome"], told["records"]) == ("fails", 0)
    assert [finding["kind"] for finding in told["findings"]] == ["restart"]
    told = run(archive.PIPELINE, "--topic", "Nowhere", "--out", str(out))
    assert told["outcome"] == "unknown"
    assert "Nowhere" in told["verdict"]

    reporting = ("--topic", "Orders", "--out", str(tmp_path / "report"))
    told = run(report.PIPELINE, *reporting, "--max-lag", "50", "--max-skew", "1.2")
    assert told["outcome"] == "fails"
    assert told["records"] == 450
    assert {finding["kind"] for finding in told["findings"]} == {"lag", "skew"}
    (billing,) = told["facts"]["groups"]
    assert (billing["group"], billing["topic"], billing["lag"]) == ("billing", "Orders", 60)
    assert 0 < billing["lag_seconds"] < 3_600
    (skew,) = told["facts"]["skews"]
    assert (skew["queue_id"], skew["skew"]) == (0, pytest.approx(300 / 225))


def test_audit_of_a_pair_at_work(
    spark: SparkSession,
    cluster: WireCluster,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both stores are open and grow while they are compared."""
    cluster.create_topic("Busy")
    cluster.send("Busy", _bodies(0, 500))
    _wait_for_flush(folder / SLAVE)
    ended = threading.Event()

    def send() -> None:
        number = 0
        while not ended.is_set():
            cluster.send("Busy", _bodies(number, number + 500))
            number += 500

    sender = threading.Thread(target=send)
    sender.start()
    try:
        stores = {"master": MASTER, "slave": SLAVE}
        arguments = [f"--{role}-store={folder / name}" for role, name in stores.items()]
        code = main(audit.PIPELINE, [*arguments, "--json"])
    finally:
        ended.set()
        sender.join()
    told = json.loads(capsys.readouterr().out)
    assert (code, told["outcome"]) == (0, "holds"), told["verdict"]
    assert told["bytes"] > 0
    assert told["facts"]["master"]["is_live"]
    assert told["facts"]["slave"]["is_live"]
