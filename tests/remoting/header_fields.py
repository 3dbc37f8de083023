"""What tests of headers share: all classes, what their fields are, and a trip through a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from rmq.remoting import headers
from rmq.remoting.command import Command, encode_frame
from rmq.remoting.frame import FrameDecoder
from rmq.remoting.header import Header, Int32, Int64

if TYPE_CHECKING:
    from rmq.remoting.codes import Serialization

ALL_CLASSES: Final = [
    exported
    for _, exported in sorted(vars(headers).items())
    if isinstance(exported, type) and issubclass(exported, Header) and exported is not Header
]


def kind_of(info: msgspec.structs.FieldInfo) -> Any:  # noqa: ANN401 - an annotation is any object
    """Return the type of a field without its `| None`."""
    for kind in (str, bool, Int32, Int64):
        if info.type in (kind, kind | None):
            return kind
    raise AssertionError(f"{info.name}: {info.type}")


def info_of(header_class: type[Header]) -> dict[str, msgspec.structs.FieldInfo]:
    return {info.encode_name: info for info in msgspec.structs.fields(header_class)}


def full_ext(header_class: type[Header]) -> dict[str, str]:
    """Every field of a class, set."""
    texts = {str: "text", bool: "true", Int32: "32", Int64: "64"}
    return {name: texts[kind_of(info)] for name, info in info_of(header_class).items()}


def decode(frame: bytes) -> Command:
    decoder = FrameDecoder()
    decoder.feed(frame)
    (command,) = decoder.take(2)
    return command


def sent(ext: dict[str, str], serialization: Serialization) -> Command:
    """Return what arrives when a peer sends these fields as they are."""
    return decode(encode_frame(code=0, extra=ext, serialization=serialization))
