"""JSON as RocketMQ's peers write and accept it: fastjson 1.2.69 with its default features.

Bodies and config files are almost JSON. Java writes the keys of a `Map<Integer, ...>` bare
(`{0:"a"}`), the keys of a `Map<MessageQueue, ...>` as raw objects, and an object met a second time
as `{"$ref":"$.path"}`; it also accepts single quotes, bare names, stray commas and comments.

`loads` reads all of that into plain values. Keys are always text: a bare number becomes its digits,
an object the compact JSON of it with sorted members. Half of a surrogate pair becomes `?`, as it
does when Java writes it, so that every string can be encoded. Whatever else arrives ends in
`MalformedJsonError`, in time linear to the input; that includes what Java would accept but no peer
writes (missing commas, `1L`, `new Date(5)`, references that name nothing).

A reference is replaced by the very value it names. Through references too the result is at most
`MAX_DEPTH` deep, and sharing adds at most 100,000 values to a walk over it. A reference to what
encloses it (`$`, `..` and `@` always are) makes a value that contains itself; no bean of RocketMQ
does, `dumps` refuses it, and a caller that walks what it was sent should expect it.

`dumps` and `pretty` write what Java would, except that nothing is ever written as a reference.
Converting to and from typed bodies, and the order of map members, are the business of callers.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import msgspec

from rmq.errors import MalformedJsonError
from rmq.model.java import (
    double_text,
    hash_map_order,
    hash_map_order_in_steps,
    utf16_units,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"

_Node: TypeAlias = Any  # a JsonValue in which references may still stand

MAX_DEPTH = 64
"""How many levels of lists and objects are read and written; RocketMQ's bodies need seven."""

_SHARED_VALUES_MAX = 100_000


