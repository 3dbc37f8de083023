"""How a setting of the broker is declared: at the attribute that holds it.

A declaration carries its own line of the settings table: the key in `broker.conf`, the default,
what it means and when a new value counts. `attributes` finds the declarations of a class again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from rmq.errors import ConfigError
from rmq.settings.schema import INT_MAX, Effect, Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmq.settings.schema import Value

NOW: Final = Effect.NOW
RESTART: Final = Effect.RESTART

T = TypeVar("T")

_METADATA_KEY: Final = "rmq.setting"


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute that holds a setting."""

    name: str
    setting: Setting
    read: Callable[[Any], object] | None
    """Makes the attribute of the setting's value; None: they are the same."""


def setting(
    key: str,
    default: T,
    help: str,
    effect: Effect,
    *,
    read: Callable[[Any], T] | None = None,
    unread: Value = None,
    section: str = "broker",
    minimum: float = 0,
    maximum: float = INT_MAX,
    choices: tuple[str, ...] = (),
    important: bool = False,
    default_text: str | None = None,
    check: Callable[[str], object] | None = None,
    effect_between: Callable[[Value, Value], Effect] | None = None,
    secret: bool = False,
) -> T:
    """Declare an attribute of a dataclass; `unread` is what `read` made the default of."""
    declared = Setting(
        key=key,
        default=cast("Value", default) if read is None else unread,
        help=help,
        effect=effect,
        section=section,
        minimum=minimum,
        maximum=maximum,
        choices=choices,
        important=important,
        default_text=default_text,
        check=check,
        effect_between=effect_between,
        secret=secret,
    )
    # To the type checker `field` gives the default it describes.
    return field(default=default, metadata={_METADATA_KEY: (declared, read)})


def attributes(of: type) -> Iterator[Attribute]:
    """The attributes of a dataclass that were declared with `setting`."""
    for each in fields(of):
        if _METADATA_KEY in each.metadata:
            declared, read = each.metadata[_METADATA_KEY]
            yield Attribute(each.name, declared, read)


def split_list(text: str | None) -> tuple[str, ...]:
    """The items of a list separated by semicolons."""
    return tuple(part.strip() for part in (text or "").split(";") if part.strip())


def check_host_port(key: str) -> Callable[[str], None]:
    """A check for addresses of the form host:port, one or several separated by semicolons."""

    def check(text: str) -> None:
        for address in split_list(text):
            host, _, port = address.rpartition(":")
            is_number = port.isascii() and port.isdecimal() and len(port) <= 5
            if not (host and is_number and 0 < int(port) < 65_536):
                raise ConfigError(key, f"{address!r} is not of the form host:port")

    return check


def check_name(key: str) -> Callable[[str], None]:
    """A check for names and addresses: one word."""

    def check(text: str) -> None:
        if any(character.isspace() for character in text):
            raise ConfigError(key, f"{text!r} contains blanks")

    return check
