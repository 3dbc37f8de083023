"""CPU time and memory of a Spark session: the Java process, its Python workers and this process.

Linux tells both in /proc. Workers are kept between queries, so that what they used is there to be
read when a query is over.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final, final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def descendants(root: int) -> list[int]:
    """Return a process and all that it started, directly or not."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                # The name in brackets may have blanks in it.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo.extend(children.get(pid, ()))
    return found


def cpu_seconds(pids: list[int]) -> float:
    """Return what processes used so far, with those of their children that have ended."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / _TICKS_PER_S


def resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


@final
class ExecutorMemory:
    """Watches the processes of this process's session, from time to time.

    In local mode the Java process is driver and executor at once.
    """

    def __init__(self, interval_s: float = 0.25) -> None:
        self.python: list[int] = []
        """The largest Python worker's resident bytes, one after the other."""
        self.java: list[int] = []
        """Likewise, of the Java process."""
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ExecutorMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._interval_s):
            others = [pid for pid in descendants(os.getpid()) if pid != os.getpid()]
            for samples, program in ((self.python, b"pyspark"), (self.java, b"java")):
                sizes = [resident_bytes(pid) for pid in others if _runs(pid, program)]
                if sizes:
                    samples.append(max(sizes))


def _runs(pid: int, program: bytes) -> bool:
    """Tell whether a process is a Python worker (`pyspark`) or Java."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    if program == b"java":
        return Path(os.fsdecode(command[0])).name == "java"
    # Java's own command names pyspark-shell.
    return any(word.startswith(b"pyspark.") for word in command[1:])
