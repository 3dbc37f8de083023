"""Draws values of any body class from its types."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from rmq.remoting import bodies
from rmq.remoting.bodies import Body

if TYPE_CHECKING:
    from enum import Enum

S = TypeVar("S", bound=msgspec.Struct)

BODY_CLASSES: Final[list[type[Body]]] = sorted(
    (
        kind
        for kind in vars(bodies).values()
        if isinstance(kind, type) and issubclass(kind, Body) and kind is not Body
    ),
    key=lambda kind: kind.__name__,
)

# A map whose only key is this one reads back as a reference, in Java as well.
_TEXT: Final = st.text(max_size=8).filter(lambda text: text != "$ref")


def values_of(kind: type[S]) -> st.SearchStrategy[S]:
    """Return a strategy for instances of a struct, with any of its members at default."""
    return _structs(kind)


@cache
def _structs(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    # Kept, because tests ask for one at every example, and hypothesis looks closely at a new one.
    fields = cast("inspect.StructType", inspect.type_info(kind)).fields
    required = {field.name: _values(field.type) for field in fields if field.required}
    optional = {field.name: _member_values(field) for field in fields if not field.required}
    drawn = st.fixed_dictionaries(required, optional=optional)
    return drawn.map(lambda members: kind(**members))


def _member_values(field: inspect.Field) -> st.SearchStrategy[Any]:
    # None is not written. Where it is not the default it cannot be read back, as in Java.
    if isinstance(field.type, inspect.UnionType) and field.default is not None:
        return _values(field.type.types[0])
    return _values(field.type)


def _values(info: inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case inspect.StrType():
            return _TEXT
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType(ge=int(low), le=int(high)):
            return st.integers(low, high)
        case inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case inspect.EnumType():
            members: list[Enum] = list(info.cls)
            return st.sampled_from(members)
        case inspect.UnionType(types=(option, inspect.NoneType())):
            return st.none() | _values(option)
        case inspect.StructType():
            return values_of(info.cls)
        case inspect.DictType():
            return st.dictionaries(_values(info.key_type), _values(info.value_type), max_size=3)
        case inspect.VarTupleType():
            return st.lists(_values(info.item_type), max_size=3).map(tuple)
        case inspect.FrozenSetType():
            return st.frozensets(_values(info.item_type), max_size=5)
    raise TypeError(f"no strategy for {info!r}")
