"""What a subcommand of `rmq` is.

A command module defines one constant, `COMMAND`, and is listed in `rmq.cli.app.MODULES`. It
declares names, parameters and help, and imports nothing else: help and completion load it, and must
be quick. What it runs is in other modules, which are loaded when it is called. The program around
it knows global options, logging and exit codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    import click

    Parameters: TypeAlias = "Sequence[click.Parameter]"
    Run: TypeAlias = "Callable[[Namespace], int]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """One subcommand: `rmq NAME ...`, or one action of it: `rmq NAME ACTION ...`."""

    name: str

    help: str
    """One line for the list of commands: lower case, no full stop."""

    run: Run | str | None = None
    """Does the work and returns an exit code. Text names where it is: `package.module:function`.

    It is given the parameters by name. It raises an `RmqError` for a failure that has a name: the
    program prints it and picks the exit code. It may let Ctrl-C through; a command that ends
    cleanly on Ctrl-C returns its own code.
    """

    params: Parameters | Callable[[], Parameters] = ()
    """Its arguments and options; the global options are there already."""

    actions: Sequence[Command] | Callable[[], Sequence[Command]] = ()
    """What follows its name, if it does nothing by itself."""

    action_word: str = "action"
    """What its actions are called, in one word."""

    description: str | None = None
    """Paragraphs for `rmq NAME --help`; `help` is used when there is none."""

    is_service: bool = False
    """Whether it serves others until it is stopped: standard error that takes nothing must not
    hold it up.
    """

    examples: tuple[str, ...] = ()
    """Whole command lines; all stand in `rmq NAME --help`, the first one in `rmq --help` too."""

    def all_params(self) -> Parameters:
        """Return its parameters, made now if need be."""
        return self.params() if callable(self.params) else self.params

    def all_actions(self) -> Sequence[Command]:
        """Return its actions, made now if need be."""
        return self.actions() if callable(self.actions) else self.actions

    def load(self) -> Run:
        """Return what it runs, imported now if need be."""
        assert self.run is not None, f"{self.name} has actions only"
        if not isinstance(self.run, str):
            return self.run
        module, _, name = self.run.partition(":")
        run: Run = getattr(import_module(module), name)
        return run
