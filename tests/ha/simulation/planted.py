"""Bugs that are planted into the core, one at a time, to see that the simulator finds them.

Each is a rule of the design taken away. A checker that does not notice is no checker.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest import mock

from rmq.ha.protocol import master_link, promotion
from rmq.ha.protocol.master import Master
from rmq.ha.protocol.master_link import LinkState, MasterLink
from rmq.ha.protocol.pending_acks import PendingAcks
from rmq.ha.protocol.promotion import KeptRecords, PromotionVerdict
from rmq.ha.protocol.record_keeper import RecordKeeper
from rmq.ha.protocol.slave_link import SlaveLink
from rmq.ha.protocol.slaves import NOTHING, SlaveProgress, SlaveSet
from rmq.ha.protocol.wire import REPORT, CatchUp, HelloVerdict, UpHeader, UpKind, pack_up
from rmq.model.offsets import PhysicalOffset
from tests.ha.simulation import node
from tests.ha.simulation import promotion as sim_promotion
from tests.ha.simulation.checks import Rule
from tests.ha.simulation.slave import SlavePart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmq.ha.protocol.pending_acks import ModeSwitch, ReplicationMode
    from rmq.ha.protocol.promotion import Candidate, OtherSlave
    from rmq.ha.protocol.wire import HelloBody, WelcomeBody
    from rmq.model.in_sync_record import InSyncRecord


TRIED_MAX: Final = 2000
"""How many seeds a test tries at most; that takes half a minute."""


class Planted(NamedTuple):
    """A bug, and what should find it."""

    name: str
    patches: tuple[tuple[object, str, object], ...]
    """What is replaced: of which object, which attribute, by what."""
    found_by: tuple[Rule, ...]
    """By one of these it has to be found."""
    seeds_max: int
    """How many seeds find it at the latest."""
    likely_seed: int
    """The first that found it when all were tried in order."""

    def seeds(self) -> Iterator[int]:
        """The likely one, and then some more: a change of the code may move it to another seed.

        A bug that is rare is then searched for by `python -m tests.ha.simulation.run --planted`.
        """
        return chain((self.likely_seed,), range(min(self.seeds_max, TRIED_MAX)))


@contextmanager
def planted(bug: Planted) -> Iterator[None]:
    """Run with a bug."""
    with ExitStack() as stack:
        for target, attribute, replacement in bug.patches:
            stack.enter_context(mock.patch.object(target, attribute, replacement))
        yield


def _report_before_copy(self: SlaveLink, now: float) -> None:
    """A slave reports a frame when its header is there."""
    log = self._log
    held = self.frame_offset + self.body_left if self.body_left else log.end
    if self.is_native:
        header = UpHeader(UpKind.ACK, 0, 0, 0, self.epoch, held, min(log.flushed, held), 0)
        self._output.append(pack_up(header))
    else:
        self._output.append(REPORT.pack(held))
    self._reported = (log.end, log.flushed)
    self._sent_at = now


def _maximum(self: SlaveSet) -> None:
    """The slave that has most speaks for all, as in RocketMQ 4.9.8."""
    held = self._held()
    self.in_sync_count = len(held)
    self.replicated = max(held) if len(held) >= self.rules.needed else NOTHING


_begin = MasterLink._begin


def _unchecked_first_report(self: MasterLink, first: bytes, now: float) -> None:
    """The first report of a connection is taken for what it says, as in RocketMQ 4.9.8."""
    (offset,) = REPORT.unpack(first)
    if offset <= self._master.log.end or self._master.settings.secret:
        _begin(self, first, now)
        return
    self.state = LinkState.STOCK
    slave = SlaveProgress(
        f"stock {self._host}", self.peer, self.peer, broker_id=None, is_native=False
    )
    self._start(slave, offset, now)
    self._master.slaves.holds(slave, offset, offset, now)


def _no_own_deadline(self: PendingAcks[Any], now: float) -> list[Any]:
    """Whoever waits is answered when the last one has waited long enough."""
    waiting = self._waits
    latest = max((entry[0] for entry in waiting._by_deadline._run), default=0.0)
    return waiting.expire(now) if latest <= now else []


_join = SlaveSet.join


def _two_links_two_slaves(self: SlaveSet, slave: SlaveProgress, now: float) -> None:
    """Each connection counts as a slave of its own."""
    slave.identity = f"{slave.identity} {id(slave)}"
    slave.host = slave.identity
    _join(self, slave, now)


def _ejected_counts(self: SlaveSet, now: float) -> list[SlaveProgress]:
    """A slave that was in sync once stays so while it is connected."""
    changed: list[SlaveProgress] = []
    for slave in self._connected:
        if not slave.in_sync and slave.appended >= self.end and not slave.is_superseded:
            slave.in_sync = True
            changed.append(slave)
    self._count()
    return changed


_holds = SlaveSet.holds


def _heartbeat_keeps_in_sync(
    self: SlaveSet, slave: SlaveProgress, appended: int, flushed: int, now: float
) -> None:
    """Whoever reports is caught up."""
    slave.caught_up_at = now
    slave.mark_end = PhysicalOffset(2**62)
    _holds(self, slave, PhysicalOffset(appended), PhysicalOffset(flushed), now)


_judge = MasterLink._judge


def _tail_not_compared(self: MasterLink, hello: HelloBody) -> tuple[HelloVerdict, int, str]:
    """A slave that is not ahead is taken for one that is the same."""
    verdict, start, reason = _judge(self, hello)
    if verdict is HelloVerdict.DIVERGED and hello.end <= self._master.log.end:
        return HelloVerdict.START, hello.end, ""
    return verdict, start, reason


def _stale_accepted(self: MasterLink, hello: HelloBody) -> tuple[HelloVerdict, int, str]:
    """A master serves also slaves that have followed a later one."""
    epoch = self._master.epoch
    self._master.epoch = max(epoch, hello.epoch)
    try:
        return _judge(self, hello)
    finally:
        self._master.epoch = epoch


_welcome = SlaveLink._welcome


def _stale_followed(self: SlaveLink, welcome: WelcomeBody, now: float) -> None:
    """A slave follows any master that says START."""
    if welcome.verdict in (HelloVerdict.START, HelloVerdict.STALE):
        self.epoch = welcome.epoch
    _welcome(self, welcome, now)


def _flush_not_asked(self: SlaveSet) -> list[int]:
    """What a slave has appended counts, whatever the rules say."""
    return [r.appended for r in self._connected if r.in_sync]


_switch = PendingAcks.switch


def _switch_answers_all(self: PendingAcks[Any], mode: ReplicationMode, end: int) -> ModeSwitch:
    """A switch to async is taken for an answer to those who wait."""
    before = self.mode
    switch = _switch(self, mode, PhysicalOffset(end))
    if before is not switch.mode and not self.is_sync:
        self._slaves.replicated = PhysicalOffset(end)
    return switch


def _last_file_only(self: MasterLink, catch_up: CatchUp) -> int:
    """An empty slave begins in the last segment, whoever waits for what lies before."""
    log = self._master.log
    if catch_up is CatchUp.OLDEST:
        return log.begin
    return max(log.begin, log.end - log.end % log.segment_bytes)


def _nothing_superseded(self: SlaveSet, identity: str) -> None:
    """What a slave said on an earlier connection goes on counting."""


def _dialects_are_slaves(self: SlaveSet) -> list[int]:
    """A stock connection and a native one are two slaves."""
    best: dict[str, int] = {}
    for slave in self._connected:
        if slave.in_sync:
            held = slave.flushed if self.rules.counts_flushed else slave.appended
            best[slave.identity] = max(held, best.get(slave.identity, NOTHING))
    return list(best.values())


def _promote_who_is_in_sync(
    candidate: Candidate, kept: KeptRecords, others: Sequence[OtherSlave]
) -> PromotionVerdict:
    """Whoever was in sync may become master."""
    record = candidate.record
    is_in_sync = (
        record is not None and record.is_sync and not candidate.members.isdisjoint(record.members)
    )
    return PromotionVerdict(is_in_sync, "in sync")


def _mode_at_once(self: Master[Any]) -> ReplicationMode:
    """A switch to async counts before anybody could note it."""
    return self.mode


def _anybody_counts(self: RecordKeeper, member: str) -> bool:
    """A slave counts as soon as it is in sync."""
    return True


def _saved_is_enough(self: RecordKeeper, record: InSyncRecord, order: tuple[int, int]) -> bool:
    """A record counts when the master has it."""
    return True


def _record_before_it_is_true(self: RecordKeeper, *_: object) -> bool:
    """A record names slaves that do not hold what was answered."""
    return True


def _emptied_nameserver_counts(
    self: KeptRecords, nameservers: Sequence[str], order: tuple[int, int]
) -> int:
    """A nameserver that has nothing is believed that there is nothing."""
    return sum(name in self.answers for name in nameservers)


def _one_life(store_id: bytes, incarnation: int) -> str:
    """A slave that lost what it held is taken for the one it was."""
    return store_id.hex()


def _one_name(store_id: bytes, incarnations: Iterable[int]) -> frozenset[str]:
    return frozenset({store_id.hex()})


def _one_nameserver(self: KeptRecords, nameservers: Sequence[str], order: tuple[int, int]) -> int:
    """One nameserver speaks for all."""
    return len(nameservers) if self.answers else 0


def _same_name(self: node.Node, candidate: node.Node) -> OtherSlave:
    """A slave goes on as it is recorded while another one is promoted."""
    return self.as_other(candidate)


def _goes_on_following(self: SlavePart) -> None:
    """A slave that is being promoted follows its master until it is one."""


def _whatever_is_kept(self: RecordKeeper, record: InSyncRecord | None) -> bool:
    """The first record of an epoch takes the place of any other."""
    return True


_met = RecordKeeper.met


def _emptied_is_a_witness(self: RecordKeeper, record: InSyncRecord | None) -> bool:
    """A nameserver that was emptied while somebody was promoted counts."""
    return record is None or _met(self, record)


def _followed_at_once(self: RecordKeeper) -> bool:
    """Slaves follow a master whose epoch may not begin."""
    return self.overtaken_by is not None


def _goes_on_by_the_past(self: RecordKeeper, record: InSyncRecord) -> bool:
    """A master that may have lost the end of its log goes on by its old record."""
    return record.epoch == self.epoch


def _always_last(*_: object) -> bool:
    """Who was master once was the last one."""
    return True


def _handed_over_for_good(self: Candidate) -> bool:
    """A hand-over counts however long ago it was, whoever the slave has followed since."""
    return self.hand_over is not None


def _nobody_else(*_: object) -> frozenset[str]:
    """A master knows all that was acknowledged in its epoch."""
    return frozenset()


def _not_taken(self: RecordKeeper, record: InSyncRecord | None) -> bool:
    """A record takes the place of that of another master of the epoch."""
    return not self.is_pending or _met(self, record)


def _begins_at_once(self: RecordKeeper) -> bool:
    """A master writes before it knows that it may stay master."""
    return True


def _began_anyhow(master: Master[int]) -> bool:
    """Every master that steps down knows all that was acknowledged."""
    return True


def _never_fenced(self: RecordKeeper) -> bool:
    """A master that was replaced goes on recording."""
    return False


def _ignore_fence(self: RecordKeeper, value: bool) -> None:
    pass


_refresh = SlaveSet.refresh


def _lag_by_time_only(self: SlaveSet, now: float) -> list[SlaveProgress]:
    """However much a slave lacks, it counts while it was caught up not long ago."""
    rules, self.rules = self.rules, replace(self.rules, lag_bytes_max=2**62)
    try:
        return _refresh(self, now)
    finally:
        self.rules = rules


_HELD = (Rule.ACKNOWLEDGED_IS_HELD,)
_KEPT = (Rule.PROMOTION_LOSES_NOTHING,)

BUGS: tuple[Planted, ...] = (
    Planted(
        "a slave acknowledges before it copies",
        ((SlaveLink, "_send_report", _report_before_copy),),
        (Rule.REPORT_IS_TRUE,),
        200,
        98,
    ),
    Planted("the maximum instead of the vector", ((SlaveSet, "_count", _maximum),), _HELD, 200, 7),
    Planted(
        "the first report is not checked",
        ((MasterLink, "_begin", _unchecked_first_report),),
        (Rule.FORGERY_COUNTS_NOTHING,),
        200,
        3,
    ),
    Planted(
        "no deadline of one's own",
        ((PendingAcks, "expire", _no_own_deadline),),
        (Rule.OWN_DEADLINE,),
        200,
        9,
    ),
    Planted(
        "two links of a slave count twice",
        ((SlaveSet, "join", _two_links_two_slaves),),
        _HELD,
        1000,
        209,
    ),
    Planted(
        "a slave that was ejected counts",
        ((SlaveSet, "refresh", _ejected_counts),),
        (Rule.IN_SYNC_IS_TRUE,),
        200,
        0,
    ),
    Planted(
        "a heartbeat keeps a slave in sync",
        ((SlaveSet, "holds", _heartbeat_keeps_in_sync),),
        (Rule.IN_SYNC_IS_TRUE,),
        200,
        11,
    ),
    Planted(
        "too many missing bytes do not matter",
        ((SlaveSet, "refresh", _lag_by_time_only),),
        (Rule.IN_SYNC_IS_TRUE,),
        200,
        1,
    ),
    Planted(
        "the tail is not compared",
        ((MasterLink, "_judge", _tail_not_compared),),
        (Rule.SAME_BYTES,),
        200,
        3,
    ),
    Planted(
        "an earlier epoch is followed",
        (
            (MasterLink, "_judge", _stale_accepted),
            (SlaveLink, "_welcome", _stale_followed),
        ),
        (Rule.EPOCHS_RISE,),
        2000,
        478,
    ),
    Planted(
        "what is not flushed counts as flushed",
        ((SlaveSet, "_held", _flush_not_asked),),
        _HELD,
        200,
        6,
    ),
    Planted(
        "a switch to async answers those who wait",
        ((PendingAcks, "switch", _switch_answers_all),),
        _HELD,
        200,
        6,
    ),
    Planted(
        "an empty slave answers sends it never gets",
        ((MasterLink, "_start_of_empty", _last_file_only),),
        _HELD,
        600,
        248,
    ),
    Planted(
        "what a slave said on an earlier link counts",
        ((SlaveSet, "supersede", _nothing_superseded),),
        _HELD,
        1600,
        719,
    ),
    Planted(
        "a slave counts once in each dialect",
        ((SlaveSet, "_held", _dialects_are_slaves),),
        _HELD,
        6000,
        88,
    ),
    Planted(
        "whoever is in sync may become master",
        ((sim_promotion, "decide", _promote_who_is_in_sync),),
        _KEPT,
        200,
        47,
    ),
    Planted(
        "async counts before it is recorded",
        ((Master, "_mode_in_force", _mode_at_once),),
        _KEPT,
        1000,
        44,
    ),
    Planted(
        "a slave counts before it is recorded",
        ((RecordKeeper, "allows", _anybody_counts),),
        _KEPT,
        40000,
        25059,
    ),
    Planted(
        "a record counts before others have it",
        ((RecordKeeper, "_is_overcome", _saved_is_enough),),
        _KEPT,
        200,
        44,
    ),
    Planted(
        "a record names slaves that lack something",
        ((RecordKeeper, "_is_true", _record_before_it_is_true),),
        _KEPT,
        12000,
        5070,
    ),
    Planted(
        "a nameserver that was emptied is believed",
        ((KeptRecords, "knowing", _emptied_nameserver_counts),),
        (*_KEPT, Rule.ALL_CATCH_UP),
        2000,
        478,
    ),
    Planted(
        "one nameserver speaks for all",
        ((KeptRecords, "knowing", _one_nameserver),),
        (*_KEPT, Rule.ALL_CATCH_UP),
        2000,
        478,
    ),
    Planted(
        "a slave that lost its log is the one it was",
        (
            (node, "member_name", _one_life),
            (node, "member_names", _one_name),
            (master_link, "member_name", _one_life),
        ),
        _KEPT,
        4000,
        1486,
    ),
    Planted(
        "a slave keeps its name while another is promoted",
        ((node.Node, "renounce", _same_name),),
        _KEPT,
        2000,
        80,
    ),
    Planted(
        "a slave follows while it is promoted",
        ((SlavePart, "suspend", _goes_on_following),),
        _KEPT,
        4000,
        1346,
    ),
    Planted(
        "a record that was written meanwhile is not noticed",
        ((RecordKeeper, "met", _whatever_is_kept),),
        _KEPT,
        200,
        106,
    ),
    Planted(
        "a nameserver that was emptied meanwhile is a witness",
        ((RecordKeeper, "met", _emptied_is_a_witness),),
        _KEPT,
        20000,
        9470,
    ),
    Planted(
        "a master is followed before its epoch has begun",
        ((RecordKeeper, "is_pending", property(_followed_at_once)),),
        (*_KEPT, Rule.ALL_CATCH_UP),
        20000,
        6903,
    ),
    Planted(
        "who was master once was the last",
        ((promotion, "_is_last_epoch", _always_last),),
        _KEPT,
        2000,
        94,
    ),
    Planted(
        "a master that lost the end of its log goes on by its old record",
        ((RecordKeeper, "_is_of_today", _goes_on_by_the_past),),
        _KEPT,
        40000,
        27319,
    ),
    Planted(
        "a hand-over counts although the slave has followed another master since",
        ((promotion.Candidate, "is_handed_over", property(_handed_over_for_good)),),
        _KEPT,
        80000,
        62558,
    ),
    Planted(
        "a hand-over counts although its master was not the only one of its epoch",
        (
            (promotion, "masters_of", _nobody_else),
            (RecordKeeper, "met", _not_taken),
        ),
        _KEPT,
        250000,
        243039,
    ),
    Planted(
        "a master writes before its epoch has begun",
        ((RecordKeeper, "has_begun", property(_begins_at_once)),),
        _KEPT,
        20000,
        13639,
    ),
    Planted(
        "a forced master that had not begun its epoch was the last one",
        ((node.Node, "_has_begun", staticmethod(_began_anyhow)),),
        _KEPT,
        50000,
        47092,
    ),
    Planted(
        "a fenced master goes on recording",
        ((RecordKeeper, "is_fenced", property(_never_fenced, _ignore_fence)),),
        _KEPT,
        160000,
        158611,
    ),
)
