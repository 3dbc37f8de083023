"""Command lines read as the program reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.cli.app import program
from rmq.cli.program import Chosen, parse

if TYPE_CHECKING:
    from argparse import Namespace


def chosen_by(*words: str) -> Chosen:
    """Return what a line chooses; it must be right."""
    chosen = parse(program(), words)
    assert isinstance(chosen, Chosen), words
    return chosen


def args_of(*words: str) -> Namespace:
    """Return the parameters of a line."""
    return chosen_by(*words).args
