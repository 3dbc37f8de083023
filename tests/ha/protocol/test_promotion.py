"""Whether a slave may become master."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.ha.protocol.promotion import Candidate, HandOver, KeptRecords, OtherSlave, decide
from rmq.model.in_sync_record import InSyncRecord, member_name, store_of
from rmq.model.offsets import PhysicalOffset

# ruff: noqa: ANN401 - fields are put in by name

MINE: Final = member_name(b"m" * 16, 2)
YOURS: Final = member_name(b"y" * 16, 0)
NS: Final = ("n1:9876", "n2:9876", "n3:9876")
RECORD: Final = InSyncRecord(
    epoch=3, version=7, is_sync=True, needed=1, members=(MINE,), nameservers=NS
)
BOTH: Final = msgspec.structs.replace(RECORD, members=(MINE, YOURS))
GOOD: Final = Candidate(
    members=frozenset({MINE}),
    store=store_of(MINE),
    epoch=3,
    end=PhysicalOffset(500),
    record=RECORD,
)
SILENT: Final = OtherSlave("silent", None, None)


def record(before: InSyncRecord = RECORD, **changes: Any) -> InSyncRecord:
    """Return the record that follows another one."""
    return msgspec.structs.replace(before, **({"version": before.version + 1} | changes))


def other(end: int, *, epoch: int = 3, member: str = YOURS) -> OtherSlave:
    return OtherSlave("other", epoch, PhysicalOffset(end), frozenset({member}))


def all_have(kept: InSyncRecord | None) -> KeptRecords:
    return KeptRecords(dict.fromkeys(NS, kept))


@pytest.mark.parametrize(
    ("candidate", "kept", "others", "reason"),
    [
        pytest.param(replace(GOOD, record=None), KeptRecords(), [], "not told it", id="never told"),
        pytest.param(
            replace(GOOD, record=None), all_have(RECORD), [], "not told it", id="told to others"
        ),
        pytest.param(
            replace(GOOD, record=None, follows_stock=True),
            KeptRecords(),
            [],
            "stock master",
            id="stock",
        ),
        pytest.param(
            replace(GOOD, end=PhysicalOffset(0)),
            all_have(RECORD),
            [],
            "holds nothing",
            id="emptied",
        ),
        pytest.param(
            replace(GOOD, record=record(is_sync=False, members=())),
            all_have(record(is_sync=False, members=())),
            [],
            "async",
            id="async",
        ),
        pytest.param(
            GOOD,
            all_have(record(is_sync=False, members=())),
            [],
            "async",
            id="async since it was cut off",
        ),
        pytest.param(
            GOOD,
            KeptRecords({NS[0]: record(is_sync=False), NS[1]: RECORD, NS[2]: RECORD}),
            [],
            "async",
            id="one nameserver knows better",
        ),
        pytest.param(
            GOOD,
            all_have(RECORD),
            [other(400)._replace(record=record(members=(YOURS,)))],
            "1 other slave",
            id="another slave knows better",
        ),
        pytest.param(
            GOOD, all_have(record(members=(YOURS,))), [], "1 other slave", id="names somebody else"
        ),
        pytest.param(GOOD, all_have(record(members=())), [], "no slaves", id="names nobody"),
        pytest.param(
            replace(GOOD, members=frozenset({member_name(b"m" * 16, 3)})),
            all_have(RECORD),
            [],
            "without saving its log",
            id="was killed since",
        ),
        pytest.param(
            GOOD,
            KeptRecords({NS[0]: RECORD}),
            [],
            "only 1 of 3 told it: n2:9876, n3:9876 did not answer",
            id="most nameservers are away",
        ),
        pytest.param(
            GOOD,
            KeptRecords({NS[0]: RECORD, NS[1]: None, NS[2]: None}),
            [],
            "n2:9876, n3:9876 has none",
            id="most nameservers were emptied",
        ),
        pytest.param(
            GOOD,
            all_have(record(version=6)),
            [],
            "older than what this slave has",
            id="nameservers know less",
        ),
        pytest.param(
            GOOD,
            KeptRecords({NS[0]: record(nameservers=("other:1",)), NS[1]: RECORD, NS[2]: RECORD}),
            [],
            "other:1 did not answer",
            id="other nameservers since",
        ),
        pytest.param(GOOD, all_have(RECORD), [other(501)], "1 bytes more", id="another has more"),
        pytest.param(
            GOOD,
            all_have(RECORD),
            [other(501, epoch=2)._replace(hears_epochs=False)],
            "has 1 bytes more",
            id="another has more, perhaps of this epoch",
        ),
        pytest.param(
            GOOD, all_have(RECORD), [other(10, epoch=4)], "epoch 4", id="another is of a later one"
        ),
        pytest.param(
            GOOD,
            all_have(RECORD),
            [OtherSlave("nameserver", 4, None)],
            "epoch 4",
            id="nameserver knows a later epoch",
        ),
        pytest.param(
            GOOD, all_have(record(epoch=4, version=1)), [], "of epoch 4", id="recorded later epoch"
        ),
        pytest.param(
            replace(GOOD, epoch=4), all_have(RECORD), [], "of epoch 3", id="nothing recorded since"
        ),
        pytest.param(GOOD, all_have(record(BOTH)), [], "1 of 2 slaves", id="another is unknown"),
        pytest.param(GOOD, all_have(record(BOTH)), [SILENT], "1 of 2", id="another is silent"),
        pytest.param(
            GOOD,
            all_have(record(BOTH)),
            [other(400, member=member_name(b"y" * 16, 1))],
            "1 of 2 slaves",
            id="the other one was killed since",
        ),
        pytest.param(
            GOOD, all_have(record(BOTH)), [other(0)], "1 of 2", id="the other one was wiped"
        ),
        pytest.param(
            GOOD,
            all_have(record(BOTH)),
            [other(400, epoch=2)],
            "1 of 2 slaves",
            id="the other one is of another epoch",
        ),
    ],
)
def test_it_may_not(
    candidate: Candidate, kept: KeptRecords, others: list[OtherSlave], reason: str
) -> None:
    verdict = decide(candidate, kept, others)
    assert not verdict.is_safe
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("kept", "others"),
    [
        pytest.param(all_have(RECORD), [], id="the only slave"),
        pytest.param(KeptRecords({NS[0]: RECORD, NS[2]: RECORD}), [], id="most nameservers answer"),
        pytest.param(
            KeptRecords({NS[0]: RECORD, NS[1]: None, NS[2]: RECORD}),
            [],
            id="one nameserver was emptied",
        ),
        pytest.param(all_have(RECORD), [other(500)], id="another has as much"),
        pytest.param(all_have(RECORD), [other(900, epoch=2)], id="more of an earlier epoch"),
        pytest.param(all_have(RECORD), [SILENT], id="who is silent did not count"),
        pytest.param(all_have(record(BOTH)), [other(400)], id="the other one has less"),
        pytest.param(all_have(record(BOTH, needed=2)), [SILENT], id="both were needed"),
        pytest.param(
            KeptRecords({NS[0]: record(), NS[1]: RECORD}), [], id="one has a later record"
        ),
    ],
)
def test_it_may(kept: KeptRecords, others: list[OtherSlave]) -> None:
    verdict = decide(GOOD, kept, others)
    assert verdict.is_safe, verdict.reason
    assert verdict.reason == "everything that was answered SEND_OK is here"


def test_without_nameservers_its_own_record_is_enough() -> None:
    """Its master had to tell it before it relied on anything else."""
    alone = msgspec.structs.replace(RECORD, nameservers=())
    assert decide(replace(GOOD, record=alone), KeptRecords(), []).is_safe


def test_without_nameservers_others_may_have_become_master_by_an_earlier_record() -> None:
    alone = msgspec.structs.replace(RECORD, nameservers=(), rivals=(YOURS,))
    verdict = decide(replace(GOOD, record=alone), KeptRecords(), [])
    assert (verdict.is_safe, "by an earlier record" in verdict.reason) == (False, True)


@given(
    st.integers(1, 3),
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.sets(st.integers(1, 4)),
)
def test_what_is_allowed_loses_nothing_that_can_have_been_acknowledged(
    needed: int, ends: list[int], silent: set[int]
) -> None:
    """Slave 0 asks; all were in sync. A message is acknowledged if any `needed` slaves hold it."""
    names = [MINE, *(f"s{number}.0" for number in range(1, len(ends)))]
    known = record(needed=needed, members=tuple(names))
    others = [
        OtherSlave(name, None, None) if number in silent else other(ends[number], member=name)
        for number, name in enumerate(names)
        if number
    ]
    verdict = decide(replace(GOOD, end=PhysicalOffset(ends[0])), all_have(known), others)
    # Those who are silent may hold any amount: let it be a lot.
    true_ends = [9 if number in silent else end for number, end in enumerate(ends)]
    acknowledged = max(
        (min(group) for group in combinations(true_ends, needed) if len(true_ends) >= needed),
        default=0,
    )
    if verdict.is_safe:
        assert acknowledged <= ends[0]


# --- who was master last --------------------------------------------------------------------------

ASYNC: Final = record(is_sync=False, needed=0, members=(), master=store_of(MINE))
BY_OTHER: Final = msgspec.structs.replace(ASYNC, master=store_of(YOURS))
GONE: Final = OtherSlave("old", 3, PhysicalOffset(500), gave_way=True, store=store_of(YOURS))


def test_who_was_master_last_is_master_again() -> None:
    assert decide(replace(GOOD, record=ASYNC, was_last=True), all_have(ASYNC), []).is_safe


def test_whoever_has_all_of_the_last_master_may_follow_it() -> None:
    assert decide(replace(GOOD, record=BY_OTHER), all_have(BY_OTHER), [GONE]).is_safe
    assert not decide(replace(GOOD, record=BY_OTHER), all_have(BY_OTHER), []).is_safe


@pytest.mark.parametrize(
    ("own", "kept", "others"),
    [
        pytest.param(BY_OTHER, all_have(BY_OTHER), [], id="which it has followed since"),
        pytest.param(ASYNC, all_have(record(ASYNC, master="x")), [], id="which wrote a later one"),
        pytest.param(
            record(ASYNC),
            KeptRecords({NS[0]: msgspec.structs.replace(ASYNC, master="x"), NS[1]: record(ASYNC)}),
            [],
            id="which wrote an earlier one",
        ),
        pytest.param(
            ASYNC,
            all_have(ASYNC),
            [OtherSlave("x", 3, PhysicalOffset(400), record=BY_OTHER)],
            id="which only its slave knows",
        ),
    ],
)
def test_who_was_master_last_does_not_know_what_another_of_its_epoch_acknowledged(
    own: InSyncRecord, kept: KeptRecords, others: list[OtherSlave]
) -> None:
    assert not decide(replace(GOOD, record=own, was_last=True), kept, others).is_safe


def test_whoever_has_all_of_one_master_may_lack_what_another_of_its_epoch_acknowledged() -> None:
    """Both were promoted at the same time, one of them with `--accept-loss`."""
    follower = replace(GOOD, record=BY_OTHER)
    later = record(BY_OTHER, master="x")
    assert not decide(follower, all_have(later), [GONE]).is_safe
    assert not decide(replace(follower, record=later), all_have(later), [GONE]).is_safe


@pytest.mark.parametrize(
    ("kept", "others"),
    [
        pytest.param(all_have(msgspec.structs.replace(ASYNC, epoch=4)), [], id="recorded"),
        pytest.param(
            all_have(msgspec.structs.replace(ASYNC, version=99, master="another")),
            [],
            id="another one in the same epoch",
        ),
        pytest.param(all_have(ASYNC), [OtherSlave("x", 4, None)], id="known to another"),
        pytest.param(KeptRecords({NS[0]: ASYNC}), [], id="too few nameservers answer"),
        pytest.param(all_have(None), [], id="nameservers were emptied"),
    ],
)
def test_nobody_was_master_last_where_there_may_be_a_later_one(
    kept: KeptRecords, others: list[OtherSlave]
) -> None:
    asked = replace(GOOD, record=ASYNC, was_last=True)
    assert not decide(asked, kept, others).is_safe


@pytest.mark.parametrize("is_sync", [True, False])
def test_without_nameservers_and_members_nobody_knows_who_was_the_last(is_sync: bool) -> None:
    alone = msgspec.structs.replace(ASYNC, nameservers=(), is_sync=is_sync)
    assert not decide(replace(GOOD, record=alone, was_last=True), KeptRecords(), []).is_safe


# --- a master that stepped down for this slave ----------------------------------------------------

HANDED_OVER: Final = replace(
    GOOD, record=BY_OTHER, hand_over=HandOver(3, PhysicalOffset(500), store_of(YOURS))
)


@pytest.mark.parametrize("kept", [all_have(BY_OTHER), KeptRecords()], ids=["answer", "are silent"])
def test_a_hand_over_needs_no_record(kept: KeptRecords) -> None:
    assert decide(HANDED_OVER, kept, [SILENT]).is_safe


@pytest.mark.parametrize(
    ("candidate", "kept"),
    [
        pytest.param(
            HANDED_OVER,
            all_have(record(BY_OTHER, master="x", is_sync=True)),
            id="the other one goes on",
        ),
        pytest.param(
            replace(HANDED_OVER, record=record(BY_OTHER)),
            KeptRecords({NS[0]: msgspec.structs.replace(ASYNC, master="x")}),
            id="the other one has an earlier record",
        ),
        pytest.param(
            replace(HANDED_OVER, record=msgspec.structs.replace(ASYNC, master="x")),
            all_have(BY_OTHER),
            id="this slave has followed the other one",
        ),
    ],
)
def test_a_master_that_hands_over_does_not_know_what_another_of_its_epoch_acknowledged(
    candidate: Candidate, kept: KeptRecords
) -> None:
    """Both were promoted at the same time, one of them with `--accept-loss`."""
    verdict = decide(candidate, kept, [])
    assert (verdict.is_safe, "in epoch 3, too" in verdict.reason) == (False, True)


def test_a_hand_over_counts_for_nothing_if_the_master_did_not_say_who_it_is() -> None:
    unnamed = replace(HANDED_OVER, hand_over=HandOver(3, PhysicalOffset(500), ""))
    assert not decide(unnamed, all_have(BY_OTHER), []).is_safe
    nameless = msgspec.structs.replace(BY_OTHER, master="")
    assert not decide(replace(unnamed, record=nameless), all_have(nameless), []).is_safe


@pytest.mark.parametrize(
    ("candidate", "kept", "others"),
    [
        pytest.param(
            replace(HANDED_OVER, epoch=4, record=msgspec.structs.replace(BY_OTHER, epoch=4)),
            all_have(msgspec.structs.replace(BY_OTHER, epoch=4)),
            [],
            id="it has followed a master of the next epoch since",
        ),
        pytest.param(
            replace(HANDED_OVER, end=PhysicalOffset(600)),
            all_have(BY_OTHER),
            [],
            id="its log has grown",
        ),
        pytest.param(
            replace(HANDED_OVER, end=PhysicalOffset(400)),
            all_have(BY_OTHER),
            [],
            id="it lacks the end",
        ),
        pytest.param(
            HANDED_OVER,
            all_have(msgspec.structs.replace(BY_OTHER, epoch=4)),
            [],
            id="a later epoch is recorded",
        ),
        pytest.param(
            HANDED_OVER,
            all_have(BY_OTHER),
            [OtherSlave("x", 4, None)],
            id="another knows a later one",
        ),
    ],
)
def test_a_hand_over_that_is_out_of_date_counts_for_nothing(
    candidate: Candidate, kept: KeptRecords, others: list[OtherSlave]
) -> None:
    assert not decide(candidate, kept, others).is_safe


# --- names ----------------------------------------------------------------------------------------


def test_a_slave_that_renounced_is_still_the_one_that_was_recorded() -> None:
    names = frozenset({MINE, member_name(b"m" * 16, 3)})
    assert decide(replace(GOOD, members=names), all_have(RECORD), []).is_safe


def test_others_that_renounced_are_seen() -> None:
    both = replace(GOOD, record=BOTH)
    renounced = OtherSlave(
        "other", 3, PhysicalOffset(400), frozenset({YOURS, member_name(b"y" * 16, 1)})
    )
    assert decide(both, all_have(BOTH), [renounced]).is_safe
    reborn = OtherSlave("other", 3, PhysicalOffset(400), frozenset({member_name(b"y" * 16, 1)}))
    assert not decide(both, all_have(BOTH), [reborn]).is_safe
