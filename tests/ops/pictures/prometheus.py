"""A Prometheus of this machine: started, scraping, and asked."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from rmq.cli.dev.processes import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SCRAPE_S: Final = 5
_HOST: Final = "127.0.0.1"
_START_S: Final = 30.0
_TIMEOUT_S: Final = 30.0


class Series(NamedTuple):
    """A result: its labels, and its values by their times."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


class Prometheus:
    """What answers at an address."""

    def __init__(self, address: str) -> None:
        self.address = address

    def now(self, expression: str, at_s: float) -> list[Series]:
        """Evaluate at one time."""
        found = self._get("query", {"query": expression, "time": f"{at_s:.3f}"})
        if found["resultType"] == "scalar":
            return [Series({}, [_point(found["result"])])]
        return [Series(each["metric"], [_point(each["value"])]) for each in found["result"]]

    def course(self, expression: str, begin_s: float, end_s: float, step_s: float) -> list[Series]:
        """Evaluate at all times of a range."""
        found = self._get(
            "query_range",
            {"query": expression, "start": f"{begin_s:.3f}", "end": f"{end_s:.3f}", "step": step_s},
        )
        return [
            Series(each["metric"], [_point(value) for value in each["values"]])
            for each in found["result"]
        ]

    def is_ready(self) -> bool:
        try:
            with urlopen(f"http://{self.address}/-/ready", timeout=_TIMEOUT_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, path: str, fields: Mapping[str, object]) -> dict[str, Any]:
        url = f"http://{self.address}/api/v1/{path}?{urlencode(dict(fields))}"
        try:
            with urlopen(url, timeout=_TIMEOUT_S) as answer:
                found: dict[str, Any] = json.load(answer)["data"]
                return found
        except HTTPError as error:
            raise RuntimeError(f"{fields['query']}: {error.read().decode()}") from None


def _point(value: tuple[float, str]) -> tuple[float, float]:
    return float(value[0]), float(value[1])


@contextmanager
def prometheus(folder: Path, targets: Mapping[str, Mapping[str, int]]) -> Iterator[Prometheus]:
    """Run one that scrapes ports of this machine: by job, and by what the instance is called."""
    program = shutil.which("prometheus")
    if program is None:
        raise SystemExit("prometheus is not installed: it is in Debian's package of that name")
    jobs = [
        {
            "job_name": job,
            "honor_labels": True,
            "static_configs": [
                {"targets": [f"{_HOST}:{port}"], "labels": {"instance": instance}}
                for instance, port in ports.items()
            ],
        }
        for job, ports in targets.items()
    ]
    settings = {"global": {"scrape_interval": f"{SCRAPE_S}s"}, "scrape_configs": jobs}
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(settings))
    address = f"{_HOST}:{free_port(_HOST)}"
    command = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    process = subprocess.Popen(command)
    try:
        found = Prometheus(address)
        deadline = time.monotonic() + _START_S
        while not found.is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("prometheus did not start")
            time.sleep(0.1)
        yield found
    finally:
        process.terminate()
        process.wait()
