"""Typed headers: what `extFields` of a command means.

On the wire every header field is a string (`"12"`, `"true"`), absent when null. Here a header is a
frozen `msgspec.Struct` with real types; one class per request and response lives in
`rmq.remoting.headers`. This module reads and writes them:

- The fast reader hands the JSON of `extFields` straight to msgspec, which turns quoted numbers into
  integers.
- What it refuses is read once more by Java's rules (numbers unquoted or with a sign, any text as a
  boolean) before the request is refused with an error that names the field.
- Writers put fields in the order of a Java HashMap, so that our bytes are those of a stock sender.

Unknown fields are ignored here; `Command.ext_fields` keeps them for those who need all of them
(ACL).
"""

from __future__ import annotations

import re
import struct
import unicodedata
from functools import cache, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Generic, TypeVar, get_args

import msgspec

from rmq.errors import HeaderError, LocalProtocolError, MalformedJsonError
from rmq.model import fastjson
from rmq.model.java import hash_map_order
from rmq.model.limits import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from rmq.remoting.layout import EXT_KEY_LENGTH, EXT_VALUE_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


Int32 = Annotated[int, msgspec.Meta(ge=INT32_MIN, le=INT32_MAX)]
Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of every typed header. Fields may be `str`, `Int32`, `Int64`, `bool` or `float`, each
    also `| None`.

    A field without a default is mandatory. Fields are declared in the order of the Java class.
    """

    declared_order: ClassVar[bool] = False
    """Whether the binary serialization writes the fields as declared instead of in hash order."""


class EmptyHeader(Header, frozen=True):
    """A header class without fields: `"extFields":{}`, which is not the same bytes as no header at
    all.
    """


H = TypeVar("H", bound=Header)


READ_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the fast reader raises for texts that are to be read leniently, or refused."""

LENIENT_BYTES_MAX: Final = 64 * 1024
"""Longer texts are read only if all is as the fast reader wants it."""
SLOW_BYTES_MAX: Final = 8 * 1024
"""Longer texts must be standard JSON, as those of all stock peers are: reading any other takes more
than a millisecond per KiB.
"""


def read_json(header_class: type[H], ext: bytes | memoryview | msgspec.Raw) -> H:
    """Read a header from the JSON text of `extFields`; raise `HeaderError` naming what is wrong."""
    codec: _Codec[H] = _codec_of(header_class)
    try:
        return codec.decode_json(ext or b"{}")
    except READ_ERRORS:
        return codec.read_by_java_rules(read_leniently(ext, header_class.__name__))


def read_leniently(ext: bytes | memoryview | msgspec.Raw, what: str) -> dict[str, str]:
    """Return the fields of `extFields` by the rules of fastjson; raise `HeaderError`."""
    text = bytes(ext) or b"{}"
    if len(text) > LENIENT_BYTES_MAX:
        raise HeaderError(f"malformed fields of {len(text)} bytes", header=what)
    try:
        members = fastjson.loads(text, slow_bytes_max=SLOW_BYTES_MAX)
        return lenient_fields(members, nested=holds_no_reference(text))
    except MalformedJsonError as exc:
        raise HeaderError(exc.reason, header=what) from exc
    except ValueError as exc:
        raise HeaderError(str(exc), header=what) from exc


def holds_no_reference(text: bytes) -> bool:
    """Tell whether a JSON text certainly holds no `$ref`, however it might be spelled."""
    return b"$" not in text and b"\\" not in text


def lenient_fields(members: object, *, nested: bool) -> dict[str, str]:
    """Return JSON members as header fields; raise ValueError for what can be none."""
    if members is None:
        return {}
    if not isinstance(members, dict):
        raise ValueError("extFields is not an object")
    return {
        lenient_text(name, nested=nested): lenient_text(value, nested=nested)
        for name, value in members.items()
        if value is not None
    }


def lenient_text(value: object, *, nested: bool) -> str:
    """Return a JSON value as text, half a surrogate pair as "?", both as in Java.

    Lists and objects are written out again, but only if `nested`: with references inside, a small
    text could be made to grow without end.
    """
    if isinstance(value, dict | list) and not nested:
        raise ValueError("a header field is a list or an object")
    text = value if isinstance(value, str) else fastjson.dumps(value).decode()
    return text.encode("utf-8", "replace").decode()


