"""A standalone Spark: a master and two workers on the loopback address, from the pip package alone.

Each worker has one core, 1 GiB and a folder of its own, so that an application has one executor on
each, and the folder that a task runs in tells which.
"""

from __future__ import annotations

import importlib.util
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import trio
from worker_python import environment

from interop.support.cases import MismatchError, expect
from interop.support.java import last_words
from interop.support.processes import running_process
from interop.support.spark import last_object
from interop.support.stock import free_port, wait_listening
from interop.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

WORKERS: Final = 2
_EXIT_CODES: Final[Mapping[str, int]] = {"holds": 0, "fails": 1, "unknown": 2}
_REGISTERED_WITHIN_S: Final = 180
_HOST: Final = "127.0.0.1"
_QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For programs that run for seconds."""
_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.host": _HOST,
    "spark.driver.bindAddress": _HOST,
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": _QUICK_START,
    "spark.executor.memory": "1g",
    "spark.executor.extraJavaOptions": _QUICK_START,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    # Work begins when both workers are there: the first one would do all of it otherwise.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}
"""Of every application; the last ones have it write down which executor did what."""


@dataclass(frozen=True)
class Submitted:
    """How an application ended."""

    code: int
    output: str
    errors: str
    tasks: Mapping[str, int]
    """Tasks that were done, by executor."""

    @property
    def result(self) -> dict[str, Any]:
        """What it printed: the last JSON object, for there may be other lines around it."""
        result = last_object(self.output)
        if result is None:
            raise MismatchError(
                f"no JSON but {self.output[-1500:]!r}; code {self.code}: {self.errors[-500:]}"
            )
        return result

    def expect(self, outcome: str) -> None:
        """Exit code and verdict of a pipeline must be these, and of one mind."""
        said = f"({self.output[-3000:]} {self.errors[-1500:]})"
        expect(f"exit code {said}", self.code, _EXIT_CODES[outcome])
        expect(f"outcome {said}", self.result["outcome"], outcome)


@final
@dataclass(frozen=True)
class Standalone:
    """A master with its workers, all of which run."""

    master: str
    java_home: Path
    python: Path
    folder: Path
    _numbers: Iterator[int] = field(default_factory=count)

    async def submit(
        self,
        program: Path,
        *arguments: str,
        py_files: Path | None,
        python_path: Path | None = None,
    ) -> Submitted:
        """Run an application with `spark-submit` to its end.

        What its driver says to standard error is in the output, too: Spark puts it there.
        """
        place = self.folder / f"application-{next(self._numbers)}"
        await trio.Path(place).mkdir()
        given = {**_SETTINGS, "spark.eventLog.dir": place.as_uri()}
        variables = spark_environment(self.java_home, self.python)
        if python_path is not None:
            variables["PYTHONPATH"] = str(python_path)
        command = [
            str(spark_home() / "bin" / "spark-submit"),
            *("--master", self.master),
            *(("--py-files", str(py_files)) if py_files is not None else ()),
            *(word for item in given.items() for word in ("--conf", "=".join(item))),
            str(program),
            *arguments,
        ]
        done = await trio.run_process(
            command,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=place,
            env=variables,
        )
        return Submitted(
            done.returncode,
            done.stdout.decode("utf-8", "replace"),
            done.stderr.decode("utf-8", "replace"),
            _tasks_done(place),
        )


def _tasks_done(folder: Path) -> dict[str, int]:
    """Return how many tasks each executor has done, as Spark has written it down."""
    counts: dict[str, int] = {}
    for path in folder.glob("app-*"):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerExecutorAdded":
                counts.setdefault(event["Executor ID"], 0)
            if event["Event"] == "SparkListenerTaskEnd" and not event["Task Info"]["Failed"]:
                counts[event["Task Info"]["Executor ID"]] += 1
    return counts


@asynccontextmanager
async def open_standalone(folder: Path, java_home: Path, python: Path) -> AsyncIterator[Standalone]:
    """Run a master and two workers for the length of a block; the workers are registered."""
    await trio.Path(folder).mkdir()
    port = free_port()
    master = f"spark://{_HOST}:{port}"
    async with AsyncExitStack() as stack:

        async def start(name: str, main_class: str, *arguments: str) -> trio.Process:
            log = folder / f"{name}.log"
            running = running_process(
                [
                    str(spark_home() / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{main_class}",
                    *("--host", _HOST, "--webui-port", str(free_port())),
                    *arguments,
                ],
                log=log,
                environment=spark_environment(java_home, python),
                folder=folder,
            )
            return await stack.enter_async_context(running)

        process = await start("master", "master.Master", "--port", str(port))
        await wait_listening(process, port, folder / "master.log")
        for number in range(WORKERS):
            place = folder / f"worker-{number}"
            await start(
                place.name,
                "worker.Worker",
                *("--cores", "1", "--memory", "1g", "--work-dir", str(place), master),
            )
        await _wait_registered(folder)
        yield Standalone(master, java_home, python, folder)


async def _wait_registered(folder: Path) -> None:
    async def are_registered() -> bool:
        said = await trio.Path(folder / "master.log").read_text()
        return said.count("Registering worker") == WORKERS

    try:
        await wait_until(f"{WORKERS} workers", are_registered, timeout_s=_REGISTERED_WITHIN_S)
    except MismatchError as exc:
        raise RuntimeError(f"{exc}; {_last_words(folder)}") from exc


def _last_words(folder: Path) -> str:
    return "\n".join(f"{log.stem}: {last_words(log)}" for log in sorted(folder.glob("*.log")))


def spark_home() -> Path:
    """Return where the pip package of Spark is."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def spark_environment(java_home: Path, python: Path) -> dict[str, str]:
    """Return the variables that Spark is started with."""
    return {
        **environment(),
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        # One more port, and always the same one.
        "SPARK_DAEMON_JAVA_OPTS": f"{_QUICK_START} -Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
    }
