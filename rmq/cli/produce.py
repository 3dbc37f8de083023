"""`rmq produce`: each line of standard input becomes a message."""

from __future__ import annotations

import math
import os
from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from rmq.cli.common.client_options import client_config
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.line_input import LINE_BYTES_MAX, read_lines
from rmq.cli.common.message_lines import decode_line
from rmq.cli.common.progress import Progress
from rmq.cli.common.stopping import STOP_SIGNALS
from rmq.cli.common.usage import UsageError
from rmq.client.core.busy import is_busy
from rmq.client.core.messages import Message
from rmq.client.trio.opening import open_producer
from rmq.errors import ClientError, IllegalMessageError, RmqError, TooManyRequestsError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from rmq.client.core.config import ClientConfig
    from rmq.client.core.messages import SendResult

GROUP: Final = "rmq_produce"
PENDING_MAX: Final = 4000
"""Messages under way."""
TOLD_MAX: Final = 10
"""How many messages that were not stored are reported one by one."""
FAILURES_MAX: Final = 100
"""When this many in a row were not stored, no more lines are read."""
PATIENCE_S: Final = 30.0
"""How long brokers may be too busy for any message, before messages count as not stored."""
_STEP: Final = 64
"""Other tasks run after this many messages at the latest."""


class Submits(Protocol):
    """What sending needs of a producer."""

    def submit(
        self, message: Message, on_outcome: Callable[[SendResult | RmqError], None], /
    ) -> object:
        """Begin to send a message; raise `TooManyRequestsError` if too many are under way."""


