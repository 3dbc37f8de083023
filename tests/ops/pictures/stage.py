"""A nameserver, a pair and a Prometheus that scrapes them, as processes."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Final

import trio

from rmq.cli.dev.pair import METRICS_ABOVE, SLAVE_ABOVE, write_pair
from rmq.cli.dev.processes import Child, free_port
from tests.ops.pictures.prometheus import prometheus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.ops.pictures.prometheus import Prometheus

HOST: Final = "127.0.0.1"
QUEUE_GROUPS: Final = "shipping"
"""Whose lag is shown queue by queue."""
REPORTS_FILE: Final = "metrics"


@dataclass(frozen=True)
class Stage:
    """What runs."""

    folder: Path
    nameserver: str
    brokers: tuple[str, str]
    """Addresses; the first is the master at the start."""
    stores: tuple[str, str]
    reports: Path
    """A file that is scraped, for the metrics of pipelines."""
    prometheus: Prometheus

    async def rmq(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> None:
        """Run a command of the program to its end, with paths below the folder."""
        command = [sys.executable, "-m", "rmq", "--log-level", "warning", *arguments]
        done = await trio.run_process(
            command, cwd=self.folder, capture_stdout=True, capture_stderr=True, check=False
        )
        if done.returncode not in codes:
            text = (done.stdout + done.stderr).decode(errors="replace")
            raise RuntimeError(f"rmq {' '.join(arguments)} ended with {done.returncode}:\n{text}")


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Stage]:
    """Start all of it below a folder, and stop it in order."""
    port, metrics_port = free_port(HOST), free_port(HOST)
    nameserver = f"{HOST}:{port}"
    conf = folder / "namesrv.conf"
    conf.write_text(
        f"bindAddress={HOST}\nlistenPort={port}\nmetricsPort={metrics_port}\n"
        f"kvConfigPath={folder / 'kvConfig.json'}\n"
    )
    beside = (-2, 1, METRICS_ABOVE)
    of_slave = (SLAVE_ABOVE + each for each in (0, *beside))
    first = free_port(HOST, *beside, *of_slave)
    pair = write_pair(folder, HOST, first, nameserver, "sync")
    for broker in pair:
        text = broker.conf.read_text()
        broker.conf.write_text(f"{text}metricsQueueGroups={QUEUE_GROUPS}\nexpectedSlaves=1\n")
    children = [Child("nameserver", ["--log-level", "warning", "namesrv", "-c", str(conf)])]
    children += [
        Child(broker.role, ["--log-level", "warning", "broker", "-c", str(broker.conf)])
        for broker in pair
    ]
    reports = folder / "reports"
    reports.mkdir()
    (reports / REPORTS_FILE).touch()
    with _served(reports) as reports_port:
        targets = {
            "rocketmq": {f"broker-a-{n}": first + n * SLAVE_ABOVE + METRICS_ABOVE for n in (0, 1)},
            "rocketmq-namesrv": {"namesrv-1": metrics_port},
            "node": {"reports": reports_port},
        }
        with prometheus(folder, targets) as scraping:
            async with trio.open_nursery() as nursery:
                for child in children:
                    await nursery.start(child.run)
                yield Stage(
                    folder=folder,
                    nameserver=nameserver,
                    brokers=(pair[0].address, pair[1].address),
                    stores=(f"{pair[0].folder.name}/store", f"{pair[1].folder.name}/store"),
                    reports=reports / REPORTS_FILE,
                    prometheus=scraping,
                )
                for child in reversed(children):
                    await child.stop()
                nursery.cancel_scope.cancel()


class _Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and says nothing about it."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _served(folder: Path) -> Iterator[int]:
    """Serve a folder in a thread; yield the port."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer((HOST, 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()
