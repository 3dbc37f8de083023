"""Single messages: `rmq message get`, `find` and `trace`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from rmq.cli.admin.session import Cluster, NothingFoundError, open_cluster, print_found
from rmq.cli.common.message_lines import encode_line
from rmq.cli.common.shown import shown, time_text
from rmq.cli.common.tables import BAD, GOOD, Cell, Column, Styled, print_facts, print_table
from rmq.cli.common.usage import UsageError
from rmq.client.core.admin import messages as flows
from rmq.client.core.admin.tracks import TrackKind, message_traces, message_tracks
from rmq.client.core.messages import RESERVED
from rmq.client.core.trace import (
    ConsumeEndTrace,
    ConsumeStartTrace,
    SendTrace,
    TransactionTrace,
)
from rmq.errors import IllegalMessageError
from rmq.model.names import TRACE_TOPIC
from rmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from argparse import Namespace

    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.trace import Trace

BODY_CHARS_MAX: Final = 4_000
"""How much of a body is shown to people; --json has all of it."""
_WHAT: Final = {
    SendTrace: "sent",
    TransactionTrace: "transaction ended",
    ConsumeStartTrace: "consuming",
    ConsumeEndTrace: "consumed",
}
_STYLES: Final = {TrackKind.CONSUMED: GOOD, TrackKind.NOT_CONSUME_YET: BAD}


# --- get --------------------------------------------------------------------------------------


def get(args: Namespace) -> int:
    """Print one message."""
    with open_cluster(args) as cluster:
        message = find_one(cluster, args.id, args.topic, args.at)
        tracks = cluster.run(message_tracks(cluster.nameservers, message))
    found: dict[str, Any] = message_json(message)
    found["groups"] = [
        {
            "group": track.group,
            "state": track.kind.value.lower(),
            "error": None if track.error is None else str(track.error),
        }
        for track in tracks.tracks
    ]

    def show() -> None:
        print_facts(_facts(message))
        if tracks.tracks:
            print()
            print_table(
                ("GROUP", "STATE", ""),
                [
                    (
                        track.group,
                        Styled(_state(track.kind), _STYLES.get(track.kind, "")),
                        "" if track.error is None else str(track.error),
                    )
                    for track in tracks.tracks
                ],
            )
        print()
        print(body_text(message, BODY_CHARS_MAX))

    return print_found(args, found, show, tracks.failures)


def find_one(
    cluster: Cluster, message_id: str | None, topic: str | None, place: str | None = None
) -> ReceivedMessage:
    """Return the message that options name; raise `NothingFoundError` or `UsageError`."""
    nameservers = cluster.nameservers
    if place is not None:
        if topic is None or message_id is not None:
            raise UsageError("--at is a place in the queues of --topic, instead of an id")
        queue, offset = _place(topic, place)
        found = cluster.run(flows.message_at(nameservers, queue, offset))
        what = f"message at {offset} of queue {queue.queue_id} of {topic} on {queue.broker_name}"
    elif message_id is None:
        raise UsageError("which message? give its id, or --topic and --at")
    else:
        what = f"message {message_id}"
        try:
            if topic is not None:
                found = cluster.run(flows.find_message(nameservers, topic, message_id))
            else:
                found = cluster.run(flows.message_by_id(nameservers, message_id))
        except IllegalMessageError as exc:
            raise UsageError(exc.reason) from None
    if found is None:
        hint = None
        if topic is None:
            hint = "an id that a producer gave needs the topic: --topic"
        raise NothingFoundError(f"there is no {what}", hint=hint)
    return found


def _place(topic: str, text: str) -> tuple[MessageQueue, int]:
    broker, _, rest = text.rpartition(":")[0].rpartition(":")
    offset = text.rpartition(":")[2]
    if not (broker and rest.isdecimal() and offset.isdecimal()):
        raise UsageError(f"--at {text}: write BROKER:QUEUE:OFFSET, such as broker-a:0:4711")
    return MessageQueue(topic=topic, broker_name=broker, queue_id=int(rest)), int(offset)


def message_json(message: ReceivedMessage) -> dict[str, Any]:
    """Return a message as `rmq consume --json` prints it."""
    fields: dict[str, Any] = json.loads(encode_line(message))
    return fields


def _facts(message: ReceivedMessage) -> list[tuple[str, Cell]]:
    queue = message.queue
    own = {name: value for name, value in message.properties.items() if name not in RESERVED}
    return [
        ("id", message.message_id),
        ("id of its place", message.offset_message_id),
        ("topic", message.topic),
        ("place", f"{queue.broker_name}, queue {queue.queue_id}, offset {message.queue_offset}"),
        ("tag", message.tag),
        ("keys", ", ".join(message.keys) or None),
        ("sent", f"{time_text(message.born_at_ms)} by {message.born_host}"),
        ("stored", f"{time_text(message.stored_at_ms)} at {message.store_host}"),
        ("tried", f"{message.reconsume_times} times before"),
        ("properties", ", ".join(f"{name}={value}" for name, value in own.items()) or None),
        ("body", f"{len(message.raw_body):,} bytes" + " compressed" * message.is_compressed),
    ]


def body_text(message: ReceivedMessage, chars_max: int) -> str:
    """Return a body as a terminal can show it, the first part if it is long."""
    error = message.body_error
    if error is not None:
        return f"(cannot be read: {error.reason})"
    try:
        text = message.body.decode()
    except UnicodeDecodeError:
        return f"({len(message.body):,} bytes that are no text)"
    some = text[:chars_max]
    lines = "\n".join(shown(line) for line in some.split("\n"))
    return lines if len(some) == len(text) else f"{lines}..."


def _state(kind: TrackKind) -> str:
    return kind.value.lower().replace("_", " ")


# --- find -------------------------------------------------------------------------------------


def find(args: Namespace) -> int:
    """Print the messages with a key."""
    with open_cluster(args) as cluster:
        found = cluster.run(
            flows.messages_by_key(
                cluster.nameservers,
                args.topic,
                args.key,
                max_messages=args.count,
                from_ms=args.from_ms or 0,
                to_ms=flows.TIME_MAX_MS if args.to_ms is None else args.to_ms,
            )
        )
    messages = found.messages

    def show() -> None:
        print_messages(messages)

    code = print_found(
        args, {"messages": [message_json(each) for each in messages]}, show, found.failures
    )
    if not messages and not found.failures:
        raise NothingFoundError(f"no message of {args.topic} has the key {args.key}")
    return code


def print_messages(messages: tuple[ReceivedMessage, ...] | list[ReceivedMessage]) -> None:
    """Print messages, a line each."""
    print_table(
        ("STORED", "ID", "BROKER", Column("QUEUE", True), Column("OFFSET", True), "TAG"),
        [
            (
                time_text(each.stored_at_ms),
                each.message_id,
                each.queue.broker_name,
                each.queue.queue_id,
                each.queue_offset,
                each.tag,
            )
            for each in messages
        ],
    )


# --- trace ------------------------------------------------------------------------------------


def trace(args: Namespace) -> int:
    """Print what was traced of a message."""
    with open_cluster(args) as cluster:
        found = cluster.run(
            message_traces(
                cluster.nameservers, args.id, trace_topic=args.trace_topic or TRACE_TOPIC
            )
        )
    lines = [_trace_json(trace, host) for trace, host in found.traces]

    def show() -> None:
        print_table(
            ("TIME", "WHAT", "GROUP", "CLIENT", Column("TOOK", True), "RESULT"),
            [
                (
                    time_text(each["time_ms"]) if each["time_ms"] else None,
                    each["what"],
                    each["group"],
                    each["client"],
                    None if each["took_ms"] is None else f"{each['took_ms']} ms",
                    _result(each["is_ok"]),
                )
                for each in lines
            ],
        )

    code = print_found(args, {"id": args.id, "traces": lines}, show, found.failures)
    if not lines and not found.failures:
        raise NothingFoundError(
            f"nothing was traced of message {args.id}",
            hint="clients trace only if told to, and brokers need traceTopicEnable",
        )
    return code


def _trace_json(trace: Trace, host: str) -> dict[str, Any]:
    """Return what one client wrote; None stands for what this kind of trace does not tell."""
    return {
        "what": _WHAT[type(trace)],
        "time_ms": trace.time_ms,
        "group": trace.group,
        "client": host,
        "is_ok": getattr(trace, "is_ok", None),
        "took_ms": getattr(trace, "took_ms", None),
        "retries": getattr(trace, "retries", None),
        "state": trace.state.value if isinstance(trace, TransactionTrace) else None,
    }


def _result(is_ok: bool | None) -> Cell:
    if is_ok is None:
        return None
    return Styled("ok", GOOD) if is_ok else Styled("failed", BAD)
