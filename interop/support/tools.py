"""Tools of other languages that a check needs, and what they say."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from interop.support.java import MissingPartError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Done:
    """How a tool ended, and its output."""

    code: int
    text: str


async def run_tool(
    *command: str,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float,
) -> Done:
    """Run a tool to its end, which it comes to in time or with code -1."""
    with trio.move_on_after(timeout_s):
        done = await trio.run_process(
            command,
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            check=False,
            cwd=folder,
            env=None if environment is None else dict(environment),
        )
        return Done(done.returncode, done.stdout.decode("utf-8", "replace"))
    return Done(-1, f"`{command[0]}` took longer than {timeout_s:g} s")


async def need_tool(name: str, *version_arguments: str, version_min: tuple[int, ...]) -> None:
    """Raise `MissingPartError` unless a tool is there and new enough."""
    wanted = ".".join(map(str, version_min))
    if shutil.which(name) is None:
        raise MissingPartError(f"`{name}` is not installed ({wanted} or newer is needed)")
    shown = await run_tool(name, *version_arguments, timeout_s=30)
    found = re.search(r"\d+(?:\.\d+)*", shown.text)
    if found is None or tuple(map(int, found[0].split("."))) < version_min:
        raise MissingPartError(
            f"`{name}` {wanted} or newer is needed, this is {shown.text.strip()[:200]!r}"
        )
