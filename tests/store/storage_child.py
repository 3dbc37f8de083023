"""Lines of a test that run in a child process, with limits and mounts of their own.

The lines find `storage` and `root` at hand. What they print comes back, or the `StorageError` with
which they end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rmq.errors import DiskFullError, StorageError
from tests.store.storage_contract import Refusal

PROJECT = Path(__file__).resolve().parents[2]

# Where the system does not let a child make mounts of its own, it ends with this code.
CANNOT_MOUNT = 77

CHILD = """
import ctypes, fcntl, json, os, resource, sys
from pathlib import Path
from rmq.errors import StorageError
from rmq.store.storage import DiskStorage

storage, root = DiskStorage(), Path(sys.argv[1])

def mount_tmpfs(options, flags=0):
    libc = ctypes.CDLL(None, use_errno=True)
    new_mounts, new_user, private_recursive = 0x20000, 0x10000000, 0x44000
    failed = (
        libc.unshare(new_mounts | (new_user if os.geteuid() else 0))
        or libc.mount(b"none", b"/", None, private_recursive, None)
        or libc.mount(b"tmpfs", os.fsencode(root), b"tmpfs", flags, options)
    )
    if failed:
        sys.exit({cannot_mount})

try:
    {body}
except StorageError as error:
    json.dump(
        [type(error).__name__, error.operation, error.path, error.reason, error.hint], sys.stdout
    )
"""


def command(lines: str, root: Path) -> list[str]:
    """Return the command that runs the lines; it belongs into the folder `PROJECT`."""
    body = textwrap.indent(textwrap.dedent(lines).strip(), "    ").strip()
    program = CHILD.replace("{body}", body).replace("{cannot_mount}", str(CANNOT_MOUNT))
    return [sys.executable, "-c", program, str(root)]


def output_of(lines: str, root: Path) -> str:
    """Run the lines and return what they print."""
    done = subprocess.run(
        command(lines, root), cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode == CANNOT_MOUNT:
        pytest.skip("no file system can be mounted here")
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal_of_child(lines: str, root: Path) -> Refusal:
    """Run lines that end with a `StorageError` and return what it says."""
    name, operation, path, reason, hint = json.loads(output_of(lines, root))
    kinds = {kind.__name__: kind for kind in (StorageError, DiskFullError)}
    return Refusal(kinds[name], operation, path, reason, hint)
