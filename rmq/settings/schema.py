"""Settings of a process: known keys with types and limits, read from a file in Java's form.

A `Schema` lists every key that is known. `load` reads a file's text by it, with values of the
command line above it and defaults below, and finds all that is wrong at once: an unknown key (with
the nearest one that exists), a value of the wrong kind or out of range, values that contradict each
other. Every finding says where the value came from. `change` does the same for an update of a
running process, and tells which keys take effect now and which after a restart.

Pure: the callers read and write the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from rmq.errors import ConfigError
from rmq.settings.properties_file import read_members
from rmq.settings.setting import (
    INT_MAX,
    LONG_MAX,
    Effect,
    Kind,
    Setting,
    Value,
    format_value,
    nearest_word,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "INT_MAX",
    "LONG_MAX",
    "Change",
    "Effect",
    "Kind",
    "Loaded",
    "Problem",
    "Rule",
    "Schema",
    "Setting",
    "SettingsError",
    "Value",
    "Values",
    "change",
    "decode_settings",
    "format_value",
    "load",
]


ADVICES_MAX: Final = 20
"""Up to this many problems, the nearest known key is suggested."""


@final
class Values(Mapping[str, Value]):
    """A value for every key of a schema, in its order; `integer` and its like return it typed."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def text(self, key: str) -> str:
        """The text under `key`; empty where it is not set."""
        value = self._values[key]
        assert value is None or isinstance(value, str), f"{key} is no text: {value!r}"
        return value or ""

    def flag(self, key: str) -> bool:
        value = self._values[key]
        assert isinstance(value, bool), f"{key} is no flag: {value!r}"
        return value

    def integer(self, key: str) -> int:
        value = self._values[key]
        assert isinstance(value, int), f"{key} is no whole number: {value!r}"
        return value

    def fraction(self, key: str) -> float:
        value = self._values[key]
        assert isinstance(value, float), f"{key} is no fraction: {value!r}"
        return value

    def with_changes(self, changes: Mapping[str, Value]) -> Values:
        return Values({**self._values, **changes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition between settings. A violation is reported for the first of its keys."""

    keys: tuple[str, ...]
    """The keys that the check reads; it is not made where one of them is wrong already."""
    check: Callable[[Values], str | None]
    """Returns what is wrong, or None; or raises `ConfigError` to report it for another key."""


@final
class Schema:
    """All known settings, in the order in which they are printed."""

    def __init__(self, settings: Iterable[Setting], rules: Iterable[Rule] = ()) -> None:
        self.settings: Mapping[str, Setting] = MappingProxyType(
            {setting.key: setting for setting in settings}
        )
        self.rules = tuple(rules)

    def __getitem__(self, key: str) -> Setting:
        return self.settings[key]

    def __contains__(self, key: object) -> bool:
        return key in self.settings

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.settings.values())

    def nearest(self, key: str) -> str | None:
        """The known key that a misspelt one most likely means."""
        return nearest_word(key, self.settings)

    def defaults(self, computed: Mapping[str, Value] | None = None) -> Values:
        values = {setting.key: setting.default for setting in self}
        values.update(computed or {})
        return Values(values)

    def as_properties(self, values: Values) -> dict[str, str]:
        """All values that are set, as Java prints them; of secrets only that they are set."""
        return {
            setting.key: self._shown(setting, values)
            for setting in self
            if values[setting.key] is not None
        }

    def format_lines(self, values: Values, *, important_only: bool = False) -> list[str]:
        """`key=value` for each setting, or for the important ones: what -p and -m print."""
        return [
            f"{setting.key}={self._shown(setting, values)}"
            for setting in self
            if setting.important or not important_only
        ]

    @staticmethod
    def _shown(setting: Setting, values: Values) -> str:
        return setting.shown(format_value(values[setting.key]))


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with one setting."""

    where: str
    """`FILE:LINE`, or what else gave the value."""
    key: str
    reason: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.reason) if part)


