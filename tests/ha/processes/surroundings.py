"""Where a process lives: its network, its disk, its rights. Taken on in the process itself.

Everything here asks the system directly and needs no tools. What it does not allow (a container
without namespaces, another user) raises `NotAllowedError`, for tests to say why they are skipped.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CLONE_NEWNS: Final = 0x0002_0000
CLONE_NEWUSER: Final = 0x1000_0000
CLONE_NEWNET: Final = 0x4000_0000
_MS_PRIVATE_RECURSIVE: Final = 0x44000
_PR_SET_PDEATHSIG: Final = 1
_CAPABILITY_VERSION_3: Final = 0x2008_0522
_CAP_DAC_OVERRIDE: Final = 1

_libc: Final = ctypes.CDLL(None, use_errno=True)


class NotAllowedError(Exception):
    """The system does not let this user do it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """How a process is to live; what is not said is as with its parent."""

    network_of: int | None = None
    """It is in the network of this process."""
    disk: Path | None = None
    """A small disk of its own is mounted here; others see it by `seen_by`."""
    disk_bytes: int = 0
    heeds_modes: bool = False
    """It may not write where file modes say so, though it is the superuser."""

    def take_on(self) -> None:
        """Let the calling process live so."""
        # With whoever started it, it goes: nobody else would end it.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if self.network_of is not None:
            enter_network(self.network_of)
        if self.disk is not None:
            unshare(CLONE_NEWNS)
            _call("mount", b"none", b"/", None, _MS_PRIVATE_RECURSIVE, None)
            options = f"size={self.disk_bytes}".encode()
            _call("mount", b"tmpfs", os.fsencode(self.disk), b"tmpfs", 0, options)
        if self.heeds_modes:
            _heed_modes()


def seen_by(pid: int, path: Path) -> Path:
    """Return where to find what a process has at `path`, on a disk that only it sees."""
    return Path(f"/proc/{pid}/root", path.relative_to("/"))


def unshare(what: int) -> None:
    """Give the calling process a world of its own; as its superuser, if it has to be."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        _call("unshare", what)
        return
    _call("unshare", what | CLONE_NEWUSER)
    for name, text in (
        ("uid_map", f"0 {user} 1"),
        ("setgroups", "deny"),
        ("gid_map", f"0 {group} 1"),
    ):
        try:
            Path("/proc/self", name).write_text(text, encoding="ascii")
        except OSError as exc:
            raise NotAllowedError(f"{name} cannot be written: {exc}") from exc


def enter_network(pid: int) -> None:
    """Let the calling process have the network of another one."""
    with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
        _call("setns", namespace.fileno(), CLONE_NEWNET)


def _heed_modes() -> None:
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
    sets = ctypes.create_string_buffer(24)
    _call("capget", header, sets)
    effective, permitted, *rest = struct.unpack("=6I", sets.raw[:24])
    mask = ~(1 << _CAP_DAC_OVERRIDE)
    _call("capset", header, struct.pack("=6I", effective & mask, permitted & mask, *rest))


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise NotAllowedError(f"{name}: {os.strerror(number)}")
