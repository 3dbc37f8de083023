"""One remoting command: a decoded frame, and the encoding of frames.

`Command` is a received command. Its header fields are kept undecoded until they are asked for,
because most handlers want one typed header and nothing else. Frames to send are encoded straight
from their parts (`encode_frame`), without building a command first.

No I/O here; `rmq.remoting.frame` cuts the byte stream into frames.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeVar, final

import msgspec

from rmq.errors import LocalProtocolError, MalformedJsonError, RemoteProtocolError
from rmq.model import fastjson
from rmq.remoting import header as header_codec
from rmq.remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE, VERSION, LanguageCode, Serialization
from rmq.remoting.header import Int32
from rmq.remoting.layout import (
    BINARY_HEADER_PREFIX,
    EXT_KEY_LENGTH,
    EXT_LENGTH,
    EXT_VALUE_LENGTH,
    FRAME_BYTES_MAX,
    FRAME_PREFIX,
    HEADER_BYTES_MAX,
    SERIALIZATION_SHIFT,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rmq.remoting.header import Header

H = TypeVar("H", bound="Header")

_NO_EXT: Final = msgspec.Raw(b"")
_LANGUAGE_BY_NUMBER: Final = {int(language): language for language in LanguageCode}
_LANGUAGE_BY_NAME: Final = {language.name: language for language in LanguageCode}


class Command(msgspec.Struct, gc=False):
    """A decoded frame. Missing members have the defaults of the original (language JAVA, numbers
    0).
    """

    code: Int32 = 0
    flag: Int32 = 0
    opaque: Int32 = 0
    version: Int32 = 0
    remark: str | None = None
    language_sent: str | int | None = msgspec.field(default="JAVA", name="language")
    json_ext: msgspec.Raw = msgspec.field(default=_NO_EXT, name="extFields")
    # The rest is not in the JSON header, and a peer that sends members of these names must not set
    # them: a guard would see other fields than the handler. `hide` undoes it.
    body: bytes | None = msgspec.field(default=None, name="~body")
    binary_ext: dict[str, str] | None = msgspec.field(default=None, name="~binaryExt")
    serialization: Serialization = msgspec.field(default=Serialization.JSON, name="~serialization")
    raw_header: bytes | None = msgspec.field(default=None, name="~rawHeader")
    """The JSON header as it came, if a `whole_header_decoder` read it: `json_ext` is typed then."""

    def hide(self) -> None:
        """Undo what a header may have said of members that are not its own."""
        self.body = None
        self.binary_ext = None
        self.serialization = Serialization.JSON
        self.raw_header = None

    @property
    def is_response(self) -> bool:
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & FLAG_ONEWAY)

    @property
    def language(self) -> LanguageCode | None:
        """The sender's language; None for one that 4.9.8 does not know."""
        sent = self.language_sent
        if isinstance(sent, str):
            return _LANGUAGE_BY_NAME.get(sent)
        return None if sent is None else _LANGUAGE_BY_NUMBER.get(sent)

    @property
    def has_ext_fields(self) -> bool:
        """Whether `extFields` was sent at all, be it empty (the binary header cannot tell the two
        apart).
        """
        if self.serialization is Serialization.JSON:
            return bytes(self._json_ext) not in (b"", b"null")
        return bool(self.binary_ext)

    @property
    def ext_fields(self) -> dict[str, str]:
        """Every header field as sent, known to us or not, in the order sent."""
        if self.binary_ext is not None:
            return self.binary_ext
        try:
            if self.raw_header is not None:
                # One pass over what was read as a typed header before.
                return _decode_fields_only(self.raw_header).fields
            ext = self.json_ext
            return _decode_fields(ext) if ext else {}
        except header_codec.READ_ERRORS:
            return header_codec.read_leniently(self._json_ext, "extFields")

    def header(self, header_class: type[H]) -> H:
        """Read the typed header; raise `HeaderError` naming a missing or malformed field."""
        typed: object = self.json_ext
        if isinstance(typed, header_class):
            return typed
        if self.binary_ext is not None:
            return header_codec.read_map(header_class, self.binary_ext)
        return header_codec.read_json(header_class, self._json_ext)

    @property
    def _json_ext(self) -> msgspec.Raw:
        if self.raw_header is None:
            return self.json_ext
        return decode_json_header(self.raw_header).json_ext


