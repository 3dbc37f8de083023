"""The declared layouts against what is derived from them, our codecs and captured frames."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.packing import fixed_prefix_of
from rmq.remoting.codes import Serialization
from rmq.remoting.layout import (
    BINARY_HEADER_PREFIX,
    EXT_KEY_LENGTH,
    EXT_LENGTH,
    EXT_VALUE_LENGTH,
    FRAME_BYTES_MAX,
    FRAME_PREFIX,
    HEADER_BYTES_MAX,
    HEADER_LENGTH_MASK,
    SERIALIZATION_SHIFT,
    BatchEntry,
    BinaryHeader,
    ExtEntry,
    ExtKey,
    ExtValue,
    Frame,
    FramePrefix,
    Mark,
)
from tests.remoting.drawn_commands import Parts, int16s, int32s, parts
from tests.remoting.frames import RUNS, all_captured, captured, receive

if TYPE_CHECKING:
    from rmq.remoting.command import Command

examples = settings(max_examples=60)
serializations = pytest.mark.parametrize(
    "serialization", [pytest.param(member, id=member.name) for member in Serialization]
)
runs = pytest.mark.parametrize("run", RUNS)

# --- what is derived ------------------------------------------------------------------------


@examples
@given(length=int32s(), mark=st.integers(0, 2**32 - 1))
def test_the_frame_prefix_is_that_of_the_declaration(length: int, mark: int) -> None:
    data = FramePrefix.build({"length": length, "mark": mark})
    assert FRAME_PREFIX.pack(length, mark) == data
    assert FRAME_PREFIX.unpack(data) == (length, mark)
    assert FRAME_PREFIX.size == FramePrefix.sizeof() == 8


@examples
@given(serialization=st.integers(0, 255), header_length=st.integers(0, HEADER_BYTES_MAX))
def test_shift_and_mask_of_the_mark_are_those_of_the_declaration(
    serialization: int, header_length: int
) -> None:
    built = Mark.build({"serialization": serialization, "header_length": header_length})
    mark = int.from_bytes(built, "big")
    assert serialization << SERIALIZATION_SHIFT | header_length == mark
    assert mark >> SERIALIZATION_SHIFT == serialization
    assert mark & HEADER_LENGTH_MASK == header_length


@examples
@given(st.binary(min_size=8, max_size=8))
def test_any_eight_bytes_say_the_same_to_the_derived_prefix(data: bytes) -> None:
    length, mark = FRAME_PREFIX.unpack(data)
    declared = Mark.parse(data[4:])
    assert length == FramePrefix.parse(data).length
    assert mark >> SERIALIZATION_SHIFT == declared.serialization
    assert mark & HEADER_LENGTH_MASK == declared.header_length


@examples
@given(
    code=int16s(),
    language=st.integers(-128, 127),
    version=int16s(),
    opaque=int32s(),
    flag=int32s(),
    remark=st.binary(max_size=20),
    ext=st.lists(st.tuples(st.binary(max_size=10), st.binary(max_size=10)), max_size=3),
)
def test_the_prefix_of_the_binary_header_is_that_of_the_declaration(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: bytes,
    ext: list[tuple[bytes, bytes]],
) -> None:
    entries = [{"key": {"text": key}, "value": {"text": value}} for key, value in ext]
    header = BinaryHeader.build(
        {
            "code": code,
            "language": language,
            "version": version,
            "opaque": opaque,
            "flag": flag,
            "remark": remark,
            "ext": entries,
        }
    )
    prefix = (code, language, version, opaque, flag, len(remark))
    fields = b"".join(ExtEntry.build(entry) for entry in entries)
    assert BINARY_HEADER_PREFIX.pack(*prefix) == header[:17]
    assert BINARY_HEADER_PREFIX.unpack_from(header) == prefix
    assert header[17:] == remark + EXT_LENGTH.pack(len(fields)) + fields
    assert (BINARY_HEADER_PREFIX.size, EXT_LENGTH.size) == (17, 4)


@examples
@given(key=st.binary(max_size=300), value=st.binary(max_size=300))
def test_lengths_of_keys_and_values_are_those_of_the_declaration(key: bytes, value: bytes) -> None:
    built_key = ExtKey.build({"text": key})
    built_value = ExtValue.build({"text": value})
    assert EXT_KEY_LENGTH.pack(len(key)) + key == built_key
    assert EXT_VALUE_LENGTH.pack(len(value)) + value == built_value
    assert EXT_KEY_LENGTH.unpack_from(built_key) == (len(key),)
    assert EXT_VALUE_LENGTH.unpack_from(built_value) == (len(value),)
    entry = ExtEntry.parse(built_key + built_value)
    assert (entry.key.text, entry.value.text) == (key, value)


@examples
@given(
    magic=int32s(),
    crc=int32s(),
    flag=int32s(),
    body=st.binary(max_size=50),
    properties=st.binary(max_size=50),
)
def test_the_prefix_of_a_batch_entry_is_that_of_the_declaration(
    magic: int, crc: int, flag: int, body: bytes, properties: bytes
) -> None:
    values = {
        "magic": magic,
        "body_crc": crc,
        "flag": flag,
        "body": body,
        "properties": properties,
    }
    data = BatchEntry.build(values)
    derived = fixed_prefix_of(BatchEntry)
    prefix = (len(data), magic, crc, flag, len(body))
    assert derived.size == 20
    assert derived.unpack_from(data) == prefix
    assert derived.pack(*prefix) == data[:20]


def test_limits_are_those_of_the_original() -> None:
    assert FRAME_BYTES_MAX == 16_777_216
    assert HEADER_BYTES_MAX == HEADER_LENGTH_MASK == 16_777_215
    assert SERIALIZATION_SHIFT == 24


# --- whole frames ---------------------------------------------------------------------------


def text_of(data: bytes) -> str | None:
    """Return what bytes of the binary serialization say."""
    return data.decode() if data else None


def said_by(frame: bytes) -> dict[str, Any]:
    """Return what a frame says, read with the declarations and the standard library alone."""
    parsed = Frame.parse(frame)
    assert 4 + parsed.length == len(frame)
    said: dict[str, Any] = {
        "serialization": Serialization(parsed.mark.serialization),
        "body": parsed.body or None,
    }
    if said["serialization"] is Serialization.JSON:
        members: dict[str, Any] = json.loads(parsed.header)
        assert members.pop("serializeTypeCurrentRPC") == "JSON"
        ext = members.pop("extFields", None)
        return said | {"remark": None} | members | {"ext": ext or {}, "has_ext": ext is not None}
    header = BinaryHeader.parse(parsed.header)
    ext = {text_of(entry.key.text): text_of(entry.value.text) for entry in header.ext}
    return said | {
        "code": header.code,
        "flag": header.flag,
        "opaque": header.opaque,
        "version": header.version,
        "language": header.language,
        "remark": text_of(header.remark),
        "ext": ext,
        "has_ext": bool(ext),
    }


def said_as_command(command: Command) -> dict[str, Any]:
    """Return what a decoded command says, in the words of `said_by`."""
    language = command.language
    assert language is not None
    return {
        "serialization": command.serialization,
        "body": command.body,
        "code": command.code,
        "flag": command.flag,
        "opaque": command.opaque,
        "version": command.version,
        "language": language.name if command.serialization is Serialization.JSON else language,
        "remark": command.remark,
        "ext": command.ext_fields,
        "has_ext": command.has_ext_fields,
    }


def decoded(frame: bytes) -> Command:
    commands, error, held_bytes = receive(frame)
    assert error is None
    assert held_bytes == 0
    (command,) = commands
    return command


def build(drawn: Parts) -> bytes:
    """Write a frame with the declarations and the standard library alone."""
    if drawn.serialization is Serialization.JSON:
        members = {
            "code": drawn.code,
            "extFields": drawn.ext,
            "flag": drawn.flag,
            "language": drawn.language.name,
            "opaque": drawn.opaque,
            "remark": drawn.remark,
            "version": drawn.version,
        }
        header = json.dumps(members).encode()
    else:
        header = BinaryHeader.build(
            {
                "code": drawn.code,
                "language": drawn.language,
                "version": drawn.version,
                "opaque": drawn.opaque,
                "flag": drawn.flag,
                "remark": (drawn.remark or "").encode(),
                "ext": [
                    {"key": {"text": name.encode()}, "value": {"text": text.encode()}}
                    for name, text in drawn.ext.items()
                ],
            }
        )
    mark = {"serialization": drawn.serialization, "header_length": len(header)}
    return Frame.build({"mark": mark, "header": header, "body": drawn.body})


@serializations
@examples
@given(data=st.data())
def test_the_declaration_reads_what_we_write(
    serialization: Serialization, data: st.DataObject
) -> None:
    drawn = data.draw(parts(serialization))
    frame = drawn.encode()
    said = said_by(frame)
    assert said == said_as_command(decoded(frame))
    assert said["ext"] == drawn.ext
    assert list(said["ext"]) == list(drawn.ext)
    assert (said["code"], said["flag"], said["opaque"]) == (drawn.code, drawn.flag, drawn.opaque)
    assert (said["remark"], said["body"] or b"") == (drawn.remark, drawn.body)


@serializations
@examples
@given(data=st.data())
def test_we_read_what_the_declaration_writes(
    serialization: Serialization, data: st.DataObject
) -> None:
    drawn = data.draw(parts(serialization))
    command = decoded(build(drawn))
    assert command.serialization is serialization
    assert command.ext_fields == drawn.ext
    assert list(command.ext_fields) == list(drawn.ext)
    assert command.body == (drawn.body or None)
    read = (command.code, command.flag, command.opaque, command.version)
    assert read == (drawn.code, drawn.flag, drawn.opaque, drawn.version)
    assert (command.language, command.remark) == (drawn.language, drawn.remark)


@examples
@given(parts(Serialization.ROCKETMQ))
def test_binary_frames_are_written_as_the_declaration_writes_them(drawn: Parts) -> None:
    assert drawn.encode() == build(drawn)


@runs
def test_captured_frames_say_the_same_to_the_declaration_and_to_the_decoder(run: str) -> None:
    for frame in captured(run):
        assert said_by(frame.frame) == said_as_command(decoded(frame.frame))


def test_captured_frames_are_of_both_serializations() -> None:
    said = [Frame.parse(frame.frame).mark.serialization for frame in all_captured()]
    assert (len(said), sum(said)) == (1002, 39)