def loads(
    data: bytes | bytearray | memoryview | str,
    *,
    max_depth: int = MAX_DEPTH,
    slow_bytes_max: int = sys.maxsize,
) -> JsonValue:
    """Read one JSON value by the rules above; `MalformedJsonError` for anything else.

    The position in the error counts characters, not bytes. Broken UTF-8 becomes U+FFFD, as in
    Java. `max_depth` may be lowered, not raised. A text of more than `slow_bytes_max` bytes must be
    standard JSON, but for broken UTF-8: any other takes more than a millisecond per KiB.
    """
    assert 0 < max_depth <= MAX_DEPTH, f"max_depth {max_depth} is not in 1..{MAX_DEPTH}"
    encoded = data.encode("utf-8", "replace") if isinstance(data, str) else bytes(data)
    # References and the depth limit are what msgspec does not know. It reads standard JSON many
    # times as fast as the tolerant parser, and nearly every body is that and has neither.
    if b"$" not in encoded or b"$ref" not in encoded:  # one byte is found six times as fast
        try:
            value: JsonValue
            try:
                value = msgspec.json.decode(encoded)
            except UnicodeDecodeError:
                value = msgspec.json.decode(encoded.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            pass
        else:
            openings = encoded.count(b"[") + encoded.count(b"{")
            if openings <= max_depth or _is_shallow(value, max_depth):
                return value
    if len(encoded) > slow_bytes_max:
        raise MalformedJsonError(f"{len(encoded)} bytes that are not standard JSON", 0)
    return _Parser(encoded.decode("utf-8", "replace"), max_depth).parse()


def dumps(value: object, *, standard: bool = False) -> bytes:
    """Write `value` as Java does by default, or in the standard form of route answers.

    Members keep the order given, except that a `msgspec.Struct` is a bean: its members are sorted
    by their encoded names. `None` members are left out of both; `None` in a list is `null`. Number
    keys are bare, and keys that are structs or mappings become raw objects. Enums are written by
    name, sets as lists in `HashSet` order.

    `standard` is what a nameserver answers to clients of version 401 and later: pure ASCII, `/`
    escaped, every key a string, members of all maps sorted.
    """
    return _Writer(standard=standard, sort=standard).text(value).encode("utf-8", "replace")


def pretty(value: object) -> bytes:
    """Write `value` in the form of the broker's config files, indented with tabs.

    Members with a number or an object for a key stay on their line. So do lists of whole numbers,
    because those that config files hold (the bit positions of a filter) are arrays in Java.
    """
    return _Writer(indent=True).text(value).encode("utf-8", "replace")


def _is_shallow(value: _Node, max_depth: int) -> bool:
    level = [value]
    for _ in range(max_depth):
        level = [
            child
            for container in level
            for child in (container.values() if type(container) is dict else container)
            if type(child) in (dict, list)
        ]
        if not level:
            return True
    return False


# --- reading -----------------------------------------------------------------------------------

# Possessive quantifiers throughout: no input makes a match go back over what it has passed.
_SPACE = re.compile(
    r"[ \t\n\r\f\b]*+(?:/(?:/[^\n]*+|\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/)[ \t\n\r\f\b]*+)*+"
)
_TOKEN = re.compile(
    _SPACE.pattern
    + r"(?:(?P<mark>[\[\]{}:,])"
    + r"|(?P<double>\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\")"
    + r"|(?P<single>'[^'\\]*+(?:\\.[^'\\]*+)*+')"
    + r"|(?P<integer>-?[0-9]++(?![.eE]))"
    + r"|(?P<decimal>-?[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+(?![.eE]))"
    + r"|(?P<word>[^\W0-9][\w$]*+|\$[\w$]*+)"
    + r"|(?P<nothing>))",
    re.DOTALL,
)
_STRINGS = ("double", "single")
# Java reads NaN as null too.
_WORDS = {"true": True, "false": False, "null": None, "undefined": None, "NaN": None}

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([0-7btnvfFr\"'/\\])|)")
_ESCAPED = dict(zip("01234567btnvfFr\"'/\\", "\0\1\2\3\4\5\6\7\b\t\n\v\f\f\r\"'/\\", strict=True))
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Parser:
    """Reads one text; its recursion is bounded by `max_depth`."""

    def __init__(self, text: str, max_depth: int) -> None:
        self._text = text
        self._position = 1 if text.startswith("\ufeff") else 0
        self._start = 0  # of the last token
        self._max_depth = max_depth
        self._levels_left = max_depth
        self._in_key = False
        self._references: list[_Reference] = []

    def parse(self) -> JsonValue:
        root: JsonValue = self._value(*self._next(), None)
        self._next()
        if self._start < len(self._text):
            raise MalformedJsonError("text after the value", self._start)
        if self._references:
            _resolve(root, self._references, self._max_depth)
        return root

    def _next(self) -> tuple[str, str]:
        """Return the kind and the text of the next token; a mark is its own kind."""
        token = _TOKEN.match(self._text, self._position)
        assert token is not None, "_TOKEN also matches nothing"
        kind = token.lastgroup or "nothing"
        lexeme = token[kind]
        self._start, self._position = token.start(kind), token.end()
        return (lexeme, "") if kind == "mark" else (kind, lexeme)

    def _refuse(self) -> NoReturn:
        character = self._text[self._start : self._start + 1]
        reason = f"unexpected or unfinished {character!r}" if character else "unexpected end"
        raise MalformedJsonError(reason, self._start)

    def _value(self, kind: str, lexeme: str, outer: _Node) -> _Node:
        """Return the value that begins with this token and goes into `outer`."""
        if kind in _STRINGS:
            return self._string(lexeme)
        if kind == "{":
            return self._fill({}, "}", outer)
        if kind == "[":
            return self._fill([], "]", outer)
        if kind == "integer":
            return self._integer(lexeme)
        if kind == "decimal":
            number = float(lexeme)
            if math.isinf(number):
                raise MalformedJsonError("number out of range", self._start)
            return number
        if lexeme in _WORDS:
            return _WORDS[lexeme]
        self._refuse()

    def _fill(self, container: _Node, closing: str, outer: _Node) -> _Node:
        """Read items or members into `container` up to its closing bracket."""
        if not self._levels_left:
            raise MalformedJsonError(f"more than {self._max_depth} levels", self._start)
        self._levels_left -= 1
        kind = ","
        while kind != closing:
            if kind != ",":
                self._refuse()
            kind, lexeme = self._next()
            if kind in (",", closing):  # commas may lead, repeat and trail
                continue
            slot: str | int
            if closing == "}":
                slot = self._key(kind, lexeme)
                if self._next()[0] != ":":
                    self._refuse()
                kind, lexeme = self._next()
            else:
                slot = len(container)
                container.append(None)
            start = self._start
            value = self._value(kind, lexeme, container)
            if _is_reference(value):
                value = _Reference(value["$ref"], start, container, slot, outer)
                self._references.append(value)
            container[slot] = value
            kind, _ = self._next()
        self._levels_left += 1
        return container

    def _key(self, kind: str, lexeme: str) -> str:
        if kind in _STRINGS:
            return self._string(lexeme)
        if kind == "integer":
            return str(self._integer(lexeme))
        if kind in ("word", "decimal"):
            return lexeme
        if kind not in ("{", "["):
            self._refuse()
        # Refused, because each text would escape the quotes of the one in it, doubling its length.
        if self._in_key:
            raise MalformedJsonError("an object as a key inside a key", self._start)
        start, references = self._start, len(self._references)
        self._in_key = True
        value = self._value(kind, lexeme, None)
        self._in_key = False
        if _is_reference(value) or len(self._references) > references:
            raise MalformedJsonError("a reference inside a key", start)
        return _Writer(sort=True).text(value)

    def _integer(self, lexeme: str) -> int:
        try:
            return int(lexeme)
        except ValueError:  # Python's own limit, some thousand digits
            raise MalformedJsonError("number out of range", self._start) from None

    def _string(self, lexeme: str) -> str:
        if "\\" not in lexeme:
            return lexeme[1:-1]
        start = self._start

        def replacement(escape: re.Match[str]) -> str:
            code, character = escape[1] or escape[2], escape[3]
            if code:
                return chr(int(code, 16))
            if not character:
                raise MalformedJsonError("unknown escape", start + escape.start())
            return _ESCAPED[character]

        text = _ESCAPE.sub(replacement, lexeme)[1:-1]
        if _SURROGATE.search(text):
            pairs_joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            text = _SURROGATE.sub("?", pairs_joined)
        return text


# --- references --------------------------------------------------------------------------------

_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)*+)|\[([0-9]{1,9})\]", re.DOTALL)