@final
class Window:
    """How many messages may be under way, and from when on: less when brokers are busy. Pure."""

    PAUSE_S: Final = 0.1

    def __init__(self) -> None:
        self.size = PENDING_MAX
        self.resumes_at = -math.inf
        self._grown = 0
        self._busy_since: float | None = None

    def stored(self) -> None:
        """A message was stored; after as many as may be under way, twice as many may."""
        self._busy_since = None
        self._grown += 1
        if self._grown >= self.size:
            self.size = min(PENDING_MAX, self.size * 2)
            self._grown = 0

    def refused(self, now: float) -> bool:
        """A broker was too busy; return whether the message is to be sent again."""
        if self._busy_since is None:
            self._busy_since = now
        if now >= self.resumes_at:
            # Once for all that were under way together.
            self.size = max(1, self.size // 2)
            self.resumes_at = now + self.PAUSE_S
        self._grown = 0
        return now - self._busy_since < PATIENCE_S


def _is_refused(error: RmqError) -> bool:
    """Tell whether a message is stored nowhere because brokers had too much to do."""
    if not isinstance(error, ClientError):
        return False
    return is_busy(error) and not getattr(error, "may_be_stored", False)


@final
class Sending:
    """Sends lines, many at a time, and counts the outcomes.

    A broker that is too busy for a message has it sent again, and fewer are under way from then on:
    how many is halved, and grows again with every message that is stored.
    """

    def __init__(
        self, producer: Submits, message_of: Callable[[bytes], Message], say: Callable[[str], None]
    ) -> None:
        self._producer = producer
        self._message_of = message_of
        self._say = say
        self.lines = 0
        self.stored = 0
        self.not_ok = 0
        """Stored, but not on disk or at a slave in time."""
        self.failed = 0
        self.refused = 0
        """How often brokers were too busy for one."""
        self._failed_in_a_row = 0
        self._under_way = 0
        self._window = Window()
        self._again: deque[tuple[int, Message]] = deque()
        """Messages that brokers were too busy for, with their lines."""
        self._has_room = trio.Event()
        self._is_idle = trio.Event()

    @property
    def is_hopeless(self) -> bool:
        """Whether there is no use in reading on."""
        return self._failed_in_a_row >= FAILURES_MAX

    def count(self) -> int:
        """Return how many messages are stored."""
        return self.stored

    async def send_all(self, lines: AsyncIterator[list[bytes | None]]) -> None:
        """Send lines until there are no more, or no use in it."""
        async for some in lines:
            for line in some:
                await self._send(line)
                if self.is_hopeless:
                    return

    async def wait_idle(self) -> None:
        """Wait until all that is under way is stored, or is not."""
        while self._under_way or self._again:
            if self._again:
                await self._send_again()
            else:
                self._is_idle = trio.Event()
                await self._is_idle.wait()

    async def _send(self, line: bytes | None) -> None:
        self.lines += 1
        number = self.lines
        if number % _STEP == 0:
            await trio.lowlevel.checkpoint()
        try:
            if line is None:
                raise IllegalMessageError(f"it has more than {LINE_BYTES_MAX} bytes")
            message = self._message_of(line)
            while self._again:
                await self._send_again()
            await self._submit(number, message)
        except IllegalMessageError as exc:
            self._not_stored(number, exc)

    async def _send_again(self) -> None:
        number, message = self._again.popleft()
        await self._submit(number, message)

    async def _submit(self, number: int, message: Message) -> None:
        """Begin to send a message, when brokers are likely to have room for it."""

        def on_outcome(outcome: SendResult | RmqError) -> None:
            self._completed(number, message, outcome)

        while True:
            if self._window.resumes_at > trio.current_time():
                await trio.sleep_until(self._window.resumes_at)
            if self._under_way >= self._window.size:
                await self._wait_room()
                continue
            try:
                self._producer.submit(message, on_outcome)
            except TooManyRequestsError:
                await self._wait_room()
            else:
                break
        # Not before: the outcome may have come already.
        self._under_way += 1
        self._check()

    def _completed(self, number: int, message: Message, outcome: SendResult | RmqError) -> None:
        self._under_way -= 1
        if not isinstance(outcome, RmqError):
            self.stored += 1
            self._failed_in_a_row = 0
            self._window.stored()
            if not outcome.is_ok:
                self.not_ok += 1
        elif _is_refused(outcome) and self._window.refused(trio.current_time()):
            self.refused += 1
            self._again.append((number, message))
        else:
            self._not_stored(number, outcome)
        self._check()

    def _check(self) -> None:
        if self._under_way <= self._window.size // 2:
            self._has_room.set()
        if not self._under_way:
            self._is_idle.set()

    def _not_stored(self, number: int, error: RmqError) -> None:
        self.failed += 1
        # A line that is no message says nothing of the brokers.
        if not isinstance(error, IllegalMessageError):
            self._failed_in_a_row += 1
        if self.failed <= TOLD_MAX:
            self._say(f"rmq: error: line {number}: {error.text}")
            if error.hint:
                self._say(f"hint: {error.hint}")

    async def _wait_room(self) -> None:
        self._has_room = trio.Event()
        await self._has_room.wait()


async def produce(
    config: ClientConfig,
    topic: str,
    message_of: Callable[[bytes], Message],
    lines: AsyncGenerator[list[bytes | None], None],
) -> int:
    """Send everything, print the result, and return the exit code."""
    progress = Progress("messages stored")
    signals_seen = 0
    sending: Sending | None = None
    working, reading = trio.CancelScope(), trio.CancelScope()
    with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:

            async def stop_on_signal() -> None:
                nonlocal signals_seen
                async for _ in signals:
                    signals_seen += 1
                    reading.cancel()
                    if signals_seen > 1 or sending is None:
                        working.cancel()

            nursery.start_soon(stop_on_signal)
            with working:
                async with open_producer(config, GROUP, pending_max=2 * PENDING_MAX) as producer:
                    # Nothing is read before a broker can be reached.
                    await producer.prepare(topic)
                    sending = Sending(producer, message_of, progress.say)
                    nursery.start_soon(progress.run, sending.count)
                    with reading:
                        async with aclosing(lines):
                            await sending.send_all(lines)
                    # What was sent is worth waiting for: it may be stored already.
                    await sending.wait_idle()
            nursery.cancel_scope.cancel()
    progress.end()
    if sending is not None:
        _tell(sending, progress)
    if signals_seen:
        return ExitCode.INTERRUPTED
    assert sending is not None
    return ExitCode.FAILURE if sending.failed else ExitCode.OK


def _tell(sending: Sending, progress: Progress) -> None:
    """Print what was stored: always if a message was not, else to a terminal only."""
    unknown = sending.lines - sending.stored - sending.failed
    text = f"{sending.stored} of {sending.lines} messages stored"
    if sending.not_ok:
        text += f", {sending.not_ok} of them not on disk or at a slave in time"
    if sending.failed > TOLD_MAX:
        text += f", {sending.failed} not"
    if unknown:
        text += f", of {unknown} it is not known"
    if sending.is_hopeless:
        text += f"; gave up after {FAILURES_MAX} in a row were not"
    if sending.failed or unknown:
        progress.say(f"rmq: {text}")
    elif progress.is_shown:
        busy = f"; brokers were too busy {sending.refused:,} times" * bool(sending.refused)
        progress.say(f"{text}{progress.rate_text(sending.stored)}{busy}")


# --- the command ------------------------------------------------------------------------------


def run(args: Namespace) -> int:
    config = client_config(args, os.environ)
    keys = tuple(args.key)
    # A message with all that the options say shows what is wrong with them before anything is read.
    try:
        Message(args.topic, b"?", tag=args.tag, keys=keys, delay_level=args.delay_level)
    except IllegalMessageError as exc:
        raise UsageError(exc.reason) from None

    def of_text(line: bytes) -> Message:
        return Message(args.topic, line, tag=args.tag, keys=keys, delay_level=args.delay_level)

    def of_json(line: bytes) -> Message:
        return decode_line(line, args.topic, tag=args.tag, keys=keys, delay_level=args.delay_level)

    message_of = of_json if args.json else of_text
    return trio.run(produce, config, args.topic, message_of, read_lines())
