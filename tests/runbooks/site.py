"""Follows the steps of runbooks: runs their commands, compares what they print with the page.

A machine of the pages (10.0.0.1) is a loopback address with a folder of its own. Addresses, ports
and paths are replaced in a command before it runs, and back in what it prints. `systemctl` starts
and stops processes of the program; everything else is run as it is written.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.cli.app import main
from tests.ha.processes.cluster import forks
from tests.paths import ROOT
from tests.runbooks.machines import NAMESERVERS, as_run, as_shown, make_machines
from tests.runbooks.page import sections
from tests.runbooks.shown import is_shown
from tests.runbooks.units import Systemctl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.runbooks.machines import Machine
    from tests.runbooks.page import Command, Step
    from tests.runbooks.units import Unit

    Handler = Callable[[Machine, list[str]], tuple[int, str]]
    """Runs the words of a command on a machine; returns its exit code and what it prints."""

COMMAND_S: Final = 60.0
SHOWN_S: Final = 40.0
"""How long a state may take to be as a page shows it."""
_AGAIN_S: Final = 0.05
_PLAIN: Final = re.compile(r"[\w\s./:;=@%,+\"'-]+")
"""A command line that needs no shell."""
_OUTSIDE: Final = re.compile(r"(?<![\w.-])/(?:etc|var|opt|backup)\b")
"""A path of the pages that is not below the folder of a machine."""
_CURL: Final = """\
import sys, urllib.request
for url in sys.argv[2:]:
    sys.stdout.write(urllib.request.urlopen(url, timeout=10).read().decode())
