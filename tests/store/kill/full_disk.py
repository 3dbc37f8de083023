"""A store on a disk of its own that becomes full: it says so, loses nothing and goes on.

    python -m tests.store.kill.full_disk FOLDER FILE_SYSTEM SHORTAGE...

The process mounts a small file system at FOLDER, which nobody else sees. Children fill it with
messages to the last block, so that a write into room that is not there would end them by SIGBUS.
A child is killed then, or goes on after some room is freed. After that the store is opened and held
against the acknowledgements. The exit code is `CANNOT_MOUNT` where the system does not allow the
mount; otherwise every case is told in a line.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec
import trio

from rmq.errors import DiskFullError
from rmq.model.offsets import QueueOffset
from rmq.store.append import AppendStatus
from rmq.store.core import StoreCore
from rmq.store.store import open_store
from tests.store.kill.ledger import Ledger
from tests.store.kill.workload import Ack, Geometry, MessageName, Workload

if TYPE_CHECKING:
    from rmq.store.append import AppendResult
    from rmq.store.store import MessageStore

CANNOT_MOUNT: Final = 77

DISK_BYTES: Final = {"tmpfs": 2 * 1024 * 1024, "ext4": 3584 * 1024}
_BALLAST_BYTES: Final = 1024 * 1024
_REFUSALS: Final = 60
"""How many steps a child tries in vain."""
_STEPS_AFTER: Final = 50
_GOES_ON_WITHIN_S: Final = 10

_UNSHARE_MOUNTS: Final = 0x20000
_UNSHARE_USER: Final = 0x10000000
_PRIVATE_RECURSIVE: Final = 0x44000

_GEOMETRY: Final = Geometry(
    seed=498,
    segment_bytes=32 * 1024,
    log_folders=1,
    queue_segment_entries=200,
    index_slots=50,
    index_entries=5000,
    recovery_point_bytes=64 * 1024,
    recovery_point_interval_ms=20,
    topics=2,
    queues=2,
    body_bytes_max=4000,
)
SHORTAGES: Final = {
    "log": _GEOMETRY,
    # Segments so large that something else is what the last room is wanted for.
    "queues": msgspec.structs.replace(_GEOMETRY, segment_bytes=256 * 1024, topics=50, queues=3),
    "index": msgspec.structs.replace(
        _GEOMETRY, segment_bytes=600 * 1024, body_bytes_max=60, index_slots=500, index_entries=120
    ),
}


class Filler:
    """Writes until the disk is full, in a process of its own."""

    def __init__(self, root: Path, ballast: Path, geometry: Geometry, acks: int) -> None:
        self._root = root
        self._ballast = ballast
        self._geometry = geometry
        self._workload = Workload(geometry)
        self._acks = acks

    async def fill(self, *, dies: bool) -> None:
        async with open_store(self._geometry.config(self._root)) as store:
            steps = count()
            refusals = 0
            while refusals < _REFUSALS:
                refusals += bool(await self._put(store, next(steps)))
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            assert store.failure is None, store.failure
            found = store.reads.get("topic-0", 0, QueueOffset(0), 1)
            assert found.count == 1, found
            self._ballast.unlink()
            with trio.fail_after(_GOES_ON_WITHIN_S):
                while (  # noqa: ASYNC110 - nobody tells of it
                    store.statistics().refusal is not None
                    or store._core.appender.room_error is not None
                ):
                    await trio.sleep(0.01)
            for _ in range(_STEPS_AFTER):
                refused = await self._put(store, next(steps))
                assert not refused, f"there is room again: {refused}"

    async def _put(self, store: MessageStore, step: int) -> list[AppendResult]:
        """Put the messages of a step and tell of them; return those that were refused."""
        messages, is_batch = self._workload.step(0, 0, step)
        results = await store.put(messages, batch=is_batch)
        for member, (message, result) in enumerate(zip(messages, results, strict=True)):
            if result.status is AppendStatus.PUT_OK:
                ack = Ack(
                    str(MessageName(0, 0, step, member)),
                    message.topic,
                    message.queue_id,
                    result.queue_offset,
                    result.physical_offset,
                    result.size,
                    crc32(message.body),
                )
                self._say(f"ack {ack}")
            else:
                self._say(f"refused {_kind_of(result)}")
        return [result for result in results if result.status is not AppendStatus.PUT_OK]

    def _say(self, line: str) -> None:
        os.write(self._acks, f"{line}\n".encode())


def _kind_of(result: AppendResult) -> str:
    """Return for what there was no room; a refusal that does not tell is an error."""
    assert "No space left on device" in result.reason, result
    parts = ("commitlog", "consumequeue", "index")
    return next(part for part in parts if f"/{part}/" in result.reason)


def run_case(folder: Path, file_system: str, shortage: str, *, dies: bool) -> str:
    """Fill the disk, look at what is left, and return what happened."""
    geometry = SHORTAGES[shortage]
    root, ballast = folder / "store", folder / "ballast"
    ballast.write_bytes(b"x" * _BALLAST_BYTES)
    ledger = Ledger(geometry)
    refusals: Counter[str] = Counter()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        trio.run(lambda: Filler(root, ballast, geometry, writing).fill(dies=dies))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as lines:
        for line in lines:
            kind, _, rest = line.strip().partition(" ")
            if kind == "ack":
                ledger.add(Ack.parse(rest.split()))
            else:
                refusals[rest] += 1
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended == (-signal.SIGKILL if dies else 0), f"the store ended with {ended}"
    opened = ""
    if dies:
        # In a mapped file of a tmpfs even reading takes room, where nothing was written yet: a full
        # one ends who opens the store by SIGBUS. Real disks do not.
        if file_system != "tmpfs":
            opened = f", {_open_on_full_disk(root, geometry)}"
        ballast.unlink()
    core = StoreCore(geometry.config(root))
    seen = ledger.check(core, random.Random(498))
    core.close()
    ledger.verify(root)
    shutil.rmtree(root)
    assert refusals, "the disk never was full"
    return (
        f"{shortage}, {'killed' if dies else 'went on'}: {len(ledger.acks)} acknowledged,"
        f" {seen.messages} found, {dict(refusals)}{opened}"
    )


def _open_on_full_disk(root: Path, geometry: Geometry) -> str:
    """Open the store before room is freed: it recovers, or says what is missing."""
    try:
        core = StoreCore(geometry.config(root))
    except DiskFullError as exc:
        return f"not opened on the full disk, hint: {exc.hint}"
    core.release()
    return "opened on the full disk"


def mount(folder: Path, file_system: str) -> bool:
    """Mount a small file system that only this process and its children see."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_UNSHARE_MOUNTS | (_UNSHARE_USER if user else 0)):
        return False
    if user and not _become_superuser(user, group):
        return False
    if libc.mount(b"none", b"/", None, _PRIVATE_RECURSIVE, None):
        return False
    size = DISK_BYTES[file_system]
    if file_system == "tmpfs":
        options = f"size={size}".encode()
        return not libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options)
    image = folder.with_suffix(".image")
    image.write_bytes(bytes(size))
    commands = (
        ["mkfs.ext4", "-q", "-O", "^has_journal", "-N", "1024", str(image)],
        ["mount", "-o", "loop", str(image), str(folder)],
    )
    return all(
        shutil.which(command[0]) and not subprocess.run(command, check=False).returncode
        for command in commands
    )


def _become_superuser(user: int, group: int) -> bool:
    """In a world of its own this user is the superuser, who may mount and owns what is created."""
    try:
        for name, text in (
            ("uid_map", f"0 {user} 1"),
            ("setgroups", "deny"),
            ("gid_map", f"0 {group} 1"),
        ):
            Path("/proc/self", name).write_text(text, encoding="ascii")
    except OSError:
        return False
    return True


def main() -> int:
    folder, file_system, *shortages = sys.argv[1:]
    if not mount(Path(folder), file_system):
        return CANNOT_MOUNT
    for shortage in shortages:
        for dies in (False, True):
            sys.stdout.write(f"{run_case(Path(folder), file_system, shortage, dies=dies)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
