"""Sink, batches and streams over TLS, with a nameserver and a broker that refuse anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trustme
from pyspark.errors import PySparkException

from rmq.client.blocking import BlockingAdmin
from rmq.client.core.config import ClientConfig
from rmq.remoting.tls_config import TlsClientConfig
from rmq.spark.wire.clients import close_clients
from tests.client.blocking.cluster_process import process_cluster

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_tables_go_over_tls_and_not_without(spark: SparkSession, tmp_path: Path) -> None:
    authority = trustme.CA()
    trust, cert, key = (tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(trust)
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(key)
    issued.cert_chain_pems[0].write_to_path(cert)
    other_trust = tmp_path / "other-ca.pem"
    trustme.CA().cert_pem.write_to_path(other_trust)
    tls = TlsClientConfig(auth_server=True, trust_cert_path=trust)

    with process_cluster(tmp_path, cert=str(cert), key=str(key), tls=tls) as it:
        with BlockingAdmin(ClientConfig(nameservers=it.nameserver, tls=tls)) as admin:
            admin.create_topic("Secured", queues=2)
        it.wait_for_route("Secured")
        secured = {"nameservers": it.nameserver, "tlsTrustFile": str(trust)}

        rows = spark.range(100).selectExpr("cast(id as string) as body")
        rows.write.format("rocketmq").options(**secured, topic="Secured").mode("append").save()

        table = spark.read.format("rocketmq").options(**secured, subscribe="Secured").load()
        bodies = table.selectExpr("cast(cast(body as string) as int) as number")
        assert sorted(row.number for row in bodies.collect()) == list(range(100))

        stream = (
            spark.readStream.format("rocketmq")
            .options(**secured, subscribe="Secured", startingOffsets="earliest")
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        assert stream.awaitTermination(120)
        assert spark.read.parquet(str(tmp_path / "rows")).count() == 100

        for options, reason in (
            ({**secured, "tlsTrustFile": str(other_trust)}, "certificate"),
            ({"nameservers": it.nameserver}, "no nameserver answered"),
        ):
            refused = spark.read.format("rocketmq").options(**options, subscribe="Secured").load()
            with pytest.raises(PySparkException, match=reason):
                refused.count()
    close_clients()