"""
"""What the pages use of it: `curl -s URL...`."""
_REPEATED: Final = re.compile(
    r"(?:rmq ha (?:status|verify|forget)|rmq store inspect|mqadmin clusterList|curl|df)\b"
)
"""Commands that do nothing or refuse until a state is there: they are repeated until they print
what the page shows."""


class Ran(NamedTuple):
    """A command that was run, and when, by the clock that never goes back."""

    line: str
    began: float
    ended: float


class StepError(AssertionError):
    """A step of a page does not do what the page says."""


class Site:
    """All machines. Use `running_site`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machines = make_machines(folder)
        self.systemctl = Systemctl()
        self.handlers: dict[str, Handler] = {
            "systemctl": self.systemctl.run,
            # There are no other accounts here.
            "chown": lambda machine, words: (0, ""),
        }
        """Commands that are no programs here."""
        self.ran: list[Ran] = []
        """All commands so far."""
        self._tools = folder / "tools"
        self._tools.mkdir()
        self._add_tool("rmq", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m rmq "$@"\n')
        # Not on every machine.
        self._add_tool("curl", f"#!{sys.executable}\n{_CURL}")

    def _add_tool(self, name: str, text: str) -> None:
        tool = self._tools / name
        tool.write_text(text)
        tool.chmod(0o755)

    @property
    def nameservers(self) -> str:
        """The addresses of all nameservers."""
        return as_run(self.machines["10.0.0.1"], self.machines, NAMESERVERS)

    def unit(self, machine: str, name: str) -> Unit:
        """Return a unit of a machine, running or not."""
        return self.systemctl.unit(self.machines[machine], name)

    def install(self, *versions: str) -> None:
        """Put versions of the program on all machines; the first one is in use."""
        for machine in self.machines.values():
            for version in versions:
                tools = machine.path(f"opt/rmq-{version}/bin")
                tools.mkdir(parents=True)
                (tools / "rmq").symlink_to(self._tools / "rmq")
            machine.path("opt/rmq").symlink_to(machine.path(f"opt/rmq-{versions[0]}"))

    def do(self, machine: str, line: str) -> str:
        """Run a command that is on no page; return what it prints."""
        code, text = self.run(self.machines[machine], line)
        if code:
            raise StepError(f"{line!r} ended with {code}\n{text}\n{self._logs()}")
        return text

    def until_healthy(self) -> None:
        """Wait until the pair is healthy."""
        deadline = time.monotonic() + SHOWN_S
        line = "rmq ha status --name broker-a"
        while (told := self.run(self.machines["10.0.0.3"], line))[0]:
            if time.monotonic() > deadline:
                raise StepError(f"not healthy after {SHOWN_S:g} s\n{told[1]}\n{self._logs()}")
            time.sleep(_AGAIN_S)

    def consumed(self, machine: str, topic: str) -> set[str]:
        """Return the bodies of a topic."""
        return set(self.do(machine, f"rmq consume {topic}").splitlines())

    # ---- steps -----------------------------------------------------------------------------------

    def follow(self, page: str, *names: str) -> None:
        """Run the steps of sections, one after the other; raise StepError. Blocks."""
        found = sections(page)
        for name in names:
            for step in found[name]:
                self._run_step(step)

    def _run_step(self, step: Step) -> None:
        deadline = time.monotonic() + SHOWN_S
        may_repeat = all(_REPEATED.match(command.line) for command in step.commands)
        while True:
            printed, wrong = self._run_commands(step.commands)
            if not wrong and (step.shown is None or is_shown(step.shown, printed)):
                return
            if not may_repeat or time.monotonic() > deadline:
                break
            time.sleep(_AGAIN_S)
        raise StepError(
            f"{step.where}: {wrong or 'not what the page shows'}\n--- the page\n{step.shown}"
            f"\n--- printed\n{printed}\n--- processes\n{self._logs()}"
        )

    def _run_commands(self, commands: tuple[Command, ...]) -> tuple[str, str | None]:
        """Return what was printed, and what went wrong."""
        printed: list[str] = []
        for command in commands:
            code, text = self.run(self.machines[command.machine], command.line)
            printed.append(text)
            if code != command.exit_code:
                return "".join(printed), f"{command.line!r} ended with {code}"
        return "".join(printed), None

    def run(self, machine: Machine, line: str) -> tuple[int, str]:
        """Run a command line of a page; return its exit code and all that it prints."""
        words = shlex.split(line)
        handler = self.handlers.get(words[0])
        real = as_run(machine, self.machines, line)
        if _OUTSIDE.search(real):
            raise StepError(f"{line!r} would touch this machine's own files")
        began = time.monotonic()
        if handler is not None:
            code, text = handler(machine, shlex.split(real))
        elif words[0] == "rmq" and _PLAIN.fullmatch(line) and machine.disk is None:
            code, text = self._run_here(machine, shlex.split(real)[1:])
        else:
            code, text = self._run_shell(machine, real)
        self.ran.append(Ran(line, began, time.monotonic()))
        return code, as_shown(self.machines.values(), text)

    def _run_here(self, machine: Machine, arguments: list[str]) -> tuple[int, str]:
        """Run `rmq` in a process that has it loaded already."""
        output = self.folder / "output"
        output.unlink(missing_ok=True)
        variables = self._variables(machine)
        process = forks.Process(target=_be_rmq, args=(arguments, output, machine.home, variables))
        process.start()
        process.join(COMMAND_S)
        if process.exitcode is None:
            process.kill()
            raise StepError(f"rmq {shlex.join(arguments)} did not end within {COMMAND_S:g} s")
        code = process.exitcode
        process.close()
        return code, output.read_text()

    def _run_shell(self, machine: Machine, line: str) -> tuple[int, str]:
        done = subprocess.run(
            [*machine.entering(), "sh", "-c", f'cd "$HOME"\n{line}'],
            cwd=machine.home,
            env={**os.environ, **self._variables(machine)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        return done.returncode, done.stdout

    def _variables(self, machine: Machine) -> dict[str, str]:
        return {
            "NAMESRV_ADDR": self.nameservers,
            "HOME": str(machine.home),
            "PATH": f"{self._tools}:{os.environ.get('PATH', os.defpath)}",
            "PYTHONPATH": str(ROOT),
            "LC_ALL": "C",
        }

    def _logs(self) -> str:
        return "\n".join(
            f"{machine.name} {name}:\n{unit.said().decode(errors='replace')[-3000:]}"
            for machine in self.machines.values()
            for name, unit in machine.units.items()
        )


def _be_rmq(arguments: list[str], output: Path, folder: Path, variables: Mapping[str, str]) -> None:
    """Be one `rmq` command."""
    with output.open("wb") as out, open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a device
        for stream, file in enumerate((nothing, out, out)):
            os.dup2(file.fileno(), stream)
    os.chdir(folder)
    os.environ.update(variables)
    sys.exit(main(arguments))


@contextmanager
def running_site(folder: Path) -> Iterator[Site]:
    """Give machines on which nothing runs yet; what is started there ends with the block."""
    site = Site(folder)
    try:
        yield site
    finally:
        for machine in site.machines.values():
            for unit in machine.units.values():
                unit.kill()
