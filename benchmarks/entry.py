"""The heading of an entry in benchmarks/results/: date, machine, Python, commit and command."""

from __future__ import annotations

import datetime
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
UNKNOWN: Final = "unknown"


def heading() -> str:
    """Return the line that begins an entry about this run."""
    command = shlex.join([f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    today = datetime.datetime.now(datetime.UTC).date()
    return (
        f"### {today}, {os.cpu_count()} cores of {processor()},"
        f" Python {platform.python_version()}, commit {commit()}, `{command}`"
    )


def processor() -> str:
    """Return the name of the processor as the system has it."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def commit(root: Path = ROOT) -> str:
    """Return the commit that is measured, with a word if tracked files differ from it."""
    try:
        name = _git(root, "rev-parse", "--short=10", "HEAD")
        is_changed = bool(_git(root, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    return f"{name} with changes" if is_changed else name


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.strip()