@dataclass(slots=True, eq=False)
class _Reference:
    """A `{"$ref": path}`, standing at `holder[slot]`, where the value it names is to go."""

    path: str
    position: int
    holder: _Node
    slot: str | int
    outer: _Node  # what the holder is in, None if it is the root
    target: _Node = None
    state: Literal["new", "resolving", "resolved"] = "new"


def _is_reference(value: _Node) -> bool:
    return type(value) is dict and len(value) == 1 and type(value.get("$ref")) is str


def _resolve(root: _Node, references: list[_Reference], max_depth: int) -> None:
    """Put the value it names in the place of every reference."""
    for reference in references:
        _target(reference, root, max_depth)
    for reference in references:
        # A later member of the same name may have taken the place.
        if reference.holder[reference.slot] is reference:
            reference.holder[reference.slot] = reference.target
    _check_sharing(root, max_depth, references[0].position)


def _target(node: _Node, root: _Node, links_left: int) -> _Node:
    """Return `node`, or what it names if it is a reference."""
    if type(node) is not _Reference:
        return node
    if node.state == "new":
        if not links_left:
            raise MalformedJsonError("references in a long chain", node.position)
        node.state = "resolving"
        node.target = _walk(node, root, links_left - 1)
        node.state = "resolved"
    if node.state == "resolving":
        raise MalformedJsonError("references in a circle", node.position)
    return node.target


def _walk(reference: _Reference, root: _Node, links_left: int) -> _Node:
    """Follow the path of `reference`."""
    path = reference.path
    if path == "@":
        return reference.holder
    if path == ".." and reference.outer is not None:
        return reference.outer
    missing = MalformedJsonError(f"no value for the reference {path[:100]!r}", reference.position)
    if not path.startswith("$"):
        raise missing
    node, at = root, 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise missing
        at = step.end()
        name, index = step.groups()
        # Java writes the Integer keys of a map like the indexes of a list.
        is_index = type(node) is list and index
        slot = int(index) if is_index else index or re.sub(r"(?s)\\(.)", r"\1", name)
        try:
            node = _target(node[slot], root, links_left)
        except (LookupError, TypeError):
            raise missing from None
    return node


def _check_sharing(root: _Node, max_depth: int, position: int) -> None:
    """Refuse a value that is small in memory but too deep or too large to be walked."""
    measured: dict[int, tuple[int, int]] = {}
    values_own = 0

    def measure(container: _Node, level: int) -> tuple[int, int]:
        """Return the height of `container` and the number of values a walk over it meets."""
        nonlocal values_own
        if level > max_depth:
            raise MalformedJsonError(f"more than {max_depth} levels", position)
        measured[id(container)] = 0, 0  # for itself, met inside: there the walk must end
        height, values = 0, len(container)
        values_own += values
        for child in container.values() if type(container) is dict else container:
            if type(child) in (dict, list):
                child_height, child_values = measured.get(id(child)) or measure(child, level + 1)
                height = max(height, child_height)
                values += child_values
        if level + height > max_depth:
            raise MalformedJsonError(f"more than {max_depth} levels", position)
        measured[id(container)] = height + 1, values
        return height + 1, values

    _, values_walked = measure(root, 1)
    if values_walked - values_own > _SHARED_VALUES_MAX:
        raise MalformedJsonError("references repeat too many values", position)


