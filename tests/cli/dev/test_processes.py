"""Ports for child processes: free, and kept free until the child listens."""

from __future__ import annotations

import socket

import pytest

from rmq.cli.dev.processes import free_port

HOST = "127.0.0.1"


def test_ports_are_kept_for_servers() -> None:
    port = free_port(HOST, -2, 1)
    for each in (port - 2, port, port + 1):
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((HOST, each))
        socket.create_server((HOST, each)).close()


def test_no_port_is_given_out_twice() -> None:
    ports = [free_port(HOST) for _ in range(500)]
    assert len(set(ports)) == len(ports)
