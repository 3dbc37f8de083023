"""Every case of the contract runs against both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.client.blocking.cluster_process import process_cluster
from tests.client.contract.sides import BlockingSide, Loop, TrioSide

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.client.blocking.cluster_process import ProcessCluster
    from tests.client.contract.sides import Side


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    """The loop of the trio client, in a thread."""
    it = Loop()
    with it.running():
        yield it


@pytest.fixture(params=["trio", "blocking"])
def side(request: pytest.FixtureRequest) -> Side:
    """One of the two clients."""
    if request.param == "blocking":
        return BlockingSide()
    return TrioSide(request.getfixturevalue("loop"))


@pytest.fixture(scope="session")
def real_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """A nameserver and one master, which cases must leave running."""
    with process_cluster(tmp_path_factory.mktemp("contract")) as it:
        yield it
