"""Arguments and options of commands, and what their values are read as.

Command modules declare them with these classes; click reads the command line, and asks for help and
completion.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import click

if TYPE_CHECKING:
    from collections.abc import Callable

SECTION: Final = "options"
GLOBAL: Final = "global options"


class Argument(click.Argument):
    """A word that stands by its place. Unless told otherwise it must be given."""

    def __init__(
        self,
        name: str,
        help: str,
        **attributes: Any,  # noqa: ANN401 - click has many
    ) -> None:
        attributes.setdefault("metavar", name.upper())
        super().__init__([name], help=help, **attributes)


class Option(click.Option):
    """An option, and the heading that help lists it under."""

    def __init__(
        self,
        *names: str,
        section: str = SECTION,
        **attributes: Any,  # noqa: ANN401 - click has many
    ) -> None:
        super().__init__(list(names), **attributes)
        self.section = section


def flag(*names: str, help: str, section: str = SECTION) -> Option:
    """Return an option that is given or not."""
    return Option(*names, help=help, section=section, is_flag=True)


def path_type() -> click.Path:
    """Return the type of names of files and folders, which shells complete."""
    return click.Path(path_type=Path)


@final
class Parsed(click.ParamType[Any]):
    """Values that a function reads from text; it raises `ValueError` to say what is wrong."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Read a value; one that is no text any more is a default."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as wrong:
            self.fail(str(wrong), param, ctx)


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is not a number from 0 on")
    return int(text)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) == 0:
        raise ValueError(f"{text!r} is not a number from 1 on")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _address(text: str) -> str:
    from rmq.errors import ConfigError
    from rmq.remoting.addresses import parse_address

    try:
        parse_address(text)
    except ConfigError as wrong:
        raise ValueError(wrong.reason) from None
    return text


def _utc_ms(text: str) -> int:
    """Read milliseconds since 1970, or ISO 8601; a time without an offset is in UTC."""
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither milliseconds since 1970 nor a time such as 2025-01-31T08:15:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _local_ms(text: str) -> int:
    from rmq.model.moments import parse_moment_ms

    return parse_moment_ms(text)


NATURAL: Final = Parsed("number", _natural)
POSITIVE: Final = Parsed("number", _positive)
SECONDS: Final = Parsed("seconds", _seconds)
ADDRESS: Final = Parsed("address", _address)
MOMENT: Final = Parsed("time", _utc_ms)
"""A time as the store has it, in milliseconds; without an offset it is in UTC."""
TIME: Final = Parsed("time", _local_ms)
"""A time in milliseconds; without an offset it is the local one."""
