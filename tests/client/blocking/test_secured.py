"""TLS, against a nameserver and a broker with certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trustme

from rmq.client.blocking import BlockingConsumer, BlockingProducer
from rmq.client.core.config import ClientConfig
from rmq.client.core.messages import Message
from rmq.errors import NoNameserverError
from rmq.remoting.tls_config import TlsClientConfig
from tests.client.blocking.cluster_process import process_cluster

if TYPE_CHECKING:
    from pathlib import Path


def test_everything_goes_over_tls_and_nothing_without(tmp_path: Path) -> None:
    authority = trustme.CA()
    trust, cert, key = (tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(trust)
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(key)
    issued.cert_chain_pems[0].write_to_path(cert)
    with process_cluster(tmp_path, cert=str(cert), key=str(key)) as it:
        tls = TlsClientConfig(auth_server=True, check_hostname=True, trust_cert_path=trust)
        config = ClientConfig(nameservers=it.nameserver, tls=tls)
        body = b"y" * 200_000
        with BlockingProducer(config, "g", compress_above=10**9) as producer:
            producer.send(Message("Secured", b"x"))
            queue = producer.send(Message("Secured", body)).queue
            producer.send_many([Message("Secured", body)] * 50)
            producer.send_oneway(Message("Secured", b"x"))
        with BlockingConsumer(config, "g") as consumer:
            end = consumer.end_offset(queue)
            bodies = [message.body for message in consumer.read_range(queue, 0, end)]
            assert bodies.count(body) >= 12
        # Somebody else's word is worth nothing.
        trustme.CA().cert_pem.write_to_path(trust)
        with (
            BlockingProducer(config, "g") as producer,
            pytest.raises(NoNameserverError, match="certificate"),
        ):
            producer.send(Message("Secured", b"x"))
