"""A Prometheus with the generated files, as a process, and what it answers."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import trio
import yaml

from interop.checks.prometheus.scaled_rules import scaled
from interop.support.java import MissingPartError
from interop.support.processes import running_process
from interop.support.stock import free_port, wait_listening
from interop.support.tools import run_tool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

INTERVAL_S: Final = 1
_TIMEOUT_S: Final = 20.0
_TOOL_TIMEOUT_S: Final = 60.0


def need_prometheus() -> tuple[str, str]:
    """Return where `prometheus` and `promtool` are; raise `MissingPartError` without them."""
    found = shutil.which("prometheus"), shutil.which("promtool")
    if found[0] is None or found[1] is None:
        raise MissingPartError("`prometheus` and `promtool` (Debian: the package prometheus)")
    return found[0], found[1]


async def version_of(program: str) -> str:
    done = await run_tool(program, "--version", timeout_s=_TOOL_TIMEOUT_S)
    return done.text.split("version ", 1)[-1].split("+", 1)[0].split(" ", 1)[0].strip(",")


@dataclass(frozen=True)
class Firing:
    """An alert that fires."""

    name: str
    labels: Mapping[str, str]

    def is_like(self, name: str, labels: Mapping[str, str]) -> bool:
        return self.name == name and labels.items() <= self.labels.items()


@final
class PrometheusServer:
    """One that runs."""

    def __init__(self, folder: Path, port: int, process: trio.Process) -> None:
        self._folder = folder
        self._url = f"http://127.0.0.1:{port}"
        self._process = process

    async def firing(self) -> list[Firing]:
        found = await self.ask("query", query='ALERTS{alertstate="firing"}')
        labels = [each["metric"] for each in found["result"]]
        return [Firing(each["alertname"], each) for each in labels]

    async def has_value(self, expression: str, begin_s: float, end_s: float) -> bool:
        """Tell whether an expression had a value at some time."""
        found = await self.ask(
            "query_range", query=expression, start=begin_s, end=end_s, step=2 * INTERVAL_S
        )
        values = (value for each in found["result"] for _, value in each["values"])
        return any(value != "NaN" for value in values)

    async def rendered(self) -> list[dict[str, str]]:
        """Return the annotations of all alerts that are pending or fire, as they are shown."""
        found = await self.ask("alerts")
        return [alert["annotations"] for alert in found["alerts"]]

    async def target(self, brokers: Sequence[str], nameservers: Sequence[str]) -> None:
        """Have it scrape these."""
        config = self._folder / "prometheus.yml"
        document = yaml.safe_load(config.read_text())
        for job, targets in zip(document["scrape_configs"], (brokers, nameservers), strict=True):
            job["static_configs"][0]["targets"] = list(targets)
        config.write_text(yaml.safe_dump(document))
        self._process.send_signal(signal.SIGHUP)

    async def ask(self, path: str, **fields: object) -> dict[str, Any]:
        """Call the HTTP API; raise `RuntimeError` with what it says is wrong."""
        url = f"{self._url}/api/v1/{path}?{urlencode(fields)}"
        return await trio.to_thread.run_sync(_get, url)


def _get(url: str) -> dict[str, Any]:
    try:
        with urlopen(url, timeout=_TIMEOUT_S) as answer:
            found: dict[str, Any] = json.load(answer)["data"]
            return found
    except HTTPError as error:
        raise RuntimeError(f"{url}: {error.read().decode()}") from None


def adapt(folder: Path) -> None:
    """Change generated files: scrape every second, and divide the times of the rules."""
    for path in folder.glob("*.yml"):
        document = yaml.safe_load(path.read_text())
        if "groups" in document:
            document = scaled(document)
        else:
            document["global"] = {
                "scrape_interval": f"{INTERVAL_S}s",
                "scrape_timeout": f"{INTERVAL_S}s",
                "evaluation_interval": f"{INTERVAL_S}s",
            }
        path.write_text(yaml.safe_dump(document, sort_keys=False))


@asynccontextmanager
async def running_prometheus(program: str, folder: Path) -> AsyncIterator[PrometheusServer]:
    """Run one with the `prometheus.yml` of a folder, for the length of a block."""
    port = free_port()
    log = folder / "log"
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    async with running_process(command, log=log, environment=dict(os.environ)) as process:
        await wait_listening(process, port, log)
        yield PrometheusServer(folder, port, process)
