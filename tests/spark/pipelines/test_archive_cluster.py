"""The archive of a cluster of which a part is down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.client.blocking import BlockingProducer
from rmq.client.core.messages import Message
from rmq.model.queues import MessageQueue
from rmq.spark.pipelines.archive import PIPELINE
from rmq.spark.wire.clients import close_clients
from tests.client.blocking.cluster_process import process_cluster
from tests.spark.pipelines.pipeline_cluster import run_json

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_a_broker_that_is_down(spark: SparkSession, tmp_path: Path) -> None:
    """Its queues vanish from the route: nobody may take that for an archive that is complete."""
    out = str(tmp_path / "archive")
    with process_cluster(tmp_path, ("broker-a", "broker-b")) as cluster:
        arguments = ("-n", cluster.nameserver, "--topic", "Orders", "--out", out)
        for broker in ("broker-a", "broker-b"):
            cluster.create_topic("Orders", queues=1, broker=broker)
        with BlockingProducer(cluster.nameserver, "tests") as producer:

            def send(broker: str, count: int) -> None:
                queue = MessageQueue(topic="Orders", broker_name=broker, queue_id=0)
                for number in range(count):
                    producer.send(Message(topic="Orders", body=b"%d" % number), queue=queue)

            send("broker-a", 3)
            send("broker-b", 4)
            code, told = run_json(PIPELINE, *arguments)
            assert (code, told["records"]) == (0, 7), told["verdict"]
            send("broker-a", 2)
            send("broker-b", 2)
        cluster.stop("broker-b")
        code, told = run_json(PIPELINE, *arguments)
        assert (code, told["outcome"], told["records"]) == (2, "unknown", 2), told["verdict"]
        (finding,) = told["findings"]
        assert (finding["kind"], finding["broker_name"], finding["archived"]) == (
            "unreadable",
            "broker-b",
            3,
        )
        assert "not readable now" in told["verdict"]
        cluster.start("broker-b")
        code, told = run_json(PIPELINE, *arguments)
        assert (code, told["records"], told["facts"]["messages"]) == (0, 2, 11), told["verdict"]
    close_clients()
