"""What a broker says of its own replication."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ha.pair_kit import pair

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
async def test_a_broker_says_whether_it_has_a_secret_and_never_which(
    tmp_path: Path, role: str
) -> None:
    secret = "correct horse battery"
    async with pair(tmp_path) as it:
        broker = await it.start("one", role)
        assert (await it.status(broker)).has_secret is False
        await it.stop("one")
        broker = await it.start("one", role, {"haSecret": secret})
        status = await it.status(broker)
        assert status.has_secret is True
        assert secret not in str(status)
