"""Masters and slaves as processes for bench_ha.py, of ours or stock ones, and what they are asked.

All of them may use all cores: what replication costs is taken from what is left for everyone else.
One nameserver of ours serves all brokers, stock ones too.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from benchmarks.broker_load.answers import AnswerCutter, is_success
from benchmarks.broker_load.frames import OPAQUE_FIRST, SendShape, UniqueKeys, send_frame
from benchmarks.broker_load.peer import NoAnswerError, connect, read
from benchmarks.broker_servers import (
    ROOT,
    BrokerFolder,
    BrokerKind,
    RunningBroker,
    source_environment,
    spawn,
)
from benchmarks.ha_stream import CLUSTER, SEGMENT_BYTES
from interop.support.stock import HA_DISTANCE, free_port, write_properties
from rmq.remoting.bodies import HaStatusBody
from rmq.remoting.codes import LanguageCode, RequestCode
from rmq.remoting.command import encode_frame

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from contextlib import ExitStack
    from pathlib import Path

ASYNC: Final = "ASYNC_MASTER"
SYNC: Final = "SYNC_MASTER"
PATIENCE_S: Final = 60.0
_POLL_S: Final = 0.01
_WATCH_S: Final = 0.005


@contextmanager
def running_nameserver(folder: Path, *, root: Path = ROOT) -> Iterator[str]:
    """Run a nameserver of a source tree for the length of a block; its address is given."""
    port = free_port()
    config = write_properties(
        folder / "namesrv.conf",
        {"listenPort": str(port), "kvConfigPath": str(folder / "kvConfig.json")},
    )
    with (folder / "namesrv.log").open("ab") as output:
        process = spawn(
            [sys.executable, "-m", "rmq", "namesrv", "-c", str(config)],
            core=None,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=source_environment(root),
        )
    try:
        # A broker that finds nobody registers again only after half a minute.
        _wait_listening(port)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait_listening(port: int) -> None:
    deadline_s = time.perf_counter() + PATIENCE_S
    while True:
        try:
            connect(port).close()
        except OSError as exc:
            if time.perf_counter() > deadline_s:
                raise NoAnswerError(f"the nameserver does not listen: {exc}") from exc
            time.sleep(_POLL_S)
        else:
            return


def master_folder(
    kind: BrokerKind, path: Path, nameserver: str, *, name: str, role: str = ASYNC
) -> BrokerFolder:
    """Choose where a master will be."""
    settings = {
        "brokerClusterName": CLUSTER,
        "brokerName": name,
        "brokerRole": role,
        "brokerId": "0",
        "namesrvAddr": nameserver,
        "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
    }
    return BrokerFolder(kind, path, settings, all_cores=True)


def slave_folder(
    kind: BrokerKind, path: Path, nameserver: str, *, name: str, master: BrokerFolder
) -> BrokerFolder:
    """Choose where a slave of a master will be."""
    settings = {
        "brokerClusterName": CLUSTER,
        "brokerName": name,
        "brokerRole": "SLAVE",
        "brokerId": "1",
        "namesrvAddr": nameserver,
        "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
        # A stock slave would hear of its master only after some 12 s.
        "haMasterAddress": f"127.0.0.1:{master.port + HA_DISTANCE}",
    }
    return BrokerFolder(kind, path, settings, all_cores=True)


@dataclass(frozen=True, slots=True)
class Pair:
    """A master that runs, and its slave if it has one."""

    name: str
    """Whose it is."""
    run_in_s: float
    master: RunningBroker
    slave: RunningBroker | None

    def switch(self, mode: str) -> None:
        """Let sends wait for the slave, or not, from now on."""
        body = f"brokerRole={mode}".encode()
        frame = encode_frame(
            code=RequestCode.UPDATE_BROKER_CONFIG,
            opaque=OPAQUE_FIRST,
            body_length=len(body),
            language=LanguageCode.JAVA,
        )
        ask(self.master.port, frame + body)

    def wait_in_sync(self, topic: str) -> None:
        """Return when the slave confirms what is sent; the mode is SYNC_MASTER then."""
        self.switch(SYNC)
        frame = send_frame(SendShape(topic, b"x" * 128), 0, OPAQUE_FIRST, UniqueKeys())
        deadline_s = time.perf_counter() + PATIENCE_S
        while True:
            try:
                ask(self.master.port, frame)
            except NoAnswerError as exc:
                if time.perf_counter() > deadline_s:
                    raise NoAnswerError(f"the slave of {self.name} does not follow: {exc}") from exc
                time.sleep(_POLL_S)
            else:
                return


def start_pair(
    kind: BrokerKind, folder: Path, nameserver: str, stack: ExitStack, *, with_slave: bool
) -> Pair:
    """Start a master, with a slave or without, for as long as the stack is open."""
    name = f"{kind.name}-{'pair' if with_slave else 'alone'}"
    place = master_folder(kind, folder / f"{name}-master", nameserver, name=name)
    stack.callback(place.remove)
    master = stack.enter_context(place.running())
    slave = None
    if with_slave:
        slave_place = slave_folder(
            kind, folder / f"{name}-slave", nameserver, name=name, master=place
        )
        stack.callback(slave_place.remove)
        slave = stack.enter_context(slave_place.running())
    return Pair(kind.name, kind.run_in_s, master, slave)


# --- questions -------------------------------------------------------------------------------


def ask(port: int, frame: bytes) -> bytes:
    """Return the body of the answer to one request, which must be a success."""
    with connect(port) as sock:
        return _ask(sock, frame)


def _ask(sock: socket.socket, frame: bytes) -> bytes:
    sock.sendall(frame)
    cutter = AnswerCutter()
    while True:
        for _, header, body in cutter.answers(read(sock)):
            if not is_success(header):
                raise NoAnswerError(header.decode(errors="replace"))
            return body


def log_end(port: int) -> int:
    """Return where the log of a broker ends, also of a stock one."""
    frame = encode_frame(
        code=RequestCode.GET_BROKER_RUNTIME_INFO, opaque=OPAQUE_FIRST, language=LanguageCode.JAVA
    )
    deadline_s = time.perf_counter() + PATIENCE_S
    while True:
        try:
            body = ask(port, frame)
        except NoAnswerError:
            # A stock broker fails to answer this during its first second.
            if time.perf_counter() > deadline_s:
                raise
            time.sleep(_POLL_S)
        else:
            return int(msgspec.json.decode(body)["table"]["commitLogMaxOffset"])


def wait_topic(port: int, topic: str) -> None:
    """Return when a slave has heard of a topic."""
    frame = encode_frame(
        code=RequestCode.GET_ALL_TOPIC_CONFIG, opaque=OPAQUE_FIRST, language=LanguageCode.JAVA
    )
    deadline_s = time.perf_counter() + PATIENCE_S
    while f'"{topic}"'.encode() not in ask(port, frame):
        if time.perf_counter() > deadline_s:
            raise NoAnswerError(f"the slave does not hear of {topic}")
        time.sleep(_POLL_S)


def watch_catch_up(slave: RunningBroker, stop: int) -> float:
    """Return how long a slave of ours took from the first byte of the log to the last.

    It is asked every 5 ms, and the time runs from the last answer before the first byte.
    """
    frame = encode_frame(code=RequestCode.HA_STATUS, opaque=OPAQUE_FIRST)
    deadline_s = time.perf_counter() + PATIENCE_S
    with connect(slave.port) as sock:
        began_s = time.perf_counter()
        while True:
            asked_s = time.perf_counter()
            end = HaStatusBody.decode(_ask(sock, frame)).end
            if not end:
                began_s = asked_s
            elif end >= stop:
                return asked_s - began_s
            if asked_s > deadline_s:
                raise NoAnswerError(f"the slave is at {end} of {stop}")
            time.sleep(_WATCH_S)


# --- the page cache --------------------------------------------------------------------------


def warm(path: Path) -> None:
    """Bring a file into memory."""
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while file.readinto(buffer):
            pass


def drop(path: Path) -> None:
    """Have the system forget what it holds of a file in memory.

    It keeps what somebody has mapped and touched: whoever wrote the file must have ended.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def warm_share(path: Path, stop: int) -> float:
    """Return how much of a file is in memory, up to `stop`."""
    pages = -(-stop // mmap.PAGESIZE)
    found = (ctypes.c_ubyte * pages)()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), stop) as mapping:
        place = ctypes.c_char.from_buffer(mapping)
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.mincore(
            ctypes.c_void_p(ctypes.addressof(place)), ctypes.c_size_t(stop), found
        )
        code = ctypes.get_errno()
        del place
    if failed:
        raise OSError(code, os.strerror(code))
    return sum(page & 1 for page in bytes(found)) / pages