class SettingsError(ConfigError):
    """All that is wrong with the settings of a process, one line each."""

    def __init__(self, problems: Iterable[Problem], *, hint: str | None = None) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        super().__init__(first.key, first.reason, hint=hint)
        self.args = ("\n".join(map(str, self.problems)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The result of `load`."""

    values: Values
    origins: Mapping[str, str]
    """Where the value of a key came from; keys that are not in here have their default."""
    warnings: tuple[str, ...]


def decode_settings(data: bytes, source_name: str) -> str:
    """Return the text of a settings file; raise `ConfigError` where it is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        problem = Problem(f"{source_name}:{line}", "", "is not UTF-8")
        raise SettingsError([problem], hint="save the file as UTF-8") from None


def load(
    schema: Schema,
    text: str,
    source_name: str,
    *,
    overrides: Mapping[str, str] | None = None,
    overrides_name: str = "command line",
    defaults: Mapping[str, Value] | None = None,
) -> Loaded:
    """Read settings: `overrides` before `text` before `defaults` before those of the schema."""
    reading = _Reading(schema)
    for member in read_members(text):
        where = f"{source_name}:{member.line}"
        if member.problem is not None:
            reading.problems.append(Problem(where, "", member.problem))
        else:
            reading.take(where, member.key, member.value)
    for key, value in (overrides or {}).items():
        reading.take(overrides_name, key, value)
    known = schema.defaults(defaults)
    values = known.with_changes(reading.values)
    reading.apply_rules(values)
    if reading.problems:
        raise SettingsError(reading.problems)
    return Loaded(
        values=values,
        origins=MappingProxyType(reading.origins),
        warnings=(*reading.repetitions, *reading.ignored_warnings(source_name, known)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The result of an update of settings."""

    values: Values
    """All values, the new ones included."""
    now: tuple[str, ...]
    """Keys whose new value counts at once."""
    restart: tuple[str, ...]
    """Keys whose new value counts after the next start."""
    ignored: tuple[str, ...]


def change(
    schema: Schema,
    values: Values,
    changes: Mapping[str, str],
    *,
    running: Values | None = None,
    source_name: str = "",
) -> Change:
    """Work out an update: all of `changes`, or a `SettingsError` that says what is wrong.

    `running` are the values in force where earlier updates wait for a restart.
    """
    reading = _Reading(schema)
    for key, value in changes.items():
        reading.take(source_name, key, value)
    new_values = values.with_changes(reading.values)
    reading.apply_rules(new_values)
    if reading.problems:
        raise SettingsError(reading.problems)

    in_force = values if running is None else running
    effects = {
        key: schema[key].effect_of(in_force[key], new) for key, new in reading.values.items()
    }

    def keys_with(effect: Effect) -> tuple[str, ...]:
        return tuple(key for key, its_effect in effects.items() if its_effect is effect)

    return Change(
        values=new_values,
        now=keys_with(Effect.NOW),
        restart=keys_with(Effect.RESTART),
        ignored=keys_with(Effect.IGNORED),
    )


@dataclass(slots=True)
class _Reading:
    """Settings being read: what is fine so far, and what is not."""

    schema: Schema
    values: dict[str, Value] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    repetitions: list[str] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)

    def take(self, where: str, key: str, text: str) -> None:
        if key not in self.schema:
            # Searching takes a while, and a file with this many unknown keys has not misspelt them.
            near = self.schema.nearest(key) if len(self.problems) < ADVICES_MAX else None
            advice = f"; did you mean {near}?" if near else ""
            self.problems.append(Problem(where, key, f"is not a known setting{advice}"))
            return
        earlier = self.origins.get(key, "")
        if _file_of(earlier) == _file_of(where) != "":
            self.repetitions.append(f"{where}: {key} is set again; {earlier} does not count")
        self.origins[key] = where
        try:
            self.values[key] = self.schema[key].parse(text)
        except ConfigError as error:
            self.failed.add(key)
            self.problems.append(Problem(where, key, error.reason))

    def apply_rules(self, values: Values) -> None:
        for rule in self.schema.rules:
            if not self.failed.isdisjoint(rule.keys):
                continue
            key = rule.keys[0]
            try:
                reason = rule.check(values)
            except ConfigError as error:
                key = error.key
                reason = f"{error.reason}; {error.hint}" if error.hint else error.reason
            if reason is not None:
                given = [each for each in (key, *rule.keys) if each in self.origins]
                where = self.origins[given[0]] if given else ""
                self.problems.append(Problem(where, key, reason))
                self.failed.update(rule.keys)

    def ignored_warnings(self, source_name: str, defaults: Values) -> list[str]:
        """Return one warning for all keys without effect here whose value is not the default."""
        keys = [
            key
            for key, value in self.values.items()
            if self.schema[key].effect is Effect.IGNORED and value != defaults[key]
        ]
        if not keys:
            return []
        where = f"{source_name}: " if source_name else ""
        return [f"{where}these settings have no meaning here: {', '.join(keys)}"]


def _file_of(where: str) -> str:
    """The file of `FILE:LINE`; nothing for other places, where a key can stand only once."""
    name, colon, line = where.rpartition(":")
    return name if colon and line.isdecimal() else ""