# --- writing -----------------------------------------------------------------------------------

_SPECIAL = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_SPECIAL_STANDARD = re.compile('["\\\\/\x00-\x1f\x7f-\U0010ffff]')
_SHORT_ESCAPES = dict(zip('"\\/\b\f\n\r\t', '"\\/bfnrt', strict=True))


def dumps_in_steps(value: object, *, standard: bool = False) -> Generator[None, None, bytes]:
    """Return what `dumps` does, in steps of about a millisecond.

    Sets at the upper levels must be sets of text. Nothing of the value may change meanwhile.
    """
    writer = _Writer(standard=standard, sort=standard)
    pieces: list[bytes] = []
    for _ in writer.write_in_steps(value, 0):
        pieces.append(writer.take())
        yield
    pieces.append(writer.take())
    return b"".join(pieces)


_LEVELS_IN_STEPS = 3
"""Below, a value is written at once: an entry of a table, in RocketMQ's bodies."""
_PARTS_PER_STEP = 1000
_CHARS_PER_STEP = 4096


class _Writer:
    """Writes one value; its recursion is bounded by `MAX_DEPTH`."""

    def __init__(self, *, standard: bool = False, sort: bool = False, indent: bool = False) -> None:
        self._standard = standard
        self._sort = sort
        self._indent = indent
        self._special = _SPECIAL_STANDARD if standard else _SPECIAL
        self._parts: list[str] = []

    def text(self, value: object) -> str:
        self._write(value, 0)
        return "".join(self._parts)

    def take(self) -> bytes:
        """Return what was written since the last call."""
        text = "".join(self._parts)
        self._parts.clear()
        return text.encode("utf-8", "replace")

    def write_in_steps(self, value: object, level: int) -> Generator[None, None, None]:
        """Write a value; after each step, `take` what there is."""
        if type(value) is str and len(value) > _CHARS_PER_STEP:
            self._parts.append('"')
            for start in range(0, len(value), _CHARS_PER_STEP):
                self._parts.append(self._quoted(value[start : start + _CHARS_PER_STEP])[1:-1])
                yield
            self._parts.append('"')
        elif level >= _LEVELS_IN_STEPS:
            self._write(value, level)
        elif isinstance(value, (list, tuple)):
            yield from self._items_in_steps(value, level)
        elif isinstance(value, (set, frozenset)):
            ordered = yield from hash_map_order_in_steps(list(value), is_set=True)
            yield from self._items_in_steps(ordered, level)
        elif isinstance(value, msgspec.Struct):
            names = _bean_members(type(value))
            members = [(name, getattr(value, field)) for name, field in names]
            yield from self._members_in_steps(members, level)
        elif isinstance(value, Mapping):
            given = value.items()
            yield from self._members_in_steps(_sorted_by_key(given) if self._sort else given, level)
        else:
            self._write(value, level)

    def _items_in_steps(self, items: Iterable[object], level: int) -> Generator[None, None, None]:
        self._enter("[", level)
        separator = ""
        for item in items:
            self._parts.append(separator)
            separator = ","
            if _is_short(item):
                self._write(item, level + 1)
            else:
                yield from self.write_in_steps(item, level + 1)
            if len(self._parts) > _PARTS_PER_STEP:
                yield
        self._parts.append("]")

    def _members_in_steps(
        self, members: Iterable[tuple[object, object]], level: int
    ) -> Generator[None, None, None]:
        self._enter("{", level)
        separator = ""
        for key, value in members:
            if value is None or value is msgspec.UNSET:
                continue
            self._parts.append(separator)
            separator = ","
            self._key(key, level + 1)
            self._parts.append(":")
            if _is_short(value):
                self._write(value, level + 1)
            else:
                yield from self.write_in_steps(value, level + 1)
            if len(self._parts) > _PARTS_PER_STEP:
                yield
        self._parts.append("}")

    def _write(self, value: object, level: int) -> None:
        # The two types most values have come first, and are not asked whether they are enums.
        if type(value) is str:
            self._parts.append(self._quoted(value))
        elif type(value) is int:
            self._parts.append(str(value))
        elif isinstance(value, Enum):
            self._parts.append(self._quoted(value.name))
        elif value is None or isinstance(value, bool):
            self._parts.append("null" if value is None else "true" if value else "false")
        elif isinstance(value, str):
            self._parts.append(self._quoted(value))
        elif isinstance(value, int):
            self._parts.append(int.__repr__(value))
        elif isinstance(value, float):
            # Infinities and NaN are null to fastjson.
            self._parts.append(double_text(value) if math.isfinite(value) else "null")
        elif isinstance(value, msgspec.Struct):
            names = _bean_members(type(value))
            self._object([(name, getattr(value, field)) for name, field in names], level)
        elif isinstance(value, Mapping):
            members = value.items()
            self._object(_sorted_by_key(members) if self._sort else members, level)
        elif isinstance(value, (list, tuple)):
            on_lines = self._indent and not all(type(item) is int for item in value)
            self._array(value, level, on_lines=on_lines)
        elif isinstance(value, (set, frozenset)):
            self._array(_hash_set_order(value), level, on_lines=False)
        else:
            raise TypeError(f"{type(value).__name__} has no JSON form")

    def _object(self, members: Collection[tuple[object, object]], level: int) -> None:
        self._enter("{", level)
        separator = ""
        for key, value in members:
            if value is None or value is msgspec.UNSET:
                continue
            self._parts.append(separator)
            separator = ","
            if self._indent and isinstance(key, str):
                self._new_line(level + 1)
            self._key(key, level + 1)
            self._parts.append(":")
            self._write(value, level + 1)
        if self._indent and members:
            self._new_line(level)
        self._parts.append("}")

    def _array(self, items: Collection[object], level: int, *, on_lines: bool) -> None:
        self._enter("[", level)
        separator = ""
        for item in items:
            self._parts.append(separator)
            separator = ","
            if on_lines:
                self._new_line(level + 1)
            self._write(item, level + 1)
        if on_lines:
            self._new_line(level)
        self._parts.append("]")

    def _enter(self, opening: str, level: int) -> None:
        if level >= MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} levels, or a value that contains itself")
        self._parts.append(opening)

    def _new_line(self, level: int) -> None:
        self._parts.append("\n" + "\t" * level)

    def _key(self, key: object, level: int) -> None:
        if isinstance(key, (str, Enum)):
            self._write(key, level)
        elif isinstance(key, bool) or not isinstance(key, (int, msgspec.Struct, Mapping)):
            raise TypeError(f"{type(key).__name__} cannot be a key in JSON")
        elif self._standard:
            self._parts.append(self._quoted(_Writer().text(key)))
        else:
            self._write(key, level)

    def _quoted(self, text: str) -> str:
        return f'"{self._special.sub(_escape, text)}"'


