"""A broker process under limits of the system: what it holds, what it refuses, that it goes on."""

from __future__ import annotations

import re
import resource
import socket
import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from rmq.cli.dev.processes import free_port
from rmq.remoting.codes import RequestCode
from tests.paths import ROOT
from tests.remoting.server_kit import PING, ask, parse_frame, raw_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.remoting.server_kit import Frame

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")

MIB: Final = 1024 * 1024
TIMEOUT_S: Final = 20


class Limited:
    """A broker process under limits, and one connection to it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)

    def ask(self, frame: bytes) -> Frame:
        self._connection.sendall(frame)
        length = self._read(4)
        return parse_frame(length + self._read(struct.unpack(">i", length)[0]))

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._connection.recv(count - len(data))
            assert piece, "the broker closed the connection"
            data += piece
        return data

    @property
    def rss_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert match is not None, status
        return int(match[1]) * 1024

    def close(self) -> None:
        self._connection.close()


@contextmanager
def broker(folder: Path, limits: dict[int, tuple[int, int]] | None = None) -> Iterator[Limited]:
    port = free_port("127.0.0.1", -2, 1)
    conf = folder / "broker.conf"
    conf.write_text(
        f"brokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort={port}\nmetricsPort=0\nbrokerName=limited\n"
        f"storePathRootDir={folder / 'store'}\nmappedFileSizeCommitLog={4 * MIB}\n"
        "mappedFileSizeConsumeQueue=6000\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n"
        "diskMaxUsedSpaceRatio=95\n"
    )

    def limit() -> None:
        for kind, values in (limits or {}).items():
            resource.setrlimit(kind, values)

    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "rmq", "broker", "-c", str(conf)],
            stdout=subprocess.PIPE,
            stderr=output,
            cwd=ROOT,
            preexec_fn=limit,
        )
    try:
        assert process.stdout is not None
        assert b"boot success" in process.stdout.readline(), log.read_text()
        limited = Limited(process, port)
        yield limited
        limited.close()
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def test_bad_frames_leave_nothing_behind(tmp_path: Path) -> None:
    bad = raw_frame(b"no JSON", bytes(16 * MIB - 100))
    with broker(tmp_path) as limited:
        for number in range(40):
            with socket.create_connection(("127.0.0.1", limited.port), timeout=TIMEOUT_S) as peer:
                peer.sendall(bad)
                assert peer.recv(1) == b""
            if number == 3:
                before = limited.rss_bytes
        assert limited.rss_bytes - before < 2 * 16 * MIB
        assert limited.ask(ask(PING, 1)).code == 0


def test_a_broker_with_little_address_space_refuses_what_it_cannot_hold_and_goes_on(
    tmp_path: Path,
) -> None:
    space = 400 * MIB
    with broker(tmp_path, {resource.RLIMIT_AS: (space, space)}) as limited:
        half = ask(RequestCode.SEND_MESSAGE_V2, 1, body=bytes(15 * MIB))[: 14 * MIB]
        for _ in range(3):
            peers = []
            for _ in range(30):
                peer = socket.create_connection(("127.0.0.1", limited.port), timeout=TIMEOUT_S)
                peers.append(peer)
                try:
                    peer.sendall(half)
                except OSError:
                    # It is closed, for the others to go on.
                    continue
            assert limited.ask(ask(PING, 1)).code == 0
            for peer in peers:
                peer.close()
        assert limited.process.poll() is None
        with socket.create_connection(("127.0.0.1", limited.port), timeout=TIMEOUT_S):
            assert limited.ask(ask(PING, 2)).code == 0


def test_a_broker_with_few_open_files_takes_all_it_may_and_turns_others_away(
    tmp_path: Path,
) -> None:
    with broker(tmp_path, {resource.RLIMIT_NOFILE: (100, 200)}) as limited:
        log = (tmp_path / "log").read_text()
        assert "200 files may be open, raised from 100" in log
        peers = [
            socket.create_connection(("127.0.0.1", limited.port), timeout=TIMEOUT_S)
            for _ in range(200)
        ]
        ended = 0
        for peer in peers[-20:]:
            try:
                ended += peer.recv(1) == b""
            except ConnectionResetError:
                ended += 1
        assert ended == 20
        assert limited.ask(ask(PING, 1)).code == 0
        for peer in peers:
            peer.close()
