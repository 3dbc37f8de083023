"""What a subcommand of `rmq` is.

A command module defines one constant, `COMMAND`, and is listed in `rmq.cli.app.MODULES`. It knows
its own arguments and how to run; the program around it knows global options, logging and exit
codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """One subcommand: `rmq NAME ...`."""

    name: str

    help: str
    """One line for the list of commands: lower case, no full stop."""

    add_arguments: Callable[[ArgumentParser], None]
    """Declares the command's own options; the global ones are there already."""

    run: Callable[[Namespace], int]
    """Does the work and returns an exit code.

    It raises an `RmqError` for a failure that has a name: the program prints it and picks the exit
    code. It may let Ctrl-C through; a command that ends cleanly on Ctrl-C returns its own code.
    """

    description: str | None = None
    """A paragraph for `rmq NAME --help`; `help` is used when there is none."""

    is_service: bool = False
    """Whether it serves others until it is stopped: standard error that takes nothing must not
    hold it up.
    """

    examples: tuple[str, ...] = ()
    """Whole command lines; all stand in `rmq NAME --help`, the first one in `rmq --help` too."""