def decode_header(header: bytes, serialization: int) -> Command:
    """Decode the header of one frame; raise `RemoteProtocolError` when it cannot be read at all."""
    if not serialization:
        try:
            command = decode_json_header(header)
        except header_codec.READ_ERRORS:
            return _decode_json_tolerantly(header)
        command.hide()
        return command
    if serialization == Serialization.ROCKETMQ:
        return _decode_binary(header)
    raise RemoteProtocolError(f"unknown header serialization {serialization}")


def whole_header_decoder(header_class: type[Header]) -> Callable[[bytes], Command]:
    """Return a reader of JSON headers that reads `extFields` as `header_class` in the same pass.

    Its commands have the typed header in `json_ext`. Reading in two passes, first the command and
    then the header, takes a third longer; but one has to know beforehand what is coming.
    """
    command_class = msgspec.defstruct(
        f"{header_class.__name__}Command",
        [("json_ext", header_class, msgspec.field(name="extFields"))],
        bases=(Command,),
        kw_only=True,
        gc=False,
    )
    decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(command_class, strict=False)
    return decoder.decode


def encode_frame(
    *,
    code: int,
    flag: int = 0,
    opaque: int = 0,
    header: Header | None = None,
    extra: Mapping[str, str] | None = None,
    remark: str | None = None,
    body_length: int = 0,
    serialization: Serialization = Serialization.JSON,
    language: LanguageCode = LanguageCode.PYTHON,
    version: int = VERSION,
    frame_bytes_max: int = FRAME_BYTES_MAX,
) -> bytes:
    """Return everything of a frame before its body, which the caller sends right behind it.

    `extra` adds header fields that no class declares. A frame that the peer would refuse for its
    size is refused here, before any of it is sent.
    """
    if header is not None:
        header = header_codec.as_java_sends(header)
    if serialization is Serialization.JSON:
        ext = None
        if extra:
            fields = dict(extra) if header is None else header_codec.ext_fields_of(header, extra)
            ext = encode_json({_java_text(name): _java_text(fields[name]) for name in fields})
        elif header is not None:
            ext = header_codec.json_ext_of(header)
        encoded = _json_header(code, flag, opaque, ext, remark, language.name, version)
    else:
        entries = b""
        if header is not None:
            entries = header_codec.binary_ext_of(header, extra)
        elif extra:
            entries = header_codec.binary_ext(extra)
        encoded = _binary_header(code, flag, opaque, entries, remark, language, version)
    return _prefix(len(encoded), body_length, serialization, frame_bytes_max) + encoded


_HEAD: Final = b'{"code":%d,"extFields":'
_REMARKS_KEPT: Final = 64
_REMARK_CHARS_KEPT: Final = 64


