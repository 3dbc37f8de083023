"""Messages as lines of JSON: what `rmq consume --json` prints and `rmq produce --json` takes.

    {"body":"good morning","tag":"new","keys":["k1"],"properties":{"region":"north"}}

A body that is no text stands in `body_base64` instead. Lines that were consumed can be produced
again: what only a broker can say of a message (`message_id`, `queue_offset` ...) is accepted and
ignored. A name that is not known is refused, as it is likely misspelt.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

import msgspec

from rmq.client.core.messages import RESERVED, Message
from rmq.errors import IllegalMessageError

if TYPE_CHECKING:
    from rmq.client.core.received import ReceivedMessage


class MessageLine(
    msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, frozen=True
):
    """One message. Everything is optional but a body."""

    topic: str | None = None
    body: str | None = None
    body_base64: str | None = None
    body_error: str | None = None
    """Why `body_base64` is not what was sent, but the bytes that are stored."""
    tag: str | None = None
    keys: tuple[str, ...] | str = ()
    delay_level: int | None = None
    properties: dict[str, str] = {}
    """The application's own."""
    flag: int = 0

    # What brokers and clients add.
    message_id: str | None = None
    broker: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    stored_at_ms: int | None = None
    store_host: str | None = None
    born_at_ms: int | None = None
    born_host: str | None = None
    reconsume_times: int | None = None
    offset_message_id: str | None = None
    physical_offset: int | None = None
    prepared_offset: int | None = None
    stored_bytes: int | None = None
    sys_flag: int | None = None
    system_properties: dict[str, str] = {}


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(MessageLine)


def encode_line(message: ReceivedMessage) -> bytes:
    """Return a message that was received as one line, without its end."""
    body: dict[str, Any] = {}
    error = message.body_error
    if error is not None:
        body = {"body_base64": _base64(message.raw_body), "body_error": error.reason}
    else:
        try:
            body = {"body": message.body.decode()}
        except UnicodeDecodeError:
            body = {"body_base64": _base64(message.body)}
    own = {name: value for name, value in message.properties.items() if name not in RESERVED}
    system = {name: value for name, value in message.properties.items() if name in RESERVED}
    return _encode(
        MessageLine(
            topic=message.topic,
            **body,
            tag=message.tag,
            keys=message.keys,
            delay_level=message.delay_level or None,
            properties=own,
            flag=message.flag,
            message_id=message.message_id,
            broker=message.queue.broker_name,
            queue_id=message.queue.queue_id,
            queue_offset=message.queue_offset,
            stored_at_ms=message.stored_at_ms,
            store_host=message.store_host,
            born_at_ms=message.born_at_ms,
            born_host=message.born_host,
            reconsume_times=message.reconsume_times,
            offset_message_id=message.offset_message_id,
            physical_offset=message.physical_offset,
            prepared_offset=message.prepared_offset,
            stored_bytes=message.stored_bytes,
            sys_flag=message.sys_flag,
            system_properties=system,
        )
    )


def decode_line(
    line: bytes, topic: str, *, tag: str | None, keys: tuple[str, ...], delay_level: int
) -> Message:
    """Return the message in a line; raise `IllegalMessageError`.

    It goes to `topic`, whatever the line says. The other arguments are for lines that do not say.
    """
    try:
        told = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise IllegalMessageError(f"it is no message in JSON: {exc}") from None
    return Message(
        topic,
        _body(told),
        tag=told.tag if told.tag is not None else tag,
        keys=_keys(told) or keys,
        delay_level=told.delay_level if told.delay_level is not None else delay_level,
        properties=told.properties,
        flag=told.flag,
    )


def _body(told: MessageLine) -> bytes:
    if (told.body is None) == (told.body_base64 is None):
        raise IllegalMessageError("it must have one of body and body_base64")
    if told.body is not None:
        return told.body.encode("utf-8", "replace")
    assert told.body_base64 is not None
    try:
        return base64.b64decode(told.body_base64, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise IllegalMessageError(f"body_base64 is not Base64: {exc}") from None


def _keys(told: MessageLine) -> tuple[str, ...]:
    return tuple(told.keys.split()) if isinstance(told.keys, str) else told.keys


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
