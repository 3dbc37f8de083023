"""What a kind of generated files is. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterable

    from rmq.cli.generate.deployment import Deployment


class GeneratedFile(NamedTuple):
    """One file: where it goes below the folder of its kind, and its text."""

    path: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One kind of files: `rmq generate NAME`."""

    name: str
    help: str
    """One line for the list of kinds: lower case, no full stop."""
    files: Callable[[Deployment, Namespace], Iterable[GeneratedFile]]
    """Makes the files of a deployment; the arguments are those that the kind has added."""
    add_arguments: Callable[[ArgumentParser], None] = lambda parser: None
    """Declares what this kind takes besides the options of `Deployment`."""
    is_filled_in: bool = True
    """Whether the files say something of a deployment."""
    description: str = ""
    """A paragraph for `rmq generate NAME --help`."""
