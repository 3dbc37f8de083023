"""Defaults that depend on the machine, its user and the environment."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.settings.schema import Value

_ANY_FAR_ADDRESS: Final = ("203.0.113.1", 9)
"""Of a network that is kept free for documentation; nothing is sent there."""


def machine_defaults(environ: Mapping[str, str]) -> dict[str, Value]:
    """Return the defaults of this machine, by key."""
    address = local_address()
    processors = os.cpu_count() or 1
    sends = min(processors, 4)
    return {
        "brokerIP1": address,
        "brokerIP2": address,
        "brokerName": socket.gethostname() or "DEFAULT_BROKER",
        "storePathRootDir": str(Path(environ.get("HOME") or Path.home()) / "store"),
        "rocketmqHome": environ.get("ROCKETMQ_HOME") or None,
        # No thread is started by these. They are what a Java broker would say on this machine.
        "sendMessageThreadPoolNums": sends,
        "putMessageFutureThreadPoolNums": sends,
        "pullMessageThreadPoolNums": 16 + 2 * processors,
        "processReplyMessageThreadPoolNums": 16 + 2 * processors,
        "queryMessageThreadPoolNums": 8 + processors,
        "heartbeatThreadPoolNums": min(32, processors),
        "endTransactionThreadPoolNums": max(8 + 2 * processors, 4 * sends),
        "clientCallbackExecutorThreads": processors,
    }


def local_address() -> str:
    """The address by which others most likely reach this machine.

    It is the source address of packets to the internet. Without a route there, it is the address
    that the host name resolves to.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ANY_FAR_ADDRESS)
            return str(probe.getsockname()[0])
        except OSError:
            pass
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        found = []
    addresses = [str(entry[4][0]) for entry in found]
    return next((each for each in addresses if not each.startswith("127.")), "127.0.0.1")
