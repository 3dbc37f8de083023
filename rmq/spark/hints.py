"""Errors on their way through Spark, which keeps nothing of them but their text."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def hints_in_text() -> Iterator[None]:
    """Put the hint of an error into its text, for the length of a block."""
    try:
        yield
    except RmqError as exc:
        text = str(exc)
        if exc.hint and exc.hint not in text:
            exc.args = (f"{text}; {exc.hint}",)
        raise
