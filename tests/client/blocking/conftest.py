"""One cluster for all tests of the blocking client: topics keep them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.client.blocking.cluster_process import process_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.client.blocking.cluster_process import ProcessCluster


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """A nameserver and one master, which tests must leave running."""
    with process_cluster(tmp_path_factory.mktemp("cluster")) as it:
        yield it
