"""Tells the supervisor of a process (systemd, `Type=notify`) how far it is."""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"

logger = logging.getLogger(__name__)


def tell_supervisor(
    state: str = "", *, status: str = "", environ: Mapping[str, str] = os.environ
) -> None:
    """Send a state, and a line for people. Without a supervisor nothing is sent; never waits."""
    name = environ.get("NOTIFY_SOCKET", "")
    if not name.startswith(("/", "@")):
        return
    # A name that begins with @ is one of the abstract name space of Linux.
    address = f"\0{name[1:]}" if name.startswith("@") else name
    lines = [state, f"STATUS={status}" if status else ""]
    text = "\n".join(line for line in lines if line)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.setblocking(False)
        try:
            channel.sendto(text.encode(), address)
        except OSError as exc:
            logger.warning("cannot tell the supervisor at %s: %s", name, exc.strerror or exc)
