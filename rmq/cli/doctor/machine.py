"""The machine: limits and settings of Linux that brokers depend on.

What is advised, and why, is in docs/tuning.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.cli.doctor.checks import Check, judged
from rmq.model.words import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

OPEN_FILES: Final = 65_536
OPEN_FILES_LEAST: Final = 4_096
MAPS: Final = 655_360
MAPS_LEAST: Final = 65_530
SWAPPINESS: Final = 10
BACKLOG: Final = 1_024
DIRTY_BYTES: Final = 4 * 1024**3
"""Above this much, writing it at once keeps sends waiting for seconds."""
_ABOUT: Final = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a machine says of itself; None: it does not say."""

    open_files: int
    """The hard limit: a broker raises its own up to that."""
    maps: int | None = None
    swappiness: int | None = None
    backlog: int | None = None
    overcommit: int | None = None
    huge_pages: str | None = None
    dirty_bytes: int | None = None
    """How much may wait to be written before writers wait, 0: a ratio counts."""
    dirty_percent: int | None = None
    memory_bytes: int | None = None
    swap_used_bytes: int | None = None

    @property
    def dirty_max_bytes(self) -> int | None:
        """How much may wait to be written before writers wait."""
        if self.dirty_bytes:
            return self.dirty_bytes
        if self.dirty_percent is None or self.memory_bytes is None:
            return None
        return self.memory_bytes * self.dirty_percent // 100


def read_machine(open_files: int, root: Path = Path("/")) -> Machine:
    """Read what Linux tells in /proc and /sys; elsewhere nothing is known."""
    memory = _meminfo(root / "proc/meminfo")
    swap, free = memory.get("SwapTotal"), memory.get("SwapFree")
    pages = _text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", pages or "")
    vm = root / "proc/sys/vm"
    return Machine(
        open_files=open_files,
        maps=_number(vm / "max_map_count"),
        swappiness=_number(vm / "swappiness"),
        backlog=_number(root / "proc/sys/net/core/somaxconn"),
        overcommit=_number(vm / "overcommit_memory"),
        huge_pages=chosen[1] if chosen else None,
        dirty_bytes=_number(vm / "dirty_bytes"),
        dirty_percent=_number(vm / "dirty_ratio"),
        memory_bytes=memory.get("MemTotal"),
        swap_used_bytes=None if swap is None or free is None else swap - free,
    )


def machine_checks(machine: Machine) -> Iterator[Check]:
    """Compare a machine with what is advised; what it does not say is not judged."""
    yield judged(
        _ABOUT,
        "open files",
        f"{machine.open_files:,} allowed",
        is_bad=machine.open_files < OPEN_FILES_LEAST,
        is_odd=machine.open_files < OPEN_FILES,
        todo="raise the hard limit: LimitNOFILE=655350 in the unit, or ulimit -Hn",
    )
    if machine.maps is not None:
        yield judged(
            _ABOUT,
            "mapped files",
            f"vm.max_map_count = {machine.maps}",
            is_bad=machine.maps < MAPS_LEAST,
            is_odd=machine.maps < MAPS,
            todo=f"sysctl -w vm.max_map_count={MAPS}: 10,000 topics need more than the default",
        )
    if machine.swappiness is not None:
        yield judged(
            _ABOUT,
            "swapping",
            f"vm.swappiness = {machine.swappiness},"
            f" {size_text(machine.swap_used_bytes or 0)} of swap in use",
            is_odd=machine.swappiness > SWAPPINESS and machine.swap_used_bytes is not None,
            todo="sysctl -w vm.swappiness=1: a broker that is swapped out answers late",
        )
    if machine.dirty_max_bytes is not None:
        yield judged(
            _ABOUT,
            "writing to disk",
            f"writers wait above {size_text(machine.dirty_max_bytes)} that is not written",
            is_odd=machine.dirty_max_bytes > DIRTY_BYTES,
            todo="sysctl -w vm.dirty_background_bytes=268435456 vm.dirty_bytes=1073741824",
        )
    if machine.huge_pages is not None:
        yield judged(
            _ABOUT,
            "huge pages",
            machine.huge_pages,
            is_odd=machine.huge_pages == "always",
            todo="write madvise to /sys/kernel/mm/transparent_hugepage/enabled",
        )
    if machine.backlog is not None:
        yield judged(
            _ABOUT,
            "connections at once",
            f"net.core.somaxconn = {machine.backlog}",
            is_odd=machine.backlog < BACKLOG,
            todo=f"sysctl -w net.core.somaxconn={BACKLOG}",
        )
    if machine.overcommit is not None:
        yield judged(
            _ABOUT,
            "memory reserved",
            f"vm.overcommit_memory = {machine.overcommit}",
            is_odd=machine.overcommit == 2,
            todo="sysctl -w vm.overcommit_memory=1: mapping large files may be refused",
        )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.isdecimal() else None


def _meminfo(path: Path) -> dict[str, int]:
    found = re.findall(r"^(\w+): +(\d+) kB$", _text(path) or "", re.MULTILINE)
    return {name: int(kib) * 1024 for name, kib in found}
