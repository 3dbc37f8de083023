"""The stock rocketmq-exporter as a process, and what it says when it is scraped.

It is in no package registry: the check takes a jar that is there (`exporter_jar`).
"""

from __future__ import annotations

import os
import re
import urllib.request
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import trio
from prometheus_client.parser import text_string_to_metric_families

from interop.support.cases import MismatchError, expect
from interop.support.java import CACHE, JavaProgram, MissingPartError, running_java
from interop.support.stock import free_port, wait_listening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

JAR_VARIABLE: Final = "RMQ_INTEROP_EXPORTER_JAR"
_JAR_PATTERN: Final = "rocketmq-exporter-*-exec.jar"
_MAIN_CLASS: Final = "org.springframework.boot.loader.JarLauncher"
_EVERY_TWO_SECONDS: Final = "*/2 * * * * ?"
_TASKS: Final = (
    "collectTopicOffset",
    "collectProducer",
    "collectConsumerOffset",
    "collectBrokerStatsTopic",
    "collectBrokerStats",
    "collectBrokerRuntimeStats",
)
FORGETS_AFTER_S: Final = 15
"""How long it shows a sample that was not collected again."""
_SCRAPE_TIMEOUT_S: Final = 10
_ERROR: Final = re.compile(r"^\[[^]]*\] ERROR ")


def exporter_jar() -> Path:
    """Return the exporter's executable jar; raise `MissingPartError` without one."""
    named = os.environ.get(JAR_VARIABLE)
    found = [Path(named)] if named else sorted(CACHE.glob(_JAR_PATTERN))
    if not found or not found[-1].is_file():
        raise MissingPartError(
            f"no jar of rocketmq-exporter, which is in no package registry: put a"
            f" {_JAR_PATTERN} into interop/.cache, or name one in {JAR_VARIABLE}"
        )
    return found[-1]


def exporter_version(jar: Path) -> str:
    """Return the version in the name of a jar."""
    found = re.search(r"exporter-(\d[\w.]*)", jar.name)
    return found[1] if found else "of unknown version"


@dataclass(frozen=True)
class Sample:
    """A value of a family, with its labels."""

    labels: Mapping[str, str]
    value: float


@final
@dataclass(frozen=True)
class Scrape:
    """Everything that `/metrics` said at one time."""

    families: Mapping[str, list[Sample]]

    @classmethod
    def parse(cls, text: str) -> Scrape:
        """Take it apart as Prometheus does; the exporter writes neither HELP nor TYPE."""
        families: dict[str, list[Sample]] = {}
        for parsed in text_string_to_metric_families(text):
            for sample in parsed.samples:
                families.setdefault(sample.name, []).append(Sample(sample.labels, sample.value))
        return cls(families)

    def values(self, family: str, **labels: str) -> list[float]:
        """Return the values of a family that have these labels, among others."""
        return [
            sample.value
            for sample in self.families.get(family, [])
            if labels.items() <= sample.labels.items()
        ]

    def value(self, family: str, **labels: str) -> float:
        """Return the one value that has these labels."""
        found = set(self.values(family, **labels))
        if len(found) != 1:
            raise MismatchError(f"expected one value of {family}{labels}, got {sorted(found)}")
        return found.pop()

    def latest(self, family: str, **labels: str) -> float:
        """Return the highest value: ends of topics are shown for a while as they were, too."""
        found = self.values(family, **labels)
        if not found:
            raise MismatchError(f"expected a value of {family}{labels}")
        return max(found)


@final
@dataclass(frozen=True)
class Exporter:
    """An exporter that runs."""

    url: str
    log: Path

    async def scrape(self) -> Scrape:
        """Ask for the metrics, as Prometheus would."""
        content_type, text = await trio.to_thread.run_sync(self._get)
        expect("content type", content_type, "text/plain;version=0.0.4;charset=utf-8")
        return Scrape.parse(text)

    def _get(self) -> tuple[str, str]:
        with urllib.request.urlopen(self.url, timeout=_SCRAPE_TIMEOUT_S) as answer:
            content_type = answer.headers["Content-Type"].replace(" ", "").lower()
            return content_type, answer.read().decode()

    def errors(self) -> list[str]:
        """Return the errors that it has logged."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if _ERROR.search(line)]


@asynccontextmanager
async def running_exporter(jar: Path, folder: Path, nameserver: str) -> AsyncIterator[Exporter]:
    """Run the exporter for the length of a block; it collects every two seconds."""
    home = folder / "exporter"
    await trio.Path(home).mkdir()
    port = free_port()
    options = {
        "server.address": "127.0.0.1",
        "server.port": str(port),
        # It listens there for metrics of RocketMQ 5, on all addresses: there is no setting.
        "grpc.server.port": "0",
        "rocketmq.config.namesrvAddr": nameserver,
        "rocketmq.config.outOfTimeSeconds": str(FORGETS_AFTER_S),
        **{f"task.{task}.cron": _EVERY_TWO_SECONDS for task in _TASKS},
    }
    program = JavaProgram(
        main_class=_MAIN_CLASS,
        arguments=[f"--{name}={value}" for name, value in options.items()],
        classpath=[str(jar)],
        home=home,
        properties={"tls.config.file": str(home / "none")},
        folder=home,
    )
    log = home / "log"
    async with running_java(program, log=log) as process:
        await wait_listening(process, port, log)
        yield Exporter(f"http://127.0.0.1:{port}/metrics", log)
