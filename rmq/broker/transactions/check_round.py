"""One round over the half messages: which transactions are over, and whose producers to ask.

Pure: time is an argument, and nothing waits. A round is made of steps, so that a long one does not
hold up the broker. It begins at the first half message that has not had its turn and goes on until
it comes to one that is too young, in the order of the queue:

- Decided (an op message names its offset): its turn is over.
- Not decided: it is asked about, put off or given up. For the first two a copy at the end of the
  queue stands for it from then on.

The op messages are read beside it, from the first one on whose half message has not had its turn.

The rules are those of RocketMQ 4.9.8 TransactionalMessageServiceImpl.check, but for these:

- Before anything is done about a half message, all op messages are read. 4.9.8 gives up, puts off
  and, after an op queue that begins later than it thought, asks about messages that are decided.
- Being put off does not count as a question. There, a message that wants to be left alone for
  longer than `transactionCheckMax` rounds is given up without ever having been asked about.
- A copy stored in this round is left for the next one also when it was the last question: there it
  is given up before the producer can answer.
- What cannot be stored now ends the round and is tried again in the next, also when a message is
  given up, which there is lost then.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from rmq.broker.transactions import half
from rmq.broker.transactions.question import question
from rmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC
from rmq.model.properties import REAL_TOPIC, find_tags
from rmq.model.record import BadRecordError, decode_record, decode_records
from rmq.store.append import AppendStatus
from rmq.store.reads import GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.broker.transactions.copies import HalfCopies
    from rmq.broker.transactions.question import Question
    from rmq.model.offsets import QueueOffset
    from rmq.model.record import NewMessage, StoredRecord
    from rmq.store.append import AppendResult
    from rmq.store.reads import GetResult, MessageReads

logger = logging.getLogger(__name__)

ROUND_MS_MAX: Final = 60_000
"""A round ends after this long, wherever it is."""
OPS_PER_READ: Final = 32
_TURNS_PER_STEP: Final = 8
_PASSED_PER_TURN: Final = 200
_HOUR_MS: Final = 3_600_000
_HOPELESS: Final = (AppendStatus.MESSAGE_ILLEGAL, AppendStatus.PROPERTIES_SIZE_EXCEEDED)


class Store(Protocol):
    """What transactions need of a store; waiting for the disk is done elsewhere."""

    @property
    def reads(self) -> MessageReads: ...

    def append(self, messages: Sequence[NewMessage]) -> list[AppendResult]: ...


class CheckRules(NamedTuple):
    """The settings that a round goes by."""

    timeout_ms: int
    """`transactionTimeOut`."""
    times_max: int
    """`transactionCheckMax`."""
    reserved_hours: int
    """`fileReservedTime`: what is older is about to be deleted."""


class Progress(NamedTuple):
    """The offsets up to which half and op messages have had their turn."""

    half_offset: QueueOffset
    op_offset: QueueOffset


class RoundStart(NamedTuple):
    """Where and when a round begins."""

    progress: Progress
    at_ms: int
    can_give_up: bool
    """Whether there is a topic for messages that are given up."""


class RoundCounts(NamedTuple):
    """What a round did."""

    decided: int
    asked: int
    put_off: int
    given_up: int


@final
class CheckRound:
    """A round under way.

    `ask` is called with each question once the copy it is about is stored; `counted` with the
    topic, the number and the size of messages that were read.

    A round that has something to give up for the first time stops before: what is given up needs a
    topic. With `can_give_up` set it goes on.
    """

    def __init__(
        self,
        store: Store,
        copies: HalfCopies,
        rules: CheckRules,
        start: RoundStart,
        *,
        store_host: bytes,
        ask: Callable[[Question], None],
        counted: Callable[[str, int, int], None],
    ) -> None:
        self.can_give_up = start.can_give_up
        """Whether there is a topic for it."""
        self.wants_to_give_up = False
        """Whether the round ended because there was none."""
        self._store = store
        self._copies = copies
        self._rules = rules
        self._start_ms = start.at_ms
        self._store_host = store_host
        self._ask = ask
        self._counted = counted
        self._half_offset = start.progress.half_offset
        self._record: StoredRecord | None = None
        """The half message whose turn it is, if it was read."""
        self._op_next = start.progress.op_offset
        """Where to go on reading op messages."""
        self._op_done = start.progress.op_offset
        """Before this, no op message is needed any more."""
        self._done_ops: set[int] = set()
        """Others that are not."""
        self._open_ops: dict[int, int] = {}
        """By the offset of the half message it names, the op message that is still needed."""
        self._closed_before: set[int] = set()
        """Half messages named by op messages that came after their turn."""
        self._has_begun = False
        self._has_jumped = False
        self._decided = self._asked = self._put_off = self._given_up = 0

    @property
    def progress(self) -> Progress:
        """The offsets up to which half and op messages have had their turn by now."""
        return Progress(self._half_offset, self._op_done)

    @property
    def counts(self) -> RoundCounts:
        return RoundCounts(self._decided, self._asked, self._put_off, self._given_up)

    def step(self, now_ms: int) -> bool:
        """Go on for about a millisecond; tell whether there is more to do."""
        if not self._has_begun:
            self._has_begun = True
            self._read_ops()
        for _ in range(_TURNS_PER_STEP):
            if now_ms - self._start_ms > ROUND_MS_MAX:
                logger.info("a round of transaction checks is cut off after %d ms", ROUND_MS_MAX)
                return False
            if not self._take_turn(now_ms):
                return False
        return True

    # --- half messages -----------------------------------------------------------------------

    def _take_turn(self, now_ms: int) -> bool:
        """Do the next thing: read op messages, or deal with a half message."""
        if self._pass_decided():
            return True
        if self._record is None:
            return self._read_half()
        record = self._record
        pairs = record.properties
        age_ms = now_ms - record.born_ms
        if record.store_ms >= self._start_ms:
            return False
        immunity_ms = _immunity_ms(pairs, self._rules.timeout_ms)
        if half.IMMUNITY not in pairs and 0 <= age_ms < immunity_ms:
            return False
        # Also each time that nothing new was found before: decisions come in between two steps.
        if self._read_ops():
            return True
        times = half.number(pairs, half.CHECK_TIMES) or 0
        if times >= self._rules.times_max:
            return self._give_up(record, f"its producer was asked {times} times")
        if age_ms > self._rules.reserved_hours * _HOUR_MS:
            return self._give_up(record, f"it is older than {self._rules.reserved_hours} hours")
        if half.IMMUNITY in pairs and age_ms < immunity_ms:
            return self._put_message_off(record, pairs)
        return self._ask_producer(record, pairs, times + 1)

    def _pass_decided(self) -> bool:
        """Go past half messages that are known to be decided; tell whether there was one."""
        passed = 0
        while passed < _PASSED_PER_TURN:
            op_offset = self._open_ops.pop(self._half_offset, None)
            if op_offset is None:
                break
            self._finish_op(op_offset)
            self._go_on()
            passed += 1
        self._decided += passed
        return passed > 0

    def _go_on(self) -> None:
        self._half_offset += 1
        self._record = None

    def _read_half(self) -> bool:
        found = self._store.reads.get(HALF_TOPIC, half.QUEUE_ID, self._half_offset, 1)
        if found.status is GetStatus.FOUND:
            self._counted(HALF_TOPIC, found.count, found.size)
            try:
                record = decode_record(found.records[0])
            except BadRecordError as exc:
                logger.error(
                    "the half message at offset %d cannot be read and is skipped: %s",
                    self._half_offset,
                    exc,
                )
                self._go_on()
            else:
                # Later than wanted if the log has lost what the queue still has an entry for.
                self._half_offset = record.queue_offset
                self._record = record
            return True
        if found.next_offset == self._half_offset or self._has_jumped:
            return False
        self._jump(found)
        return True

    def _jump(self, found: GetResult) -> None:
        """Go on where the queue goes on; once, as what leads nowhere must have an end."""
        logger.warning(
            "there is no half message at offset %d (%s), the queue has %d to %d; going on at %d",
            self._half_offset,
            found.status.value,
            found.min_offset,
            found.max_offset,
            found.next_offset,
        )
        self._has_jumped = True
        self._half_offset = found.next_offset

    # --- what is done about one --------------------------------------------------------------

    def _ask_producer(self, record: StoredRecord, pairs: dict[str, str], times: int) -> bool:
        home = half.home_of(pairs)
        if home is None:
            return self._give_up(record, "it does not say where it belongs")
        copy = self._append(half.asked(record, times))
        if copy is None:
            return False
        if copy.status in _HOPELESS:
            return self._give_up(record, f"there is no room for another property: {copy.reason}")
        self._copies.add_asked(record.queue_offset, copy.queue_offset)
        self._asked += 1
        self._go_on()
        self._ask(question(record, home, times, copy, self._store_host))
        return True

    def _put_message_off(self, record: StoredRecord, pairs: dict[str, str]) -> bool:
        first = half.number(pairs, half.FIRST_OFFSET)
        if first is not None and self._is_closed(first):
            self._decided += 1
            self._go_on()
            return True
        copy = self._append(half.put_off(record))
        if copy is None:
            return False
        if copy.status in _HOPELESS:
            return self._give_up(record, f"there is no room for another property: {copy.reason}")
        self._copies.add_put_off(
            record.queue_offset,
            copy.queue_offset,
            record.queue_offset if first is None else first,
        )
        self._put_off += 1
        self._go_on()
        return True

    def _give_up(self, record: StoredRecord, why: str) -> bool:
        if not self.can_give_up:
            self.wants_to_give_up = True
            return False
        kept = self._append(half.given_up(record))
        if kept is None:
            return False
        if kept.status is AppendStatus.PUT_OK:
            place = f"kept in {TRANSACTION_CHECK_MAX_TOPIC}"
        else:
            place = f"can only be found by its id ({kept.reason})"
        logger.error(
            "the half message %s for topic %s is given up and %s: %s",
            record.message_id,
            record.properties.get(REAL_TOPIC),
            place,
            why,
        )
        self._given_up += 1
        self._go_on()
        return True

    def _append(self, message: NewMessage) -> AppendResult | None:
        """Append a message and return the result, None if it is to be tried again later."""
        (result,) = self._store.append([message])
        if result.status is AppendStatus.PUT_OK or result.status in _HOPELESS:
            return result
        logger.warning(
            "the round of transaction checks ends early: %s %s", result.status.value, result.reason
        )
        return None

    # --- op messages -------------------------------------------------------------------------

    def _is_closed(self, half_offset: int) -> bool:
        """Tell whether an op message names a half message whose turn was before."""
        return half_offset in self._closed_before or half_offset in self._open_ops

    def _read_ops(self) -> bool:
        """Read some more op messages; tell whether there were any."""
        start = self._op_next
        found = self._store.reads.get(OP_HALF_TOPIC, half.QUEUE_ID, start, OPS_PER_READ)
        if found.status is not GetStatus.FOUND:
            return self._correct_op_offset(found)
        self._counted(OP_HALF_TOPIC, found.count, found.size)
        self._op_next = found.next_offset
        unread = set(range(start, found.next_offset))
        try:
            for view in found.records:
                for record in decode_records(view):
                    unread.discard(record.queue_offset)
                    self._note_op(record)
        except BadRecordError as exc:
            logger.error("op messages from offset %d on cannot be read: %s", start, exc)
        # They are gone, and must not keep those behind them from being removed.
        for op_offset in unread:
            self._finish_op(op_offset)
        return True

    def _note_op(self, record: StoredRecord) -> None:
        op_offset = record.queue_offset
        text = record.body
        if find_tags(record.properties_bytes) != half.DONE_TAG or not text.isdigit():
            logger.error("the op message at offset %d says nothing: %r", op_offset, text[:40])
            self._finish_op(op_offset)
            return
        half_offset = int(text)
        if half_offset < self._half_offset:
            self._closed_before.add(half_offset)
            self._finish_op(op_offset)
            return
        earlier = self._open_ops.get(half_offset)
        if earlier is not None:
            self._finish_op(earlier)
        self._open_ops[half_offset] = op_offset

    def _finish_op(self, op_offset: int) -> None:
        """Note that an op message is not needed any more."""
        if op_offset != self._op_done:
            self._done_ops.add(op_offset)
            return
        self._op_done += 1
        while self._op_done in self._done_ops:
            self._done_ops.remove(self._op_done)
            self._op_done += 1

    def _correct_op_offset(self, found: GetResult) -> bool:
        """Go on where the op queue goes on; tell whether that is somewhere else."""
        if found.next_offset == self._op_next:
            return False
        logger.warning(
            "there is no op message at offset %d (%s); going on at %d",
            self._op_next,
            found.status.value,
            found.next_offset,
        )
        if self._op_done == self._op_next:
            self._op_done = found.next_offset
        self._op_next = found.next_offset
        return True


def _immunity_ms(pairs: dict[str, str], timeout_ms: int) -> int:
    """Return how old a transaction must be before its producer is asked about it."""
    seconds = half.number(pairs, half.IMMUNITY)
    return timeout_ms if seconds is None or seconds == -1 else seconds * 1000
