"""A settings file, and the place that it gives a broker: its store, its ports, its address."""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import tempfile
import time
from typing import TYPE_CHECKING, Final

from rmq.broker.config.loading import load_broker_config
from rmq.cli.doctor.checks import Check, State, judged
from rmq.errors import ConfigError
from rmq.model.words import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rmq.broker.config import BrokerConfig

FLUSHES: Final = 20
FLUSH_BYTES: Final = 4096
FLUSH_ODD_S: Final = 0.02
FLUSH_BAD_S: Final = 0.2
ROOM_BYTES: Final = 2 * 1024**3
"""Two segments of the log: below this the next one may not fit."""
_CONNECT_S: Final = 1.0


def settings_checks(path: Path, environ: Mapping[str, str]) -> Iterator[Check]:
    """Check a file as a broker reads it, then what it names on this machine."""
    about = str(path)
    try:
        loaded = load_broker_config(path, {}, environ)
    except ConfigError as wrong:
        yield Check(about, "settings", State.BAD, str(wrong), "correct the file")
        return
    for warning in loaded.warnings:
        yield Check(about, "settings", State.ODD, warning, "see `rmq config reference`")
    config = loaded.config
    if not loaded.warnings:
        yield Check(about, "settings", State.OK, f"{config.role.value} {config.broker_name}")
    yield from _store_checks(about, config.store.root)
    yield from _address_checks(about, config)


def _store_checks(about: str, root: Path) -> Iterator[Check]:
    place = root
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        yield Check(
            about,
            "store",
            State.BAD,
            f"{place} cannot be written",
            "let the user that runs rmq own the store directory",
        )
        return
    usage = shutil.disk_usage(place)
    # As df has it: what is kept for root counts as neither.
    used = usage.used / max(1, usage.used + usage.free)
    yield judged(
        about,
        "room for the store",
        f"{size_text(usage.free)} free, {used:.0%} used, at {place}",
        is_bad=used >= 0.9 or usage.free < ROOM_BYTES,
        is_odd=used >= 0.75,
        todo="make room: above 75 % messages are deleted early, above 90 % refused",
    )
    flush_s = flush_time_s(place)
    if flush_s is None:
        yield Check(about, "disk", State.BAD, f"{place} cannot be written", "see its file system")
        return
    yield judged(
        about,
        "disk",
        f"{flush_s * 1000:.1f} ms to write and flush {FLUSH_BYTES} bytes",
        is_bad=flush_s >= FLUSH_BAD_S,
        is_odd=flush_s >= FLUSH_ODD_S,
        todo="with flushDiskType=SYNC_FLUSH this is the time of a send: see docs/tuning.md",
    )


def flush_time_s(folder: Path) -> float | None:
    """Return how long it takes to write and flush a few kilobytes; None if that fails."""
    times: list[float] = []
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for _ in range(FLUSHES):
                started = time.perf_counter()
                file.write(b"x" * FLUSH_BYTES)
                file.flush()
                os.fsync(file.fileno())
                times.append(time.perf_counter() - started)
    except OSError:
        return None
    return statistics.median(times)


def _address_checks(about: str, config: BrokerConfig) -> Iterator[Check]:
    host, _, _ = config.address.rpartition(":")
    is_ours = _is_own_address(host)
    yield judged(
        about,
        "announced address",
        f"{config.address}{'' if is_ours else ', which is no address of this machine'}",
        is_odd=not is_ours,
        todo="set brokerIP1 to the address that clients reach this machine at",
    )
    has_broker = _answers(host, config.listen_port)
    for port, whom in ((config.listen_port, "clients"), (config.ha_port, "slaves")):
        if _is_free(config.bind_address, port):
            found = f"port {port} for {whom}: free"
        elif has_broker:
            # The port for slaves is not tried: the master would report a slave that leaves.
            found = f"port {port} for {whom}: in use, and the one for clients answers"
        else:
            yield Check(
                about,
                "ports",
                State.BAD,
                f"port {port} for {whom} is taken, and no broker answers",
                f"find who has it: ss -ltnp 'sport = :{port}'",
            )
            continue
        yield Check(about, "ports", State.OK, found)


def _is_own_address(host: str) -> bool:
    try:
        with socket.create_server((host, 0)):
            return True
    except OSError:
        return False


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), _CONNECT_S):
            return True
    except OSError:
        return False


def _is_free(host: str, port: int) -> bool:
    try:
        with socket.create_server((host, port)):
            return True
    except OSError:
        return False
