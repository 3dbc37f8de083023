"""Message traces: what clients write of each message they send or consume, as text. Pure.

Producers and consumers tell a `Tracer` the outcome of each message. It is handed to them when they
are opened; its methods are called in the event loop, on the path of every message: they take a note
and return at once, and never raise. Whether an event is worth a trace (regions, brokers with
tracing off, failed sends) is for the tracer to decide.

A trace message holds records, each ended by character 2; the fields of a record are separated by
character 1. Stock tools and consoles read them, so fields and their order are those of 4.9.8:

    Pub             time, region, group, topic, id, tag, keys, broker, bytes, ms, kind, place, ok
    SubBefore       time, region, group, request, id, retries, keys
    SubAfter        request, id, ms, ok, keys, code, time, group
    EndTransaction  time, region, group, topic, id, tag, keys, broker, kind, transaction, state,
                    from check

What is not there is written as `null`, as Java does; a tag of that name reads back as none. The
keys of the trace message are the ids and keys of all messages in it, so that it is found by them.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from rmq.client.core.messages import SendResult, TransactionState
from rmq.errors import RmqError
from rmq.model.properties import KEY_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rmq.client.core.received import ReceivedMessage

# --- what a tracer is told ----------------------------------------------------------------------


class MessageKind(enum.IntEnum):
    """What kind of message was sent, numbered as traces number it."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAYED = 3


class ConsumeCode(enum.IntEnum):
    """How a listener ended, numbered as traces number it."""

    SUCCESS = 0
    TIMED_OUT = 1
    RAISED = 2
    NONSENSE = 3
    """It returned what is no result (stock clients: null)."""
    LATER = 4


class Sent(msgspec.Struct, frozen=True):
    """A send is over, well or not. One-way sends are not traced: their outcome is not known.

    A batch is one event: `message_id` holds all ids joined by commas, tag and keys are none.
    """

    group: str
    topic: str
    message_id: str
    """The unique key."""
    tag: str | None
    keys: tuple[str, ...]
    address: str
    """The broker that was tried last; empty if none was found."""
    body_bytes: int
    """As sent: after compression."""
    kind: MessageKind
    started_at_ms: int
    """Wall clock."""
    took_ms: int
    outcome: SendResult | RmqError


class TransactionEnded(msgspec.Struct, frozen=True):
    """A producer told a broker the outcome of a transaction."""

    group: str
    topic: str
    message_id: str
    tag: str | None
    keys: tuple[str, ...]
    address: str
    transaction_id: str
    state: TransactionState
    is_from_check: bool
    """Whether the broker had asked."""
    ended_at_ms: int


class Tracer(Protocol):
    """Records events of messages."""

    def sent(self, event: Sent) -> None:
        """A message was sent, or could not be."""

    def transaction_ended(self, event: TransactionEnded) -> None:
        """A transaction was committed or rolled back, or its state is unknown."""

    def consuming(
        self, group: str, messages: Sequence[ReceivedMessage], *, started_at_ms: int
    ) -> str:
        """A listener is about to get these; return an id that connects this with the outcome."""

    def consumed(
        self,
        group: str,
        messages: Sequence[ReceivedMessage],
        *,
        request_id: str,
        ended_at_ms: int,
        took_ms: int,
        code: ConsumeCode,
    ) -> None:
        """The listener is done with these; `request_id` is what `consuming` returned."""


# --- records ------------------------------------------------------------------------------------

FIELD: Final = "\x01"
RECORD: Final = "\x02"
NOTHING: Final = "null"
DEFAULT_REGION: Final = "DefaultRegion"


class SendTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A message was sent (`Pub`)."""

    time_ms: int
    """When it was handed to the producer."""
    region: str | None = DEFAULT_REGION
    group: str
    topic: str
    message_id: str
    """The unique keys of a batch, joined by commas."""
    tag: str | None = None
    keys: tuple[str, ...] = ()
    store_host: str
    """The broker that it was sent to."""
    body_bytes: int
    took_ms: int
    kind: MessageKind = MessageKind.NORMAL
    offset_message_id: str | None = None
    is_ok: bool = True


class ConsumeStartTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A listener is about to get a message (`SubBefore`)."""

    time_ms: int
    region: str | None = None
    group: str
    request_id: str
    """What goes with the trace of how it ended."""
    message_id: str
    retries: int = 0
    keys: tuple[str, ...] = ()


class ConsumeEndTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A listener is done with a message (`SubAfter`)."""

    request_id: str
    message_id: str
    took_ms: int
    is_ok: bool
    keys: tuple[str, ...] = ()
    code: ConsumeCode = ConsumeCode.SUCCESS
    time_ms: int = 0
    """0 in traces of clients that did not tell it yet."""
    group: str = ""


class TransactionTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A producer told the outcome of a transaction (`EndTransaction`)."""

    time_ms: int
    region: str | None = DEFAULT_REGION
    group: str
    topic: str
    message_id: str
    tag: str | None = None
    keys: tuple[str, ...] = ()
    store_host: str
    kind: MessageKind = MessageKind.COMMIT
    transaction_id: str | None = None
    state: TransactionState
    is_from_check: bool = False


Trace: TypeAlias = SendTrace | ConsumeStartTrace | ConsumeEndTrace | TransactionTrace


# --- writing ----------------------------------------------------------------------------------


def encode_trace(trace: Trace) -> str:
    """Return a trace as one record."""
    fields: tuple[object, ...]
    match trace:
        case SendTrace():
            fields = (
                "Pub",
                trace.time_ms,
                trace.region,
                trace.group,
                trace.topic,
                trace.message_id,
                trace.tag,
                KEY_SEPARATOR.join(trace.keys),
                trace.store_host,
                trace.body_bytes,
                trace.took_ms,
                trace.kind.value,
                trace.offset_message_id,
                trace.is_ok,
            )
        case ConsumeStartTrace():
            fields = (
                "SubBefore",
                trace.time_ms,
                trace.region,
                trace.group,
                trace.request_id,
                trace.message_id,
                trace.retries,
                KEY_SEPARATOR.join(trace.keys),
            )
        case ConsumeEndTrace():
            fields = (
                "SubAfter",
                trace.request_id,
                trace.message_id,
                trace.took_ms,
                trace.is_ok,
                KEY_SEPARATOR.join(trace.keys),
                trace.code.value,
                trace.time_ms,
                trace.group,
            )
        case TransactionTrace():
            fields = (
                "EndTransaction",
                trace.time_ms,
                trace.region,
                trace.group,
                trace.topic,
                trace.message_id,
                trace.tag,
                KEY_SEPARATOR.join(trace.keys),
                trace.store_host,
                trace.kind.value,
                trace.transaction_id,
                trace.state.java_name,
                trace.is_from_check,
            )
    return FIELD.join(map(_text, fields)) + RECORD


def trace_keys(trace: Trace) -> tuple[str, ...]:
    """Return the keys by which the message with this trace is to be found."""
    return (*trace.message_id.split(","), *trace.keys)


def _text(value: object) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    if value is None or value == "":
        # Java drops empty fields at the end of a record, and then misses them.
        return NOTHING
    return str(value)


# --- reading ----------------------------------------------------------------------------------


def decode_traces(data: bytes) -> list[Trace]:
    """Return the traces in the body of a trace message.

    Kinds that are not known, and records that make no sense, are left out: every client may
    write to the topic.
    """
    traces: list[Trace] = []
    for record in data.decode("utf-8", "replace").split(RECORD):
        name, *fields = record.split(FIELD)
        read = _READERS.get(name)
        if read is None:
            continue
        try:
            traces.append(read(fields))
        except (ValueError, LookupError):
            continue
    return traces


def _read_send(fields: Sequence[str]) -> SendTrace:
    # Records of the oldest clients do not tell the place, and of still older ones no outcome.
    place = fields[11] if len(fields) > 12 else NOTHING
    is_ok = fields[min(len(fields) - 1, 12)] if len(fields) > 11 else "true"
    return SendTrace(
        time_ms=int(fields[0]),
        region=_optional(fields[1]),
        group=fields[2],
        topic=fields[3],
        message_id=fields[4],
        tag=_optional(fields[5]),
        keys=_keys(fields[6]),
        store_host=fields[7],
        body_bytes=int(fields[8]),
        took_ms=int(fields[9]),
        kind=MessageKind(int(fields[10])),
        offset_message_id=_optional(place),
        is_ok=_is_true(is_ok),
    )


