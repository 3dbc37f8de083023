"""What a supervisor is told, and that none is needed."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

import pytest

from rmq.cli.common.supervisor import READY, tell_supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        yield listening


def test_it_is_told_the_state_and_a_line_for_people(
    supervisor: socket.socket, tmp_path: Path
) -> None:
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    tell_supervisor(READY, status="serving as SLAVE", environ=environ)
    tell_supervisor(status="recovering", environ=environ)
    assert supervisor.recv(100) == b"READY=1\nSTATUS=serving as SLAVE"
    assert supervisor.recv(100) == b"STATUS=recovering"


def test_an_abstract_name_is_understood() -> None:
    name = "rmq-test-supervisor"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        tell_supervisor(READY, environ={"NOTIFY_SOCKET": f"@{name}"})
        listening.setblocking(False)
        assert listening.recv(100) == b"READY=1"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1"}])
def test_without_one_nothing_happens(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    tell_supervisor(READY, environ=environ)
    assert caplog.records == []


def test_one_that_is_gone_or_reads_nothing_holds_nothing_up(
    supervisor: socket.socket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    tell_supervisor(READY, environ={"NOTIFY_SOCKET": str(tmp_path / "none")})
    assert "cannot tell the supervisor at" in caplog.text
    caplog.clear()
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    while not caplog.records:
        tell_supervisor(status="x" * 1000, environ=environ)
    assert "Resource temporarily unavailable" in caplog.text