def as_java_sends(header: H) -> H:
    """Return the header with half surrogate pairs replaced by "?"; mostly the header itself."""
    changes: dict[str, str] = {}
    for field in _codec_of(type(header)).fields:
        if field.kind is str:
            value = getattr(header, field.attribute)
            if value is not None and not value.isascii():
                sent = value.encode("utf-8", "replace").decode()
                if sent != value:
                    changes[field.attribute] = sent
    return msgspec.structs.replace(header, **changes) if changes else header


def json_decoder(header_class: type[H]) -> Callable[[msgspec.Raw], H]:
    """Return the fast reader of one class; what it refuses must go to `read_json`."""
    codec: _Codec[H] = _codec_of(header_class)
    return codec.decode_json


def read_map(header_class: type[H], ext: Mapping[str, str]) -> H:
    """Read a header from decoded `extFields`; raise `HeaderError` naming what is wrong."""
    codec: _Codec[H] = _codec_of(header_class)
    try:
        return msgspec.convert(ext, header_class, strict=False)
    except msgspec.ValidationError:
        return codec.read_by_java_rules(ext)


def ext_fields_of(header: Header, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the header's fields as strings, with `extra` merged in, in the order of a Java
    HashMap.
    """
    fields = _codec_of(type(header)).strings(header)
    if extra:
        fields = {**extra, **fields}
    order = _hash_order(tuple(fields))
    return {name: fields[name] for name in order}


def json_ext_of(header: Header) -> bytes:
    """Return the JSON text of `extFields` for `header`."""
    return _EXT_WRITERS[type(header)](header)


def binary_ext_of(header: Header, extra: Mapping[str, str] | None = None) -> bytes:
    """Return the entries of the binary serialization's ext map for `header`."""
    if type(header).declared_order:
        fields = _codec_of(type(header)).strings(header)
        if extra:
            fields.update((name, extra[name]) for name in _hash_order(tuple(extra)))
    else:
        fields = ext_fields_of(header, extra)
    return binary_ext(fields)


def binary_ext(fields: Mapping[str, str]) -> bytes:
    """Return the entries of the binary serialization's ext map."""
    parts: list[bytes] = []
    for name, value in fields.items():
        key_bytes = name.encode("utf-8", "replace")
        value_bytes = value.encode("utf-8", "replace")
        try:
            key_length = EXT_KEY_LENGTH.pack(len(key_bytes))
        except struct.error as exc:
            raise LocalProtocolError(
                f"the name of a header field has {len(key_bytes)} bytes: {exc}"
            ) from exc
        parts += (key_length, key_bytes, EXT_VALUE_LENGTH.pack(len(value_bytes)), value_bytes)
    return b"".join(parts)


def java_double(value: float) -> str:
    """Return `value` as Java's Double.toString writes it."""
    return fastjson.dumps(value).decode()


class _Field:
    """One field of a header class: names, type and how its value is written."""

    __slots__ = (
        "attribute",
        "json_format",
        "kind",
        "optional",
        "render_json",
        "render_text",
        "wire_name",
    )

    def __init__(self, info: msgspec.structs.FieldInfo) -> None:
        self.attribute = info.name
        self.optional = type(None) in get_args(info.type)
        self.wire_name = info.encode_name
        self.kind, limits = _kind_of(info.type)
        # In JSON, integers go through "%d" as they are; everything else is rendered to bytes first.
        self.json_format, self.render_json, self.render_text = _RENDERINGS[self.kind]
        if self.kind is int and limits is None:
            raise TypeError(f"{info.name}: declare integers as Int32 or Int64")


_encode_json_string = msgspec.json.Encoder().encode

_RENDERINGS: Final[
    dict[type, tuple[bytes, Callable[[Any], bytes] | None, Callable[[Any], str] | None]]
] = {
    str: (b"%b", _encode_json_string, None),
    int: (b'"%d"', None, str),
    bool: (
        b"%b",
        lambda value: b'"true"' if value else b'"false"',
        lambda v: "true" if v else "false",
    ),
    float: (b'"%b"', lambda value: java_double(value).encode(), java_double),
}


class _Codec(Generic[H]):
    """Everything about one header class that can be worked out once."""

    def __init__(self, header_class: type[H]) -> None:
        self.header_class = header_class
        self.fields = [_Field(info) for info in msgspec.structs.fields(header_class)]
        self.decode_json: Callable[[bytes | memoryview | msgspec.Raw], H]
        self.decode_json = msgspec.json.Decoder(header_class, strict=False).decode
        self._values = _tuple_getter([field.attribute for field in self.fields])

    def strings(self, header: H) -> dict[str, str]:
        result: dict[str, str] = {}
        for field, value in zip(self.fields, self._values(header), strict=True):
            if value is not None:
                result[field.wire_name] = (
                    value if field.render_text is None else field.render_text(value)
                )
        return result

    def read_by_java_rules(self, members: Mapping[str, str]) -> H:
        values: dict[str, Any] = {}
        for field in self.fields:
            value = members.get(field.wire_name)
            if value is None:
                continue
            try:
                values[field.wire_name] = _JAVA_READERS[field.kind](value)
            except ValueError as exc:
                raise HeaderError(
                    f"field `{field.wire_name}`: {exc}", header=self.header_class.__name__
                ) from None
        try:
            return msgspec.convert(values, self.header_class)
        except msgspec.ValidationError as exc:
            raise HeaderError(str(exc), header=self.header_class.__name__) from None


# Writing a header is on the path of every answer, and a loop over its fields costs three times what
# straight-line code does. So, as dataclasses do, the straight-line code is generated once per class
# (and per set of null fields). Nothing but attribute names and numbers of our own goes into its
# text.


class JsonWriters(dict[type[Header], "Callable[..., bytes]"]):
    """Functions that write headers of a class as JSON, by class; each is made when first asked for.

    With `before` and `after` (templates with one `%d` each) the text goes right into its
    surroundings, and the functions take those two numbers besides the header.
    """

    def __init__(self, before: bytes = b"", after: bytes = b"") -> None:
        super().__init__()
        self._before = before
        self._after = after

    def __missing__(self, header_class: type[Header]) -> Callable[..., bytes]:
        fields = _codec_of(header_class).fields
        optional = [field for field in fields if field.optional]
        if not optional:
            writer = self.compile(fields, ())
        else:
            # Which optional fields are null decides which of the straight-line functions to take.
            absence = "".join(f"h.{field.attribute} is None," for field in optional)
            numbers = ",x,y" if self._before else ""
            scope = {"writers": _WritersByAbsence(self, fields)}
            writer = eval(f"lambda h{numbers}: writers[({absence})](h{numbers})", scope)
        self[header_class] = writer
        return writer

    def compile(self, fields: Sequence[_Field], absent: tuple[bool, ...]) -> Callable[..., bytes]:
        """Return a function that writes a header when the given optional fields are null."""
        missing = iter(absent)
        present = {
            field.wire_name: field for field in fields if not (field.optional and next(missing))
        }
        ordered = [present[name] for name in hash_map_order(tuple(present))]
        members = [
            _encode_json_string(field.wire_name).replace(b"%", b"%%") + b":" + field.json_format
            for field in ordered
        ]
        scope: dict[str, Any] = {
            "template": self._before + b"{" + b",".join(members) + b"}" + self._after,
            "true": b'"true"',
            "false": b'"false"',
        }
        values = ""
        for number, field in enumerate(ordered):
            if field.render_json is None:
                values += f"h.{field.attribute},"
            elif field.kind is bool:
                values += f"true if h.{field.attribute} else false,"
            else:
                scope[f"render{number}"] = field.render_json
                values += f"render{number}(h.{field.attribute}),"
        if not self._before:
            return eval(f"lambda h: template % ({values})", scope)  # type: ignore[no-any-return]
        return eval(f"lambda h,x,y: template % (x,{values}y)", scope)  # type: ignore[no-any-return]

    def fill(self, header: Header, varying: Sequence[str]) -> Callable[..., bytes]:
        """Return a function that writes `header` with other values in the fields `varying`.

        It takes the two numbers and those values, none of which may be None. All else is written
        now, once for all.
        """
        fields = {field.attribute: field for field in _codec_of(type(header)).fields}
        present = {
            field.wire_name: field
            for field in fields.values()
            if field.attribute in varying or getattr(header, field.attribute) is not None
        }
        members: list[bytes] = []
        values = ""
        scope: dict[str, Any] = {}
        for name in hash_map_order(tuple(present)):
            field = present[name]
            render, written = field.render_json, field.json_format
            if field.attribute in varying:
                number = varying.index(field.attribute)
                scope[f"render{number}"] = render
                values += f"v{number}," if render is None else f"render{number}(v{number}),"
            else:
                value = getattr(header, field.attribute)
                written = written % (value if render is None else render(value))
                written = written.replace(b"%", b"%%")
            label = _encode_json_string(name).replace(b"%", b"%%")
            members.append(label + b":" + written)
        scope["template"] = self._before + b"{" + b",".join(members) + b"}" + self._after
        names = "".join(f",v{number}" for number in range(len(varying)))
        return eval(f"lambda x,y{names}: template % (x,{values}y)", scope)  # type: ignore[no-any-return]


class _WritersByAbsence(dict[tuple[bool, ...], "Callable[..., bytes]"]):
    """The function that writes a class when the given optional fields are null."""

    def __init__(self, writers: JsonWriters, fields: Sequence[_Field]) -> None:
        super().__init__()
        self._writers = writers
        self._fields = fields

    def __missing__(self, absent: tuple[bool, ...]) -> Callable[..., bytes]:
        writer = self[absent] = self._writers.compile(self._fields, absent)
        return writer


_EXT_WRITERS: Final = JsonWriters()


@cache
def _codec_of(header_class: type[H]) -> _Codec[H]:
    return _Codec(header_class)


@lru_cache(maxsize=4096)
def _hash_order(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(hash_map_order(names))


def _tuple_getter(attributes: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if not attributes:
        return lambda _: ()
    if len(attributes) == 1:
        # attrgetter of one name returns the bare value.
        single = attrgetter(attributes[0])
        return lambda header: (single(header),)
    return attrgetter(*attributes)


def _kind_of(annotation: Any) -> tuple[type, msgspec.Meta | None]:  # noqa: ANN401 - an annotation is any object
    """Return the plain type behind `Int32 | None` and the like, with its limits."""
    arguments = [argument for argument in get_args(annotation) if argument is not type(None)]
    if arguments:
        if len(arguments) == 2 and isinstance(arguments[1], msgspec.Meta):
            return arguments[0], arguments[1]
        return _kind_of(arguments[0])
    if annotation not in _RENDERINGS:
        raise TypeError(f"{annotation!r} cannot be a header field")
    return annotation, None


# Any number of zeros in front, none of which is tried twice.
_JAVA_INTEGER: Final = re.compile(r"([+-]?)0*+([0-9]*+)\Z")
_DIGITS_MAX: Final = 19
_OTHER_SCRIPTS_CHARS_MAX: Final = 100
_BEYOND_ALL: Final = 1 << 64


def _java_integer(text: str) -> int:
    """Return what `Integer.parseInt` and `Long.parseLong` of Java read, apart from their bounds.

    Decimal digits of all scripts count, as in Java: those of the first 65,536 characters. The fast
    reader takes two forms more, `5.0` and `1e2`, for the whole numbers that they are.
    """
    plain = text
    if not text.isascii() and len(text) <= _OTHER_SCRIPTS_CHARS_MAX:
        plain = "".join(
            str(unicodedata.decimal(character, character)) if character <= "\uffff" else character
            for character in text
        )
    found = _JAVA_INTEGER.match(plain)
    if found is None or not plain[-1:].isdecimal():
        raise ValueError(f"not an integer: {text[:40]!r}")
    sign, digits = found.groups()
    number = int(digits or "0") if len(digits) <= _DIGITS_MAX else _BEYOND_ALL
    return -number if sign == "-" else number


_JAVA_READERS: Final[dict[type, Callable[[str], Any]]] = {
    str: str,
    int: _java_integer,
    bool: lambda text: text.lower() == "true",
    float: float,
}
