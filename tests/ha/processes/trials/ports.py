"""Ports for brokers and their gates; not those that other tests take."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from typing import Final

from tests.port_shares import own_share

HOST: Final = "127.0.0.1"
GATE_HOST: Final = "127.0.0.2"
_PORTS: Final = tuple(port for port in own_share(range(6_000, 8_000)) if not port % 4)
_taken: Final[set[int]] = set()


def free_port() -> int:
    """Return a port that is free at both hosts, with its neighbours 2 below and 1 above."""
    offset = os.getpid() * 7
    for attempt in range(len(_PORTS)):
        port = _PORTS[(offset + attempt) % len(_PORTS)] + 2
        if port in _taken:
            continue
        with ExitStack() as held:
            try:
                for host in (HOST, GATE_HOST):
                    for each in (port - 2, port, port + 1):
                        held.enter_context(socket.socket()).bind((host, each))
            except OSError:
                continue
            _taken.add(port)
            return port
    raise AssertionError(f"no free ports from {_PORTS[0]} to {_PORTS[-1]}")