def _is_short(value: object) -> bool:
    """Whether a value takes no time to write, as most names and numbers do."""
    return type(value) is int or (type(value) is str and len(value) <= _CHARS_PER_STEP)


def _escape(special: re.Match[str]) -> str:
    character = special[0]
    if character in _SHORT_ESCAPES:
        return "\\" + _SHORT_ESCAPES[character]
    return "".join(f"\\u{unit:04X}" for unit in utf16_units(character))


@cache
def _bean_members(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Return the encoded name and the field of each member, sorted by encoded name."""
    return tuple(sorted(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)))


def _sorted_by_key(members: Collection[tuple[Any, object]]) -> Collection[tuple[Any, object]]:
    """Return the members in the order of a `TreeMap`; as given if the keys cannot be compared."""
    if all(isinstance(key, str) for key, _ in members):
        if all(key.isascii() for key, _ in members):
            return sorted(members, key=lambda member: str(member[0]))
        return sorted(members, key=lambda member: tuple(utf16_units(member[0])))
    if all(type(key) is int for key, _ in members):
        return sorted(members, key=lambda member: member[0])
    return members


def _hash_set_order(items: Collection[Any]) -> list[Any]:
    """Return the items of a set in a fixed order: Java's, if all are strings or all numbers."""
    for kind in (str, int):
        if all(type(item) is kind for item in items):
            return hash_map_order(sorted(items))
    return sorted(items, key=lambda item: _Writer(sort=True).text(item))
