"""Turns plain JSON values into typed structs by the rules of Java's JSON library.

`fastjson.loads` gives dicts, lists and scalars, with all keys as text. From the types of a struct
this module builds, once, a reader that makes the struct out of them: numbers may be quoted, text
may be a bare number, a null (or an empty string where a number belongs) leaves the default, enums
go by name or by position, and keys are turned into the integers or structs the type asks for.

Values may share parts or contain themselves; readers follow the types, which never do.
Names of members are the encoded names. Nothing is known here about which structs there are.
"""

from __future__ import annotations

import re
from enum import Enum, Flag, auto
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar, cast

import msgspec
from msgspec import inspect

from rmq.errors import MalformedJsonError
from rmq.model import fastjson
from rmq.model.java import double_text
from rmq.model.limits import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

S = TypeVar("S", bound=msgspec.Struct)

_Value: TypeAlias = Any  # a fastjson.JsonValue; which one is for the reader to find out
_Reader: TypeAlias = "Callable[[_Value], Any]"

_SHOWN_CHARACTERS_MAX: Final = 60


class Mismatch(Exception):
    """A value does not fit its type; the path grows while the error passes through containers."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self._steps: list[str] = []

    def inside(self, step: str) -> Mismatch:
        """Note that the value was found at `step` of what is being read."""
        self._steps.append(step)
        return self

    @property
    def path(self) -> str:
        return "$" + "".join(reversed(self._steps))


class KeyKinds(Flag):
    """What else than text the maps of a type have for keys."""

    NONE = 0
    INTEGER = auto()
    STRUCT = auto()


def reader_of(kind: type[S]) -> Callable[[object], S]:
    """Return a function that makes a `kind` out of a plain value, or raises `Mismatch`."""
    return cast("Callable[[object], S]", _struct_reader(kind))


def key_kinds_of(kind: type[msgspec.Struct]) -> KeyKinds:
    """Return what other keys than text are found anywhere inside `kind`."""
    kinds = KeyKinds.NONE
    for part in _parts(inspect.type_info(kind)):
        if isinstance(part, inspect.DictType):
            if isinstance(part.key_type, inspect.IntType):
                kinds |= KeyKinds.INTEGER
            elif isinstance(part.key_type, inspect.StructType):
                kinds |= KeyKinds.STRUCT
    return kinds


def _parts(info: inspect.Type) -> Iterator[inspect.Type]:
    """Yield a type and everything inside it."""
    yield info
    match info:
        case inspect.StructType():
            for field in info.fields:
                yield from _parts(field.type)
        case inspect.UnionType():
            for option in info.types:
                yield from _parts(option)
        case inspect.DictType():
            yield from _parts(info.value_type)
        case inspect.VarTupleType() | inspect.FrozenSetType():
            yield from _parts(info.item_type)


# --- readers -----------------------------------------------------------------------------------
# Each returns None for a value that is as good as missing.


def _reader(info: inspect.Type) -> _Reader:
    match info:
        case inspect.StrType():
            return _read_text
        case inspect.BoolType():
            return _read_boolean
        case inspect.FloatType():
            return _read_float
        case inspect.IntType(ge=int(low), le=int(high)):
            return _integer_reader(low, high)
        case inspect.EnumType():
            return _enum_reader(info.cls)
        case inspect.UnionType(types=(option, inspect.NoneType())):
            return _reader(option)
        case inspect.StructType():
            return _struct_reader(info.cls)
        case inspect.DictType():
            return _map_reader(_key_reader(info.key_type), _reader(info.value_type))
        case inspect.VarTupleType():
            return _list_reader(_reader(info.item_type), tuple)
        case inspect.FrozenSetType():
            return _list_reader(_reader(info.item_type), frozenset)
    raise TypeError(f"{info!r} cannot be part of a body")


@cache
def _struct_reader(kind: type[msgspec.Struct]) -> _Reader:
    members = [
        (
            field.name,
            field.encode_name,
            field.required,
            _is_optional(field.type),
            _reader(field.type),
        )
        for field in cast("inspect.StructType", inspect.type_info(kind)).fields
    ]

    def read(value: _Value) -> msgspec.Struct:
        if type(value) is not dict:
            _refuse("an object", value)
        fields: dict[str, Any] = {}
        for name, wire_name, is_required, is_optional, reader in members:
            given = value.get(wire_name)
            if given is not None:
                try:
                    field = reader(given)
                except Mismatch as mismatch:
                    raise mismatch.inside(f".{wire_name}") from None
                # None is a value only for a name that its enum does not know.
                if field is not None or is_optional:
                    fields[name] = field
            if is_required and name not in fields:
                raise Mismatch("is missing").inside(f".{wire_name}")
        return kind(**fields)

    return read


def _is_optional(info: inspect.Type) -> bool:
    return isinstance(info, inspect.UnionType)


def _map_reader(read_key: _Reader, read_value: _Reader) -> _Reader:
    def read(value: _Value) -> dict[Any, Any]:
        if type(value) is not dict:
            _refuse("an object", value)
        members: dict[Any, Any] = {}
        for key, given in value.items():
            try:
                member = None if given is None else read_value(given)
                if member is not None:
                    typed_key = read_key(key)
                    if typed_key is None:
                        _refuse("a key", key)
                    members[typed_key] = member
            except Mismatch as mismatch:
                raise mismatch.inside(f".{_shortened(key)}") from None
        return members

    return read


def _list_reader(read_item: _Reader, collect: Callable[[list[Any]], Any]) -> _Reader:
    def read(value: _Value) -> Any:  # noqa: ANN401 - whatever collection the type asks for
        if type(value) is not list:
            _refuse("a list", value)
        items: list[Any] = []
        for index, given in enumerate(value):
            try:
                item = None if given is None else read_item(given)
                if item is None:
                    raise Mismatch("a list has no place for null")
            except Mismatch as mismatch:
                raise mismatch.inside(f"[{index}]") from None
            items.append(item)
        return collect(items)

    return read


def _key_reader(info: inspect.Type) -> _Reader:
    if isinstance(info, inspect.StructType):
        return _struct_key_reader(info.cls)
    return _reader(info)


def _struct_key_reader(kind: type[msgspec.Struct]) -> _Reader:
    decode = msgspec.json.Decoder(kind).decode
    read_plain = _struct_reader(kind)

    def read(key: str) -> Any:  # noqa: ANN401 - a `kind`
        try:
            return decode(key)
        except (ValueError, RecursionError):
            pass
        try:
            return read_plain(fastjson.loads(key))
        except MalformedJsonError:
            _refuse("an object as key", key)

    return read


# --- scalars -----------------------------------------------------------------------------------

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}\Z")
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,5})?\Z")
_BOOLEANS: Final = {"true": True, "1": True, 1: True, "false": False, "0": False, 0: False}
_MISSING: Final = ("", "null")
_UINT64_MAX: Final = 2**64 - 1


def _read_text(value: _Value) -> str:
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int and _fits_64_bits(value):
        return str(value)
    if type(value) is float:
        return double_text(value)
    _refuse("str", value)


def _read_boolean(value: _Value) -> bool | None:
    if type(value) is bool:
        return value
    if type(value) is str:
        if value in _MISSING:
            return None
        value = value.lower()
    if type(value) in (str, int) and value in _BOOLEANS:
        return _BOOLEANS[value]
    _refuse("bool", value)


def _read_float(value: _Value) -> float | None:
    if type(value) is float:
        return value
    if type(value) is int or (type(value) is str and _DECIMAL.match(value)):
        try:
            number = float(value)
        except OverflowError:
            number = float("inf")
        if abs(number) != float("inf"):
            return number
    if type(value) is str and value in _MISSING:
        return None
    _refuse("float", value)


def _integer_reader(low: int, high: int) -> _Reader:
    name = f"int of {high.bit_length() + 1} bits"

    def read(value: _Value) -> int | None:
        number = value
        if type(value) is str:
            if value in _MISSING:
                return None
            if _INTEGER.match(value):
                number = int(value)
                if high == INT64_MAX < number <= _UINT64_MAX:
                    # The C++ client writes what it never set, and without a sign.
                    number -= _UINT64_MAX + 1
        elif type(value) is float and value.is_integer():
            number = int(value)
        if type(number) is int and low <= number <= high:
            return number
        _refuse(name, value)

    return read


def _enum_reader(kind: type[Enum]) -> _Reader:
    by_name = dict(kind.__members__)
    by_position = list(kind)

    def read(value: _Value) -> Enum | None:
        if type(value) is str:
            return by_name.get(value)
        if type(value) is int and 0 <= value < len(by_position):
            return by_position[value]
        _refuse(f"name of a {kind.__name__}", value)

    return read


# --- words for errors --------------------------------------------------------------------------


def _refuse(expected: str, value: _Value) -> NoReturn:
    raise Mismatch(f"expected {expected}, found {_shown(value)}")


def _shown(value: _Value) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return repr(_shortened(value))
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
        case int() if not _fits_64_bits(value):
            return "a number of more than 64 bits"
    return str(value)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 1] + "…"


def _fits_64_bits(number: int) -> bool:
    return number.bit_length() <= 64
