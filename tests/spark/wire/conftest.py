"""Real brokers for tests of the source, one cluster per module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.spark.wire.clients import close_clients
from tests.spark.wire.wire_cluster import wire_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.spark.wire.wire_cluster import WireCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireCluster]:
    """A nameserver, a master and its slave, in processes of their own."""
    with wire_cluster(tmp_path_factory.mktemp("wire")) as it:
        yield it
    close_clients()


@pytest.fixture(autouse=True)
def no_client_is_left() -> Iterator[None]:
    """Clients of tests are not those of other tests."""
    yield
    close_clients()
