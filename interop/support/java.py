"""The stock Java parts: their jars, compiling against them, running them and stopping them.

Jars come through `mvn` with whatever settings the machine has, into `interop/.cache`, once per
content of the check's `pom.xml`. A tool that is not there, or a package source out of reach, is a
`MissingPartError`: nothing is wrong with rmq then, but nothing was verified either.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from interop.support.cases import say
from interop.support.processes import running_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

CACHE: Final = Path(__file__).resolve().parent.parent / ".cache"

_JAVA_MAJOR_MIN: Final = 17
_DOWNLOAD_TIMEOUT_S: Final = 300
_COMPILE_TIMEOUT_S: Final = 120
_COPY_DEPENDENCIES: Final = (
    "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
)

# What RocketMQ 4.9 and its fastjson and Netty reach into on a Java with strong encapsulation.
_OPENED_PACKAGES: Final = (
    "java.base/jdk.internal.ref",
    "java.base/java.nio",
    "java.base/sun.nio.ch",
    "java.base/java.lang",
    "java.base/java.util",
)


class MissingPartError(Exception):
    """Something this machine lacks, so that the check cannot be run."""


async def need_java_tools() -> None:
    """Raise `MissingPartError` unless there are mvn and a JDK that is new enough."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise MissingPartError(
                f"`{tool}` is not installed (a JDK of {_JAVA_MAJOR_MIN} or newer"
                " and Maven are needed)"
            )
    shown = await _run("javac", "-version", timeout_s=30)
    version = re.search(r"javac (\d+)", shown.text)
    if version is None or int(version[1]) < _JAVA_MAJOR_MIN:
        raise MissingPartError(
            f"a JDK of {_JAVA_MAJOR_MIN} or newer is needed, this is {shown.text.strip()!r}"
        )


async def fetch_jars(pom: Path) -> Path:
    """Return a folder with the jars of the dependencies in `pom`, downloaded if need be."""
    jars = _jar_folder(pom)
    if jars.is_dir():
        return jars
    say(f"fetching the jars of {pom.parent.name} ...")
    # The folder gets its name only when it is complete: an interrupted download leaves no lie.
    partial = jars.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    fetched = await _run(
        "mvn",
        "--batch-mode",
        "--quiet",
        "-Dstyle.color=never",
        f"--file={pom}",
        f"-Dmaven.repo.local={CACHE / 'maven'}",
        f"-DoutputDirectory={partial}",
        _COPY_DEPENDENCIES,
        timeout_s=_DOWNLOAD_TIMEOUT_S,
    )
    if fetched.code or not partial.is_dir():
        raise MissingPartError(f"mvn could not fetch the jars:\n{fetched.text.strip()[-2000:]}")
    partial.rename(jars)
    return jars


def _jar_folder(pom: Path) -> Path:
    return CACHE / "jars" / hashlib.sha256(pom.read_bytes()).hexdigest()[:16]


async def compile_java(sources: Path, jars: Path, classes: Path) -> None:
    """Compile every source below a folder; raise RuntimeError with what the compiler says."""
    compiled = await _run(
        "javac",
        "-encoding",
        "UTF-8",
        f"--release={_JAVA_MAJOR_MIN}",
        "-Xlint:all,-processing",
        "-Werror",
        "-cp",
        f"{jars}/*",
        "-d",
        str(classes),
        *_java_files(sources),
        timeout_s=_COMPILE_TIMEOUT_S,
    )
    if compiled.code:
        raise RuntimeError(f"{sources.name} does not compile:\n{compiled.text}")


def _java_files(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*.java"))


@dataclass(frozen=True, kw_only=True)
class JavaProgram:
    """A main class and everything it is started with."""

    main_class: str
    arguments: Sequence[str] = ()
    classpath: Sequence[str]
    home: Path
    """Takes the place of the home folder: logs and local state of the program go there."""
    properties: Mapping[str, str] = field(default_factory=dict)
    jvm_options: Sequence[str] = ("-Xms64m", "-Xmx512m")
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    """Where it runs, if not here."""

    def command(self) -> list[str]:
        return [
            "java",
            *self.jvm_options,
            # Short runs: the quick compiler and the simplest collector start fastest.
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
            f"-Duser.home={self.home}",
            *(f"-D{name}={value}" for name, value in self.properties.items()),
            "-cp",
            ":".join(self.classpath),
            self.main_class,
            *self.arguments,
        ]


@asynccontextmanager
async def running_java(
    program: JavaProgram, *, log: Path, talking: bool = False
) -> AsyncIterator[trio.Process]:
    """Run a Java program for the length of a block, its output in `log`. It never outlives it.

    With `talking` its standard input and output are pipes, and only its errors go into `log`.
    """
    running = running_process(
        program.command(),
        log=log,
        environment={**clean_environment(), **program.environment},
        folder=program.folder,
        talking=talking,
    )
    async with running as process:
        yield process


def last_words(log: Path) -> str:
    """Return the end of a program's output."""
    return log.read_text(errors="replace")[-2000:]


def clean_environment() -> dict[str, str]:
    # Settings that would change what the stock parts do from one machine to the next.
    changing = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ROCKETMQ_", "NAMESRV_")) and name not in changing
    }


@dataclass(frozen=True)
class _Done:
    code: int
    text: str


async def _run(*command: str, timeout_s: float) -> _Done:
    with trio.move_on_after(timeout_s):
        done = await trio.run_process(
            command,
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return _Done(done.returncode, done.stdout.decode("utf-8", "replace"))
    return _Done(-1, f"`{command[0]}` took longer than {timeout_s:g} s")
