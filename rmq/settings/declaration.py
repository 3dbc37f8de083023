"""How a setting is declared: at the attribute that holds its value.

A declaration carries its own line of the settings table: the key in the settings file, the default,
what it means and when a new value counts. `attributes` finds the declarations of a class again,
`read_attributes` makes the attributes of values. Brokers, stores and nameservers declare their
settings this way.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from rmq.errors import ConfigError
from rmq.settings.schema import INT_MAX, Effect, Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rmq.settings.schema import Value, Values

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
    section: str = "",
    minimum: float = 0,
    maximum: float = INT_MAX,
    choices: tuple[str, ...] = (),
    important: bool = False,
    default_text: str | None = None,
    check: Callable[[str], object] | None = None,
    effect_between: Callable[[Value, Value], Effect] | None = None,
    secret: bool = False,
    guarded: bool = False,
    names_secret: bool = False,
) -> T:
    """Declare an attribute of a dataclass; `unread` is what `read` made the default of.

    Without a section it is in the one given to `attributes`.
    """
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
        guarded=guarded,
        names_secret=names_secret,
    )
    # To the type checker `field` gives the default it describes.
    return field(default=default, repr=not secret, metadata={_METADATA_KEY: (declared, read)})


def required_setting(
    key: str,
    help: str,
    effect: Effect,
    *,
    read: Callable[[Any], T],
    unread: Value,
    default_text: str,
    important: bool = False,
    guarded: bool = False,
) -> T:
    """Declare an attribute that has a default in files only; the constructor requires it."""
    declared = Setting(
        key=key,
        default=unread,
        help=help,
        effect=effect,
        section="",
        important=important,
        default_text=default_text,
        guarded=guarded,
    )
    return cast("T", field(metadata={_METADATA_KEY: (declared, read)}))


def attributes(of: type, *, section: str) -> Iterator[Attribute]:
    """Return the attributes of a dataclass that were declared with `setting`."""
    for each in fields(of):
        if _METADATA_KEY in each.metadata:
            declared, read = each.metadata[_METADATA_KEY]
            if not declared.section:
                declared = replace(declared, section=section)
            yield Attribute(each.name, declared, read)


def read_attributes(declared: Iterable[Attribute], values: Values) -> dict[str, Any]:
    """Make the attributes of the values of their settings."""
    given: dict[str, Any] = {}
    for each in declared:
        value = values[each.setting.key]
        given[each.name] = value if each.read is None else each.read(value)
    return given


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
