"""Transactions held against what a producer wants of them, whatever happens in between.

A producer knows from the start how each of its transactions ends. It says so when it likes or not
at all, once about each half message it was told of; in the end it answers questions. Rounds are cut
short, and the power may go: then everything that was not flushed may be lost, and progress is what
was saved of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.broker.transactions import half
from rmq.broker.transactions.check_round import Progress
from rmq.errors import RefusedError
from rmq.model.names import HALF_TOPIC
from rmq.model.offsets import QueueOffset
from rmq.model.record import decode_record
from tests.broker.transactions.transactions_kit import ROUND_MS, Transactions, half_message

if TYPE_CHECKING:
    import random

_ROUNDS_TO_THE_END: Final = 8


@dataclass
class Wanted:
    """A transaction as its producer sees it."""

    key: bytes
    is_commit: bool
    offsets: list[int]
    """The half messages it was told of and has not decided."""
    is_durable: bool = False
    is_torn: bool = False
    """It was not durable when the power went: what is left of it may be anything."""


@dataclass(frozen=True)
class Send:
    is_commit: bool
    seconds_alone: int | None


@dataclass(frozen=True)
class Decide:
    which: int
    told: int


@dataclass(frozen=True)
class Round:
    after_ms: int
    steps: int | None
    """None is all of it."""
    decided_between: int | None


@dataclass(frozen=True)
class Save:
    """What a round has done is flushed, and where it came to is saved."""


@dataclass(frozen=True)
class PowerCut:
    pass


Event: TypeAlias = Send | Decide | Round | Save | PowerCut

sends = st.builds(Send, st.booleans(), st.sampled_from([None, None, 1, 90, 200]))
decides = st.builds(Decide, st.integers(0, 30), st.integers(0, 5))
rounds = st.builds(
    Round,
    st.sampled_from([1, 5_000, 7_000, ROUND_MS]),
    st.none() | st.integers(1, 4),
    st.none() | st.integers(0, 30),
)
quiet_events = st.one_of(sends, sends, decides, rounds, st.just(Save()))
events = st.one_of(quiet_events, quiet_events, quiet_events, st.just(PowerCut()))


class Run:
    """A broker and a producer."""

    def __init__(self, choose: random.Random) -> None:
        self.broker = Transactions()
        self.wanted: dict[bytes, Wanted] = {}
        self._choose = choose
        self._saved = Progress(QueueOffset(0), QueueOffset(0))
        self._sent = 0

    def do(self, event: Event) -> None:
        match event:
            case Send():
                self._send(event)
            case Decide():
                self._decide(event.which, event.told)
            case Round():
                self._round(event)
            case Save():
                self._save()
            case PowerCut():
                self._cut_power()

    def _send(self, event: Send) -> None:
        key = b"%d" % self._sent
        self._sent += 1
        alone = event.seconds_alone
        properties = {} if alone is None else {half.IMMUNITY: str(alone)}
        offset = self.broker.put(
            half_message(key, born_ms=self.broker.clock.ms, properties=properties)
        ).queue_offset
        self.wanted[key] = Wanted(key, event.is_commit, [offset])

    def _decide(self, which: int, told: int) -> None:
        if self.wanted:
            wanted = list(self.wanted.values())[which % len(self.wanted)]
            if wanted.offsets:
                self._tell(wanted, wanted.offsets[told % len(wanted.offsets)])

    def _tell(self, wanted: Wanted, offset: int) -> None:
        wanted.offsets.remove(offset)
        try:
            if wanted.is_commit:
                self.broker.commit(offset)
            else:
                self.broker.roll_back(offset)
        except RefusedError:
            # A power cut may leave half of what was not flushed.
            assert not wanted.is_durable

    def _round(self, event: Round) -> None:
        broker = self.broker
        broker.clock.ms += event.after_ms
        checking = broker.begin()
        steps = 0
        while checking.step(broker.clock.ms):
            steps += 1
            if event.decided_between is not None:
                self._take_questions()
                self._decide(event.decided_between, steps)
            if steps == event.steps:
                break
        broker.progress = checking.progress
        self._take_questions()

    def _take_questions(self) -> list[tuple[Wanted, int]]:
        """Let the producer see what it is asked."""
        asked = [
            (self.wanted[decode_record(each.body).body], each.header.tran_state_table_offset)
            for each in self.broker.questions
        ]
        self.broker.questions.clear()
        for wanted, offset in asked:
            wanted.offsets.append(offset)
        return asked

    def _save(self) -> None:
        core = self.broker.core
        plan = core.plan_flush()
        if plan is not None:
            plan.run()
            core.finish_flush(plan)
        self._saved = self.broker.progress
        for wanted in self.wanted.values():
            wanted.is_durable = not wanted.is_torn

    def _cut_power(self) -> None:
        old = self.broker
        self.broker = Transactions(old.storage.crash(self._choose), clock=old.clock)
        self.broker.progress = self._saved
        told: dict[bytes, list[int]] = {}
        torn: set[bytes] = set()
        for record in self.broker.halves():
            told.setdefault(record.body, []).append(record.queue_offset)
            if b"\0" in record.properties_bytes:
                # The format has no checksum over properties: a copy that the power cut tore there
                # passes for whole, and stands for its transaction.
                torn.add(record.body)
        durable = {wanted.key for wanted in self.wanted.values() if wanted.is_durable}
        assert durable <= told.keys()
        durable -= torn
        self.wanted = {
            key: Wanted(
                key, self.wanted[key].is_commit, offsets, key in durable, key not in durable
            )
            for key, offsets in told.items()
        }

    def answer_all(self) -> None:
        """Make rounds in which every question is answered, until there are no more."""
        for _ in range(_ROUNDS_TO_THE_END):
            self.broker.check_later()
            for wanted, offset in self._take_questions():
                self._tell(wanted, offset)
        if any(b"\0" in record.properties_bytes for record in self.broker.halves()):
            # Nobody can answer for one that is torn; it is asked about until it is given up.
            return
        assert self.broker.check_later() == (0, 0, 0, 0)
        queue = self.broker.core.queues.get(HALF_TOPIC, 0)
        assert self.broker.progress.half_offset == (0 if queue is None else queue.next_offset)


@settings(max_examples=60)
@given(st.lists(quiet_events, max_size=40), st.randoms(use_true_random=False))
def test_every_transaction_ends_once_as_its_producer_wants(
    happened: list[Event], choose: random.Random
) -> None:
    run = Run(choose)
    for event in happened:
        run.do(event)
    run.answer_all()
    assert sorted(run.broker.delivered()) == sorted(
        wanted.key for wanted in run.wanted.values() if wanted.is_commit
    )


@settings(max_examples=60)
@given(st.lists(events, max_size=40), st.randoms(use_true_random=False))
def test_no_transaction_is_lost_when_the_power_goes(
    happened: list[Event], choose: random.Random
) -> None:
    run = Run(choose)
    for event in happened:
        run.do(event)
    run.answer_all()
    delivered = set(run.broker.delivered())
    must = {wanted.key for wanted in run.wanted.values() if wanted.is_commit and wanted.is_durable}
    may = {wanted.key for wanted in run.wanted.values() if wanted.is_commit}
    assert must <= delivered <= may
