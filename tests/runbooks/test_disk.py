"""The page about a full disk, on a small disk of its own; and a master that loses its slave."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Final

import pytest

from tests.ha.processes.surroundings import NotAllowedError, Surroundings
from tests.runbooks.site import running_site
from tests.runbooks.units import BROKER

if TYPE_CHECKING:
    from pathlib import Path

DISK_BYTES: Final = 32 * 1024**2
RATIOS: Final = {
    "rocketmq.broker.diskSpaceWarningLevelRatio": "0.9",
    "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.85",
    "diskMaxUsedSpaceRatio": "75",
}


@pytest.mark.skipif(shutil.which("nsenter") is None, reason="there is no nsenter here")
def test_room_is_made_on_a_full_disk_and_a_master_is_left_without_a_slave(tmp_path: Path) -> None:
    with running_site(tmp_path) as site:
        master = site.machines["10.0.0.1"]
        store = master.path("var/lib/rmq/broker-a")
        store.mkdir()
        master.disk = Surroundings(disk=store, disk_bytes=DISK_BYTES)
        master.settings.update(RATIOS)
        try:
            site.follow("first-deployment.md", "Steps")
        except NotAllowedError as exc:
            pytest.skip(f"a disk of its own cannot be mounted here: {exc}")
        folder = master.seen("var/lib/rmq/broker-a")
        old = folder / "store-of-before"
        old.mkdir()
        fill(old / "ballast", used=0.97)
        site.follow("disk-full.md", "See what is full", "Make room")

        # Several files of the log; lines of this length are not compressed.
        site.do("10.0.0.1", "head -c 3M /dev/urandom | base64 -w 4000 | rmq produce broker-a")
        log = folder / "store" / "commitlog"
        first, second, *_ = sorted(log.iterdir())
        written = time.time() - 50 * 3600
        os.utime(first, (written, written))
        fill(folder / "ballast", used=0.8)
        site.follow("disk-full.md", "Keep fewer hours")
        assert not first.exists()
        assert second.exists()

        site.unit("10.0.0.2", BROKER).kill()
        site.follow("replace-slave.md", "Without a slave")


def fill(file: Path, *, used: float) -> None:
    """Write a file that leaves this part of its disk in use."""
    disk = os.statvfs(file.parent)
    free = int(disk.f_blocks * (1 - used))
    file.write_bytes(bytes((disk.f_bavail - free) * disk.f_frsize))
