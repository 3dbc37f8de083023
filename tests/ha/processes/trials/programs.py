"""`rmq` as a program of its own, run from any checkout: servers that stay, commands that end."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from tests.ha.processes.cluster import READY, STOP_S
from tests.ha.processes.surroundings import NotAllowedError, Surroundings
from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TODAY: Final = ROOT
"""The checkout that this file is in."""
COMMAND_S: Final = 60.0
START_S: Final = 60.0
"""Programs load their code when they start, and several do so at once."""
_POLL_S: Final = 0.02
_PR_CAPBSET_DROP: Final = 24
_CAP_DAC_OVERRIDE: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)


def _command(arguments: Sequence[str]) -> list[str]:
    # The folder it is started in does not count for imports.
    return [sys.executable, "-P", "-m", "rmq", *arguments]


def _environment(code: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(code)}


class Program:
    """A server; may be started, killed and started again. Started by the main thread only."""

    def __init__(self, name: str, folder: Path, code: Path, arguments: list[str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.surroundings = Surroundings()
        self._code = code
        self._arguments = arguments
        self._child: subprocess.Popen[bytes] | None = None
        self._log_begin = 0

    @property
    def pid(self) -> int:
        assert self._child is not None, f"{self.name} does not run"
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        return None if self._child is None else self._child.poll()

    def launch(self) -> None:
        """Start it; it ends with the thread that did so."""
        self._log_begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            try:
                self._child = subprocess.Popen(
                    _command(self._arguments),
                    env=_environment(self._code),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=self._take_on,
                )
            except subprocess.SubprocessError as exc:
                raise NotAllowedError(f"{self.name} cannot live so: {exc}") from exc

    def _take_on(self) -> None:
        """Live in the surroundings, also as the program that is started next."""
        self.surroundings.take_on()
        if self.surroundings.heeds_modes:
            # A program that the superuser starts gets all rights back but those.
            _libc.prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)

    async def ready(self) -> None:
        """Wait until it serves."""
        deadline = time.monotonic() + START_S
        while READY not in self.said():
            if self.exit_code is not None or time.monotonic() > deadline:
                text = self.said().decode(errors="replace")
                raise AssertionError(
                    f"{self.name} did not start (exit code {self.exit_code}):\n{text}"
                )
            await trio.sleep(_POLL_S)

    def said(self) -> bytes:
        """Return what it has logged since it was last started."""
        with self.log.open("rb") as log:
            log.seek(self._log_begin)
            return log.read()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    async def stop(self) -> None:
        """Let it finish in order; one that does not is killed."""
        if self._child is None:
            return
        self._child.send_signal(signal.SIGCONT)
        self._child.terminate()
        with trio.move_on_after(STOP_S):
            while self._child.poll() is None:  # noqa: ASYNC110 - another process
                await trio.sleep(_POLL_S)
        self.kill()


@dataclass(frozen=True, slots=True)
class Said:
    """What a command printed, and how it ended."""

    code: int
    text: str
    seconds: float

    @property
    def sentence(self) -> str:
        """Its error, or what it says at the end, in one line."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("rmq")]
        return (errors or lines or [""])[-1]

    def line(self, *words: str) -> str:
        """Return the first line that has one of these words; the last one if none has."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        found = (line for word in words for line in lines if word in line)
        return next(found, lines[-1] if lines else "")


async def run_command(code: Path, *arguments: str) -> Said:
    """Run `rmq` and wait for its end, at most a minute."""
    started = trio.current_time()
    with trio.fail_after(COMMAND_S):
        done = await trio.run_process(
            _command(arguments),
            env=_environment(code),
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    text = (done.stdout + done.stderr).decode(errors="replace")
    return Said(done.returncode, text, trio.current_time() - started)
