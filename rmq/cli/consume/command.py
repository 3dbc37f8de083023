"""`rmq consume`: messages of a topic on standard output, one per line."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import trio

from rmq.cli.common.byte_output import wait_reader_gone, write_out
from rmq.cli.common.client_options import client_config
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.message_lines import encode_line
from rmq.cli.common.stopping import STOP_SIGNALS
from rmq.cli.common.usage import UsageError
from rmq.cli.consume.places import Place, Start
from rmq.cli.consume.reading import Reading, Stop, Wanted
from rmq.client.core.admin.messages import TOOLS_GROUP
from rmq.client.core.consuming.subscription_set import Sql
from rmq.client.core.messages import check_group, check_topic
from rmq.client.core.received import UnreadableBodyError
from rmq.client.trio.opening import open_lite_pull_consumer
from rmq.errors import IllegalMessageError
from rmq.remoting.bodies import SUBSCRIBE_ALL

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Awaitable, Callable, Sequence

    from rmq.client.core.config import ClientConfig
    from rmq.client.core.received import ReceivedMessage

PULL_MESSAGES: Final = 32
"""Messages in the response to a pull, with the default settings of brokers."""


async def consume(
    config: ClientConfig,
    wanted: Wanted,
    write: Callable[[bytes], Awaitable[None]] = write_out,
    wait_gone: Callable[[], Awaitable[None]] = wait_reader_gone,
) -> int:
    """Write messages until there are no more, and return the exit code."""
    stop = Stop()
    unreadable = 0
    with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop.watch_signals, signals)
            nursery.start_soon(stop.watch_reader, wait_gone)
            with stop.forced:
                unreadable = await _consume(config, wanted, write, stop)
            nursery.cancel_scope.cancel()
    if stop.is_reader_gone:
        raise BrokenPipeError
    if stop.signals > 1 or (stop.signals and not wanted.is_endless):
        return ExitCode.INTERRUPTED
    return ExitCode.FAILURE if unreadable else ExitCode.OK


async def _consume(
    config: ClientConfig, wanted: Wanted, write: Callable[[bytes], Awaitable[None]], stop: Stop
) -> int:
    """Write messages; return how many of them could not be read."""
    start = wanted.start or Start(Place.EARLIEST)
    unreadable = 0
    async with open_lite_pull_consumer(
        config,
        wanted.group or TOOLS_GROUP,
        consume_from=start.consume_from,
        consume_from_ms=start.time_ms,
        commits_itself=wanted.group is not None,
        pull_messages_max=PULL_MESSAGES,
    ) as consumer:
        reading = Reading(consumer, wanted)
        with stop.stoppable():
            await reading.begin()
        while not stop.is_set:
            messages = await reading.next(stop)
            if messages is None:
                break
            lines, bad = _lines(messages, is_json=wanted.is_json)
            unreadable += bad
            # When this is done, they count as consumed.
            await write(lines)
    return unreadable


def _lines(messages: Sequence[ReceivedMessage], *, is_json: bool) -> tuple[bytes, int]:
    """Return messages as lines, and how many of them could not be read."""
    lines: list[bytes] = []
    unreadable = 0
    for message in messages:
        if is_json:
            lines.append(encode_line(message))
            continue
        try:
            lines.append(message.body)
        except UnreadableBodyError as exc:
            unreadable += 1
            print(f"rmq: error: {exc}", file=sys.stderr)
    return b"".join(line + b"\n" for line in lines), unreadable


# --- the command ------------------------------------------------------------------------------


def run(args: Namespace) -> int:
    config = client_config(args, os.environ)
    return trio.run(consume, config, _wanted(args))


def _wanted(args: Namespace) -> Wanted:
    if args.tag is not None and args.sql is not None:
        raise UsageError("--tag and --sql exclude each other")
    try:
        check_topic(args.topic)
        if args.group is not None:
            check_group(args.group)
    except IllegalMessageError as exc:
        raise UsageError(exc.reason) from None
    return Wanted(
        topic=args.topic,
        expression=Sql(args.sql) if args.sql is not None else args.tag or SUBSCRIBE_ALL,
        group=args.group,
        start=None if args.start is None else Start.parse(args.start),
        count=args.count,
        follows=args.follow,
        is_json=args.json,
    )
