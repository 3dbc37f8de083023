"""Programs that run beside a check and end with it."""

from __future__ import annotations

import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

_STOP_TIMEOUT_S: Final = 10


@asynccontextmanager
async def running_process(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str],
    folder: Path | None = None,
    talking: bool = False,
) -> AsyncIterator[trio.Process]:
    """Run a program for the length of a block; it is asked to end, then made to, after it.

    What it prints is added to `log`. With `talking` its standard input and output are pipes, and
    only its errors go there.
    """
    with log.open("ab") as output:
        process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.PIPE if talking else subprocess.DEVNULL,
            stdout=subprocess.PIPE if talking else output,
            stderr=output,
            env=environment,
            cwd=folder,
        )
    try:
        yield process
    finally:
        with trio.CancelScope(shield=True):
            await _stop(process)


async def _stop(process: trio.Process) -> None:
    if process.poll() is None:
        process.terminate()
    with trio.move_on_after(_STOP_TIMEOUT_S):
        await process.wait()
    if process.poll() is None:
        process.kill()
        await process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            await pipe.aclose()