def _read_start(fields: Sequence[str]) -> ConsumeStartTrace:
    return ConsumeStartTrace(
        time_ms=int(fields[0]),
        region=_optional(fields[1]),
        group=fields[2],
        request_id=fields[3],
        message_id=fields[4],
        retries=int(fields[5]),
        keys=_keys(fields[6]) if len(fields) > 6 else (),
    )


def _read_end(fields: Sequence[str]) -> ConsumeEndTrace:
    return ConsumeEndTrace(
        request_id=fields[0],
        message_id=fields[1],
        took_ms=int(fields[2]),
        is_ok=_is_true(fields[3]),
        keys=_keys(fields[4]),
        code=ConsumeCode(int(fields[5])) if len(fields) > 5 else ConsumeCode.SUCCESS,
        time_ms=int(fields[6]) if len(fields) > 7 else 0,
        group=fields[7] if len(fields) > 7 else "",
    )


def _read_transaction(fields: Sequence[str]) -> TransactionTrace:
    return TransactionTrace(
        time_ms=int(fields[0]),
        region=_optional(fields[1]),
        group=fields[2],
        topic=fields[3],
        message_id=fields[4],
        tag=_optional(fields[5]),
        keys=_keys(fields[6]),
        store_host=fields[7],
        kind=MessageKind(int(fields[8])),
        transaction_id=_optional(fields[9]),
        state=_STATES[fields[10]],
        is_from_check=_is_true(fields[11]),
    )


_READERS: Final[dict[str, Callable[[Sequence[str]], Trace]]] = {
    "Pub": _read_send,
    "SubBefore": _read_start,
    "SubAfter": _read_end,
    "EndTransaction": _read_transaction,
}
_STATES: Final = {state.java_name: state for state in TransactionState}


def _optional(field: str) -> str | None:
    return None if field in ("", NOTHING) else field


def _keys(field: str) -> tuple[str, ...]:
    return tuple(key for key in (_optional(field) or "").split(KEY_SEPARATOR) if key)


def _is_true(field: str) -> bool:
    return field.lower() == "true"


# --- messages of traces -----------------------------------------------------------------------

BODY_BYTES_MAX: Final = 118_000
"""When so much is together, it is sent. A record is never cut, so a message may be longer."""
KEYS_BYTES_MAX: Final = 30_000
"""Likewise for keys, which must fit into the properties of a message with the rest of them."""


class TraceBatch(NamedTuple):
    """What one trace message holds."""

    body: bytes
    keys: tuple[str, ...]
    records: int


def trace_batches(traces: Iterable[Trace]) -> Iterator[TraceBatch]:
    """Put traces together into as few messages as may be."""
    records: list[bytes] = []
    body_bytes = keys_bytes = 0
    keys: dict[str, None] = {}
    for trace in traces:
        record = encode_trace(trace).encode("utf-8", "replace")
        fresh = [key for key in trace_keys(trace) if key and key not in keys]
        fresh_bytes = sum(len(key.encode("utf-8", "replace")) + 1 for key in fresh)
        if records and (
            body_bytes + len(record) > BODY_BYTES_MAX or keys_bytes + fresh_bytes > KEYS_BYTES_MAX
        ):
            yield TraceBatch(b"".join(records), tuple(keys), len(records))
            records, keys, body_bytes, keys_bytes = [], {}, 0, 0
            fresh = [key for key in trace_keys(trace) if key]
        records.append(record)
        body_bytes += len(record)
        for key in fresh:
            size = len(key.encode("utf-8", "replace")) + 1
            # The trace of a huge batch is found by its first messages only.
            if keys_bytes + size <= KEYS_BYTES_MAX and key not in keys:
                keys[key] = None
                keys_bytes += size
    if records:
        yield TraceBatch(b"".join(records), tuple(keys), len(records))
