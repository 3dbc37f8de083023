"""A slave whose disk takes nothing more: it says so, its master goes on, and it recovers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from rmq.remoting.codes import ResponseCode
from tests.ha.processes.pair import MASTER, SLAVE, running_pair
from tests.ha.processes.surroundings import NotAllowedError, Surroundings, seen_by

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.ha.processes.pair import Pair

OK = ResponseCode.SUCCESS
NO_SLAVE = ResponseCode.SLAVE_NOT_AVAILABLE
TIMED_OUT = ResponseCode.FLUSH_SLAVE_TIMEOUT

SMALL: Final = {
    "mappedFileSizeCommitLog": str(1024**2),
    "maxHashSlotNum": "2000",
    "maxIndexNum": "8000",
    # Between the times at which an ordinary slave is given up for lost.
    "haHousekeepingInterval": "20000",
}
DISK_BYTES: Final = 32 * 1024**2
LEFT_BYTES: Final = 2 * 1024**2
"""What the disk has room for before it is full: a segment or two."""


async def test_a_slave_on_a_full_disk_says_so_and_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    disk = tmp_path / SLAVE
    disk.mkdir()
    surroundings = Surroundings(disk=disk, disk_bytes=DISK_BYTES)
    try:
        async with running_pair(tmp_path, settings=SMALL, surroundings=surroundings) as it:
            seen = seen_by(it.process(SLAVE).pid, disk)
            ballast = seen / "ballast"
            disk_now = os.statvfs(seen)
            ballast.write_bytes(bytes(disk_now.f_bavail * disk_now.f_frsize - LEFT_BYTES))
            await _fail_and_recover(it, "No space left on device", ballast.unlink, seen)
    except NotAllowedError as exc:
        pytest.skip(f"a disk of its own cannot be mounted here: {exc}")


async def test_a_slave_that_may_not_write_says_so_and_goes_on_when_it_may(tmp_path: Path) -> None:
    surroundings = Surroundings(heeds_modes=True)
    async with running_pair(tmp_path, settings=SMALL, surroundings=surroundings) as it:
        assert await it.producer.send_one(it.address(MASTER))
        folder = it.cluster.store_of(SLAVE) / "commitlog"
        folder.chmod(0o555)
        await _fail_and_recover(it, "Permission denied", lambda: folder.chmod(0o755), None)


async def _fail_and_recover(
    it: Pair, error: str, heal: Callable[[], None], seen: Path | None
) -> None:
    async with it.producer.sending(it.address(MASTER)):
        said = await it.until(SLAVE, lambda said: said.state == "failed", "the slave takes nothing")
        assert error in (said.last_error or "")
        await it.until_out_of_sync()
        it.producer.codes.clear()
        await it.until_codes(NO_SLAVE, count=200)
        assert set(it.producer.codes) <= {NO_SLAVE, TIMED_OUT}
        heal()
        await it.until_in_sync()
        await it.until_codes(OK)
    assert not it.producer.unanswered
    assert it.process(SLAVE).is_running
    await it.check_equal(seen=seen)
    await it.check_none_lost()
