"""The Python of the workers: what rmq needs is installed there, rmq itself is not."""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import TYPE_CHECKING, Final

from interop.support.java import MissingPartError
from interop.support.tools import run_tool

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_S: Final = 60
_LOOK: Final = """
import importlib.util
for name in ("numpy", "pyarrow", "msgspec", "construct", "rmq", "pyspark_rmq", "pyspark_rmq_store"):
    print(name, importlib.util.find_spec(name) is not None)
"""


async def make_worker_python(folder: Path) -> Path:
    """Return the Python of a new environment in a folder; raise `MissingPartError`.

    It has the packages of this one by a line in a .pth file. Such a line is not followed further:
    packages that are installed here as links to their sources, as rmq is, are not there.
    """
    made = await run_tool(
        sys.executable, "-m", "venv", "--without-pip", str(folder), timeout_s=_TIMEOUT_S
    )
    if made.code:
        raise MissingPartError(f"no environment for the workers could be made: {made.text}")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    (packages / "project.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin" / "python"


async def packages_of(python: Path, folder: Path) -> dict[str, bool]:
    """Return which of the packages that pipelines use a Python finds by itself."""
    done = await run_tool(
        str(python), "-c", _LOOK, folder=folder, environment=environment(), timeout_s=_TIMEOUT_S
    )
    if done.code:
        raise MissingPartError(f"the Python of the workers does not run: {done.text}")
    return {name: found == "True" for name, found in map(str.split, done.text.splitlines())}


def environment() -> dict[str, str]:
    """Return the variables of this process without those that lead to rmq, Python or Spark."""
    leading = ("PYTHON", "PYSPARK", "SPARK", "RMQ", "JAVA", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(leading)}
