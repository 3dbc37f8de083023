"""One setting of a process: its key, the kind of its value, its limits, and when a new one counts.

Values are stripped of blanks around them, of which Java keeps the trailing ones: they are never
intended.
"""

from __future__ import annotations

import difflib
import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from rmq.errors import ConfigError
from rmq.model.limits import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Value: TypeAlias = str | int | float | None
"""What a setting may hold. A flag is a `bool`, which is an `int` to the type checker, too."""

INT_MAX: Final = INT32_MAX
LONG_MAX: Final = INT64_MAX
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_FRACTION: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII
)


MASK: Final = "***"
"""What is shown of a secret."""


class Effect(enum.Enum):
    """When another value of a setting counts."""

    NOW = "now"
    RESTART = "restart"
    """The running process keeps the value it started with."""
    IGNORED = "ignored"
    """A known key of RocketMQ 4.9.8 that means nothing here."""


class Kind(enum.Enum):
    """What the text of a value must be."""

    TEXT = "text"
    INTEGER = "whole number"
    FRACTION = "number"
    FLAG = "true or false"
    CHOICE = "one of a few words"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key: its kind follows from the default, None being a text that is not set."""

    key: str
    default: Value
    help: str
    """What it means, in a sentence for operators, with the unit."""
    effect: Effect = Effect.RESTART
    minimum: float = 0
    maximum: float = INT_MAX
    choices: tuple[str, ...] = ()
    section: str = ""
    important: bool = False
    """Whether it is among the few that the -m option prints."""
    default_text: str | None = None
    """How the documentation calls a default that depends on the machine."""
    check: Callable[[str], object] | None = None
    """Raises `ConfigError` for a text of the right kind that is still not valid."""
    refused: str | None = None
    """Why any other value than the default is refused: it asks for what does not exist here."""
    secret: bool = False
    """Whether the value must not be shown."""
    guarded: bool = False
    """Whether a request that changes it needs admin rights: paths, addresses, ports, TLS."""
    names_secret: bool = False
    """Whether it is the path of a file that must be secret."""
    effect_between: Callable[[Value, Value], Effect] | None = None
    """When the change from one value to another counts, where that depends on them."""

    @property
    def kind(self) -> Kind:
        if self.choices:
            return Kind.CHOICE
        if isinstance(self.default, bool):
            return Kind.FLAG
        if isinstance(self.default, int):
            return Kind.INTEGER
        if isinstance(self.default, float):
            return Kind.FRACTION
        return Kind.TEXT

    @property
    def needs_admin(self) -> bool:
        """Whether a request that changes it needs admin rights."""
        return self.guarded or self.secret

    def shown(self, text: str) -> str:
        """Return a value as it may be answered, printed and logged."""
        return MASK if self.secret and text else text

    def effect_of(self, old: Value, new: Value) -> Effect:
        """When a change from `old` to `new` counts."""
        return self.effect_between(old, new) if self.effect_between else self.effect

    def parse(self, text: str) -> Value:
        """Read a value; raise `ConfigError` with the key and what is wrong."""
        text = text.strip()
        if _CONTROL.search(text):
            # It could not be shown in the form the stock tools read, which knows no escapes.
            raise ConfigError(self.key, f"{self.shown(repr(text))} contains control characters")
        try:
            value = self._parse_kind(text)
        except ConfigError:
            if self.effect is Effect.IGNORED and self.refused is None:
                return text  # Nothing here depends on it, and Java ignores it silently.
            raise
        if self.refused is not None and value != self.default:
            raise ConfigError(self.key, f"{self.shown(text)}: {self.refused}")
        if self.check is not None and text:
            self.check(text)
        return value

    def _parse_kind(self, text: str) -> Value:
        match self.kind:
            case Kind.TEXT:
                # An empty text is how a file says "not set" where the default is that.
                return text or (None if self.default is None else "")
            case Kind.CHOICE:
                if text not in self.choices:
                    near = nearest_word(text, self.choices)
                    hint = f"; did you mean {near}?" if near else ""
                    words = ", ".join(self.choices)
                    raise ConfigError(self.key, f"{text!r} is not one of {words}{hint}")
                return text
            case Kind.FLAG:
                if text.lower() not in ("true", "false"):
                    raise ConfigError(self.key, f"{text!r} is neither true nor false")
                return text.lower() == "true"
            case Kind.INTEGER:
                if not _INTEGER.fullmatch(text):
                    raise ConfigError(self.key, f"{text!r} is not a whole number")
                return self._within(int(text))
            case Kind.FRACTION:
                if not _FRACTION.fullmatch(text):
                    raise ConfigError(self.key, f"{text!r} is not a number")
                return self._within(float(text))

    def _within(self, value: float) -> float:
        if not self.minimum <= value <= self.maximum:
            limits = f"{_short(self.minimum)} and {_short(self.maximum)}"
            raise ConfigError(self.key, f"{value} is not between {limits}")
        return value


def format_value(value: Value) -> str:
    """Write a value as Java prints it; nothing for one that is not set."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def nearest_word(word: str, known: Iterable[str]) -> str | None:
    """The known word that a misspelt one most likely means, if any is near."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[found[0]] if found else None


def _short(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)
