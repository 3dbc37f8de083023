"""Files in YAML, for access control and credentials: read as text, within bounds.

Every scalar comes back as the text that stands in the file, so `secretKey: 12345678` is the secret
"12345678" and `0123` loses no zero: that is what stock brokers make of `plain_acl.yml`. Only a
value that is missing, `~` or `null` is None. What no such file needs and a hostile one could use is
refused: anchors, aliases, tags, keys that are not text, several documents, the same key twice, deep
nesting, and files beyond a size. Every error names the file and the line, and shows no value,
because values may be secrets.

No trio: `read_yaml` blocks.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

import yaml
from yaml.reader import Reader

from rmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

YamlValue: TypeAlias = "str | list[YamlValue] | dict[str, YamlValue] | None"

BYTES_MAX: Final = 4 << 20
DEPTH_MAX: Final = 16

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C where PyYAML was built with it: the same events, many times faster."""
_KEY_SHOWN_MAX: Final = 40
_TEXT_TAGS: Final = (None, "!", "tag:yaml.org,2002:str")
_NULLS: Final = ("", "~", "null", "Null", "NULL")
_WRITE_PLAINLY: Final = "write the value itself, as in `accessKey: RocketMQ`"


def read_yaml(path: Path, *, bytes_max: int = BYTES_MAX) -> dict[str, YamlValue]:
    """Return the members of the file at `path`; none if it is empty.

    Raises `ConfigError`, also where the file is missing or cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            # A pipe would make the open wait for its writer.
            raise ConfigError(str(path), "is not a file", hint="name a file in YAML")
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except FileNotFoundError as exc:
        raise ConfigError(
            str(path), "does not exist", hint="write the file, or name another one"
        ) from exc
    except OSError as exc:
        raise ConfigError(
            str(path), f"cannot be read: {exc.strerror}", hint="let the user that runs rmq read it"
        ) from exc
    if len(data) > bytes_max:
        raise ConfigError(
            str(path), f"has more than {bytes_max} bytes", hint="name a smaller file, or split it"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        # The cause holds the bytes of the file.
        raise _error(str(path), line, "is not UTF-8", "save the file as UTF-8") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, where: str) -> dict[str, YamlValue]:
    """Return the members of `text`; `where` is what errors call it."""
    unprintable = Reader.NON_PRINTABLE.search(text)
    if unprintable is not None:
        line = text.count("\n", 0, unprintable.start()) + 1
        raise _error(where, line, "holds a control character", "remove it, or escape it in quotes")
    try:
        return _Builder(yaml.parse(text, Loader=_LOADER), where).document()
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        line = 1 if mark is None else mark.line + 1
        # The cause holds the text of the file.
        raise _error(where, line, f"is not YAML: {exc.problem}", _HINT_OF_SYNTAX) from None


_HINT_OF_SYNTAX: Final = "check the indentation, and put values with special characters in quotes"


def _error(where: str, line: int, reason: str, hint: str) -> ConfigError:
    return ConfigError(where, f"line {line} {reason}", hint=hint)


class _Builder:
    """Makes values of the events of one document."""

    def __init__(self, events: Iterator[yaml.Event], where: str) -> None:
        self._events = events
        self._where = where

    def document(self) -> dict[str, YamlValue]:
        members: dict[str, YamlValue] = {}
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._refuse(event, "begins a second document", "remove the line `---`")
            elif isinstance(event, yaml.NodeEvent):
                content = self._value(event, 0)
                if isinstance(content, dict):
                    members = content
                elif content is not None:
                    self._refuse(event, "is not a mapping", "write members, as in `key: value`")
        return members

    def _value(self, event: yaml.Event, depth: int) -> YamlValue:
        if isinstance(event, yaml.AliasEvent):
            self._refuse(event, "uses an alias", _WRITE_PLAINLY)
        assert isinstance(event, yaml.NodeEvent), event
        self._check_plain(event)
        if isinstance(event, yaml.ScalarEvent):
            return None if event.implicit[0] and event.value in _NULLS else str(event.value)
        if depth >= DEPTH_MAX:
            self._refuse(event, f"is nested more than {DEPTH_MAX} deep", "write it flat")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(depth + 1)
        return self._mapping(depth + 1)

    def _sequence(self, depth: int) -> list[YamlValue]:
        values: list[YamlValue] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            values.append(self._value(event, depth))
        return values

    def _mapping(self, depth: int) -> dict[str, YamlValue]:
        members: dict[str, YamlValue] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._value(event, DEPTH_MAX) if isinstance(event, yaml.ScalarEvent) else None
            if not isinstance(key, str):
                self._refuse(event, "has a key that is not text", "write `key: value`")
            if key in members:
                shown = repr(key[:_KEY_SHOWN_MAX])
                self._refuse(event, f"has the key {shown} again", "keep one of the two")
            members[key] = self._value(next(self._events), depth)
        return members

    def _check_plain(self, event: yaml.NodeEvent) -> None:
        if event.anchor is not None:
            self._refuse(event, "has an anchor", _WRITE_PLAINLY)
        if getattr(event, "tag", None) not in _TEXT_TAGS:
            self._refuse(event, "has a tag", _WRITE_PLAINLY)

    def _refuse(self, event: yaml.Event, what: str, hint: str) -> NoReturn:
        mark = event.start_mark
        raise _error(self._where, 1 if mark is None else mark.line + 1, what, hint)
