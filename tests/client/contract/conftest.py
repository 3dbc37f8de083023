"""Every case of the contract runs against all clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.client.blocking.cluster_process import process_cluster
from tests.client.contract.sides import AioLoop, BlockingSide, LoopSide, TrioLoop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.client.blocking.cluster_process import ProcessCluster
    from tests.client.contract.sides import Side


@pytest.fixture(scope="session")
def trio_loop() -> Iterator[TrioLoop]:
    """The loop of the trio client, in a thread."""
    it = TrioLoop()
    with it.running():
        yield it


@pytest.fixture(scope="session")
def aio_loop() -> Iterator[AioLoop]:
    """The loop of the asyncio client, in a thread."""
    it = AioLoop()
    with it.running():
        yield it


@pytest.fixture(params=["trio", "aio", "blocking"])
def side(request: pytest.FixtureRequest) -> Side:
    """One of the clients."""
    if request.param == "blocking":
        return BlockingSide()
    return LoopSide(request.getfixturevalue(f"{request.param}_loop"))


@pytest.fixture(scope="session")
def real_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """A nameserver and one master, which cases must leave running."""
    with process_cluster(tmp_path_factory.mktemp("contract")) as it:
        yield it
