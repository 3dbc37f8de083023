"""What a subcommand of `rmq` is.

A command module defines one constant, `COMMAND`, and is listed in `rmq.cli.app.MODULES`. It knows
its own arguments and how to run; the program around it knows global options, logging and exit
codes.
"""

from __future__ import annotations

from argparse import SUPPRESS
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmq.cli.common.logs import LEVELS

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


def add_global_options(parser: ArgumentParser, *, log_level: str | None, debug: bool | str) -> None:
    """Declare the options that every command has."""
    group = parser.add_argument_group("global options")
    group.add_argument(
        "--log-level",
        choices=LEVELS,
        default=log_level,
        help="lowest level that is logged (default: info, or logLevel of the settings)",
    )
    group.add_argument(
        "--debug", action="store_true", default=debug, help="show the traceback of an error"
    )


def add_global_options_again(parser: ArgumentParser) -> None:
    """Declare them also behind the name of a command or an action.

    Suppressed defaults keep this second declaration from overwriting what stood in front of it.
    """
    add_global_options(parser, log_level=SUPPRESS, debug=SUPPRESS)