class FrameEncoder:
    """Encodes the frames of one endpoint; what never changes is worked out beforehand."""

    __slots__ = (
        "_bare_response",
        "_remarked",
        "_request_writers",
        "_tail",
        "frame_bytes_max",
        "language",
        "response_writers",
        "version",
    )

    def __init__(
        self,
        *,
        language: LanguageCode = LanguageCode.PYTHON,
        version: int = VERSION,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        self.language = language
        self.version = version
        self.frame_bytes_max = frame_bytes_max
        self._tail = (
            b',"flag":%d,"language":"%b","opaque":%%d' % (FLAG_RESPONSE, language.name.encode()),
            b',"serializeTypeCurrentRPC":"JSON","version":%d}' % version,
        )
        tail = b"".join(self._tail)
        self._bare_response = b'{"code":%d' + tail
        self.response_writers = header_codec.JsonWriters(_HEAD, tail)
        """Functions (header, code, opaque) that write the JSON header of a response, by class."""
        self._request_writers = header_codec.JsonWriters(
            _HEAD,
            b',"flag":0,"language":"%b","opaque":%%d%b' % (language.name.encode(), self._tail[1]),
        )
        self._remarked: dict[str, header_codec.JsonWriters] = {}
        """The same for responses with a remark, by remark: there are few that come often."""

    def request(
        self,
        opaque: int,
        code: int,
        header: Header | None,
        body_length: int,
        serialization: Serialization = Serialization.JSON,
        remark: str | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return everything of a request before its body."""
        if (
            header is not None
            and remark is None
            and extra is None
            and serialization is Serialization.JSON
        ):
            # What nearly every request is; `frame` would give the same bytes, more slowly.
            try:
                encoded = self._request_writers[type(header)](header, code, opaque)
            except UnicodeEncodeError:
                plain = header_codec.as_java_sends(header)
                return self.request(opaque, code, plain, body_length)
            header_length = len(encoded)
            length = 4 + header_length + body_length
            if length + 4 > self.frame_bytes_max or header_length > HEADER_BYTES_MAX:
                raise _too_large(header_length, body_length, self.frame_bytes_max)
            return _pack_prefix(length, header_length) + encoded
        return self.frame(
            code=code,
            opaque=opaque,
            header=header,
            extra=extra,
            remark=remark,
            body_length=body_length,
            serialization=serialization,
        )

    def template(
        self,
        code: int,
        header: Header,
        varying: Sequence[str],
        read_answer: Callable[[bytes], Command] | None = None,
    ) -> FrameTemplate:
        """Return what writes requests that differ in the fields `varying` only.

        `read_answer` is a `whole_header_decoder` of their answers.
        """
        return FrameTemplate(self, self._request_writers, code, header, varying, read_answer)

    def response(
        self,
        opaque: int,
        code: int,
        header: Header | None,
        body_length: int,
        serialization: Serialization = Serialization.JSON,
        remark: str | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return everything of a response before its body."""
        said = remark
        writers = self.response_writers
        if remark is not None and header is not None:
            found = self._remarked.get(remark)
            if found is None:
                found = self._writers_with(remark)
            if found is not None:
                writers, remark = found, None
        if remark is not None or extra or serialization is not Serialization.JSON:
            return self.frame(
                code=code,
                flag=FLAG_RESPONSE,
                opaque=opaque,
                header=header,
                extra=extra,
                remark=said,
                body_length=body_length,
                serialization=serialization,
            )
        # What nearly every answer is; `frame` would give the same bytes, more slowly.
        if header is None:
            encoded = self._bare_response % (code, opaque)
        else:
            try:
                encoded = writers[type(header)](header, code, opaque)
            except UnicodeEncodeError:
                plain = header_codec.as_java_sends(header)
                return self.response(opaque, code, plain, body_length, remark=said)
        header_length = len(encoded)
        length = 4 + header_length + body_length
        if length + 4 > self.frame_bytes_max or header_length > HEADER_BYTES_MAX:
            raise _too_large(header_length, body_length, self.frame_bytes_max)
        return _pack_prefix(length, header_length) + encoded

    def _writers_with(self, remark: str) -> header_codec.JsonWriters | None:
        """Return the writers of responses with a remark, None for one that is not to be kept.

        What comes often is the name of a status, FOUND say; sentences name topics and groups.
        """
        if (
            len(self._remarked) >= _REMARKS_KEPT
            or len(remark) > _REMARK_CHARS_KEPT
            or not (remark.isascii() and remark.isidentifier())
        ):
            return None
        tail = b'%b,"remark":"%b"%b' % (self._tail[0], remark.encode(), self._tail[1])
        writers = self._remarked[remark] = header_codec.JsonWriters(_HEAD, tail)
        return writers

    def frame(
        self,
        *,
        code: int,
        flag: int = 0,
        opaque: int = 0,
        header: Header | None = None,
        extra: Mapping[str, str] | None = None,
        remark: str | None = None,
        body_length: int = 0,
        serialization: Serialization = Serialization.JSON,
    ) -> bytes:
        """Return everything of any frame before its body."""
        return encode_frame(
            code=code,
            flag=flag,
            opaque=opaque,
            header=header,
            extra=extra,
            remark=remark,
            body_length=body_length,
            serialization=serialization,
            language=self.language,
            version=self.version,
            frame_bytes_max=self.frame_bytes_max,
        )


@final
class FrameTemplate:
    """Writes requests that are alike: half the work for what is sent thousands of times."""

    __slots__ = (
        "_encoder",
        "_frame_bytes_max",
        "_header",
        "_varying",
        "_write",
        "code",
        "read_answer",
    )

    def __init__(
        self,
        encoder: FrameEncoder,
        writers: header_codec.JsonWriters,
        code: int,
        header: Header,
        varying: Sequence[str],
        read_answer: Callable[[bytes], Command] | None,
    ) -> None:
        self.code = code
        self.read_answer = read_answer
        self._encoder = encoder
        self._header = header_codec.as_java_sends(header)
        self._varying = tuple(varying)
        self._write = writers.fill(self._header, self._varying)
        self._frame_bytes_max = encoder.frame_bytes_max

    def frame(self, opaque: int, body_length: int, values: tuple[str | int, ...]) -> bytes:
        """Return everything of a request before its body, as `FrameEncoder.request` would."""
        try:
            encoded = self._write(self.code, opaque, *values)
        except UnicodeEncodeError:
            changes = dict(zip(self._varying, values, strict=True))
            header = msgspec.structs.replace(self._header, **changes)
            return self._encoder.request(opaque, self.code, header, body_length)
        header_length = len(encoded)
        length = 4 + header_length + body_length
        if length + 4 > self._frame_bytes_max or header_length > HEADER_BYTES_MAX:
            raise _too_large(header_length, body_length, self._frame_bytes_max)
        return _pack_prefix(length, header_length) + encoded


def encode_command(command: Command) -> bytes:
    """Return the whole frame of a decoded command, fields in the order they were sent."""
    fields = command.ext_fields if command.has_ext_fields else None
    if command.serialization is Serialization.JSON:
        ext = None if fields is None else encode_json(fields)
        language = command.language
        encoded = _json_header(
            command.code,
            command.flag,
            command.opaque,
            ext,
            command.remark,
            None if language is None else language.name,
            command.version,
        )
    else:
        encoded = _binary_header(
            command.code,
            command.flag,
            command.opaque,
            header_codec.binary_ext(fields or {}),
            command.remark,
            # An unknown language has no number to write; OTHER says as much.
            LanguageCode.OTHER if command.language is None else command.language,
            command.version,
        )
    body = command.body or b""
    return _prefix(len(encoded), len(body), command.serialization, FRAME_BYTES_MAX) + encoded + body


class _FieldsOnly(msgspec.Struct, gc=False):
    """A JSON header of which nothing but the fields is read."""

    fields: dict[str, str] = msgspec.field(default_factory=dict, name="extFields")


_decode_fields = msgspec.json.Decoder(dict[str, str]).decode
_decode_fields_only = msgspec.json.Decoder(_FieldsOnly).decode
encode_json = msgspec.json.Encoder().encode
_pack_prefix = FRAME_PREFIX.pack
decode_json_header = msgspec.json.Decoder(Command, strict=False).decode


def _prefix(
    header_length: int, body_length: int, serialization: Serialization, frame_bytes_max: int
) -> bytes:
    length = 4 + header_length + body_length
    if header_length > HEADER_BYTES_MAX or length + 4 > frame_bytes_max:
        raise _too_large(header_length, body_length, frame_bytes_max)
    return _pack_prefix(length, serialization << SERIALIZATION_SHIFT | header_length)


def _too_large(header_length: int, body_length: int, frame_bytes_max: int) -> LocalProtocolError:
    if header_length > HEADER_BYTES_MAX:
        return LocalProtocolError(
            f"a frame with header {header_length} bytes long is over the limit of"
            f" {HEADER_BYTES_MAX} for headers"
        )
    return LocalProtocolError(
        f"a frame of {8 + header_length + body_length} bytes (header {header_length},"
        f" body {body_length}) is over the limit of {frame_bytes_max}, the peer would refuse it"
    )


def _json_header(
    code: int,
    flag: int,
    opaque: int,
    ext: bytes | None,
    remark: str | None,
    language: str | None,
    version: int,
) -> bytes:
    # Members in alphabetical order, null ones left out: what fastjson writes for the original.
    return (
        b'{"code":%d,%b"flag":%d,%b"opaque":%d,%b"serializeTypeCurrentRPC":"JSON","version":%d}'
        % (
            code,
            b"" if ext is None else b'"extFields":%b,' % ext,
            flag,
            b"" if language is None else b'"language":"%b",' % language.encode(),
            opaque,
            b"" if remark is None else b'"remark":%b,' % encode_json(_java_text(remark)),
            version,
        )
    )


def _binary_header(
    code: int,
    flag: int,
    opaque: int,
    ext: bytes,
    remark: str | None,
    language: LanguageCode,
    version: int,
) -> bytes:
    text = (remark or "").encode("utf-8", "replace")
    try:
        prefix = BINARY_HEADER_PREFIX.pack(code, language, version, opaque, flag, len(text))
    except struct.error as exc:
        raise LocalProtocolError(
            f"the binary header has no room for code {code}, version {version}, opaque {opaque}"
            f" or flag {flag}: {exc}"
        ) from exc
    return b"".join((prefix, text, EXT_LENGTH.pack(len(ext)), ext))


_MEMBERS: Final = frozenset(("code", "flag", "opaque", "version", "remark", "language"))


def _decode_json_tolerantly(header: bytes) -> Command:
    """Read what the strict reader refused by the rules of fastjson.

    It reads bytes that are not UTF-8 with replacement characters, takes numbers for strings and the
    reverse, and leaves a member at its default when it is null. A peer that a stock server
    understands must not be cut off.
    """
    if len(header) > header_codec.LENIENT_BYTES_MAX:
        raise RemoteProtocolError(f"malformed JSON header of {len(header)} bytes")
    try:
        members = fastjson.loads(header, slow_bytes_max=header_codec.SLOW_BYTES_MAX)
    except MalformedJsonError as exc:
        raise RemoteProtocolError(f"malformed JSON header: {exc.reason}") from exc
    if not isinstance(members, dict):
        raise RemoteProtocolError("malformed JSON header: not an object")
    known = {name: members[name] for name in _MEMBERS if members.get(name) is not None}
    remark = known.pop("remark", None)
    try:
        command = msgspec.convert(known, Command, strict=False)
    except msgspec.ValidationError as exc:
        raise RemoteProtocolError(f"malformed JSON header: {exc}") from exc
    nested = header_codec.holds_no_reference(header)
    try:
        if remark is not None:
            command.remark = header_codec.lenient_text(remark, nested=nested)
        if members.get("language", "") is None:
            command.language_sent = None
        ext = members.get("extFields")
        if ext is not None:
            fields = header_codec.lenient_fields(ext, nested=nested)
            command.json_ext = msgspec.Raw(encode_json(fields))
    except ValueError as exc:
        raise RemoteProtocolError(f"malformed JSON header: {exc}") from exc
    return command


def _java_text(text: str) -> str:
    """Return a text as Java sends it: half a surrogate pair becomes "?"."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _decode_binary(header: bytes) -> Command:
    try:
        code, language, version, opaque, flag, remark_length = BINARY_HEADER_PREFIX.unpack_from(
            header
        )
        position = BINARY_HEADER_PREFIX.size
        remark, position = _binary_text(header, position, remark_length, len(header))
        (ext_length,) = EXT_LENGTH.unpack_from(header, position)
    except struct.error as exc:
        raise RemoteProtocolError(f"binary header of {len(header)} bytes is cut short") from exc
    position += EXT_LENGTH.size
    fields = _binary_fields(header, position, ext_length) if ext_length > 0 else {}
    return Command(
        code=code,
        flag=flag,
        opaque=opaque,
        version=version,
        remark=remark,
        language_sent=language,
        binary_ext=fields,
        serialization=Serialization.ROCKETMQ,
    )


def _binary_fields(header: bytes, position: int, ext_length: int) -> dict[str, str]:
    end = position + ext_length
    if end > len(header):
        raise RemoteProtocolError(
            f"binary header of {len(header)} bytes declares {ext_length} bytes of fields"
        )
    fields: dict[str, str] = {}
    try:
        while position < end:
            (key_length,) = EXT_KEY_LENGTH.unpack_from(header, position)
            key, position = _binary_text(header, position + EXT_KEY_LENGTH.size, key_length, end)
            (value_length,) = EXT_VALUE_LENGTH.unpack_from(header, position)
            value, position = _binary_text(
                header, position + EXT_VALUE_LENGTH.size, value_length, end
            )
            if key is None:
                continue
            # A key may come twice, the last one counts; an empty value is null, which is absent.
            if value is None:
                fields.pop(key, None)
            else:
                fields[key] = value
    except struct.error as exc:
        raise RemoteProtocolError("binary header fields are cut short") from exc
    return fields


def _binary_text(header: bytes, position: int, length: int, end: int) -> tuple[str | None, int]:
    if length == 0:
        return None, position
    stop = position + length
    if length < 0 or stop > end:
        raise RemoteProtocolError(
            f"binary header declares a text of {length} bytes, {end - position} are left"
        )
    return header[position:stop].decode("utf-8", "replace"), stop
