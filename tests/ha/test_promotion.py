"""Whether a slave may become master."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.ha.promotion import LastMaster, OtherSlave, decide
from rmq.ha.slave_link import MasterView

GOOD: Final = LastMaster(
    is_known=True,
    is_native=True,
    is_sync=True,
    is_in_sync=True,
    needed=1,
    in_sync=1,
    replicated=500,
)
SILENT: Final = OtherSlave("silent", None, None)


def other(end: int, *, epoch: int = 3, is_in_sync: bool | None = True) -> OtherSlave:
    return OtherSlave("other", epoch, end, is_in_sync)


@pytest.mark.parametrize(
    ("last", "others", "reason"),
    [
        pytest.param(LastMaster.of(None), [], "heard nothing", id="no master"),
        pytest.param(LastMaster.of(MasterView()), [], "heard nothing", id="none since the start"),
        pytest.param(
            LastMaster.of(MasterView(is_native=True)), [], "heard nothing", id="greeted, no more"
        ),
        pytest.param(LastMaster.of(MasterView(end=9)), [], "stock master", id="stock"),
        pytest.param(replace(GOOD, is_sync=False), [], "async", id="async"),
        pytest.param(replace(GOOD, is_in_sync=False), [], "not in sync", id="out of sync"),
        pytest.param(replace(GOOD, replicated=501), [], "up to 501", id="lacks acknowledged bytes"),
        pytest.param(GOOD, [other(501)], "has 1 bytes more", id="another has more"),
        pytest.param(
            GOOD,
            [other(501, epoch=2)._replace(hears_epochs=False)],
            "has 1 bytes more",
            id="another has more, perhaps of this epoch",
        ),
        pytest.param(
            replace(GOOD, in_sync=2),
            [other(400, epoch=2, is_in_sync=None)._replace(hears_epochs=False)],
            "1 of 2 slaves",
            id="one that may be of another epoch proves nothing",
        ),
        pytest.param(GOOD, [other(10, epoch=4)], "epoch 4", id="another is of a later epoch"),
        pytest.param(
            GOOD, [OtherSlave("nameserver", 4, None)], "epoch 4", id="nameserver knows better"
        ),
        pytest.param(replace(GOOD, in_sync=2), [], "1 of 2 slaves", id="another unknown counted"),
        pytest.param(replace(GOOD, in_sync=2), [SILENT], "1 of 2 slaves", id="another is silent"),
        pytest.param(
            replace(GOOD, in_sync=2),
            [other(400, is_in_sync=False)],
            "1 of 2 slaves",
            id="the one that answers did not count",
        ),
        pytest.param(
            replace(GOOD, in_sync=2), [other(400), SILENT], "1 of 2", id="one of three is silent"
        ),
        pytest.param(
            replace(GOOD, in_sync=2), [other(0)], "1 of 2 slaves", id="the other one was wiped"
        ),
        pytest.param(
            replace(GOOD, needed=2, in_sync=4), [other(400)], "2 of 4", id="two of four unseen"
        ),
    ],
)
def test_it_may_not(last: LastMaster, others: list[OtherSlave], reason: str) -> None:
    verdict = decide(last, epoch=3, end=500, others=others)
    assert not verdict.is_safe
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("last", "others"),
    [
        pytest.param(GOOD, [], id="the only slave"),
        pytest.param(GOOD, [other(500)], id="another has as much"),
        pytest.param(GOOD, [other(900, epoch=2)], id="more of an earlier epoch is not more"),
        pytest.param(GOOD, [SILENT], id="who is silent did not count"),
        pytest.param(GOOD, [OtherSlave("nameserver", 3, None)], id="nameserver agrees"),
        pytest.param(replace(GOOD, in_sync=2), [other(400)], id="the other one has less"),
        pytest.param(replace(GOOD, needed=2, in_sync=2), [SILENT], id="both were needed"),
        pytest.param(replace(GOOD, needed=2, in_sync=3), [other(400), SILENT], id="two of three"),
    ],
)
def test_it_may(last: LastMaster, others: list[OtherSlave]) -> None:
    verdict = decide(last, epoch=3, end=500, others=others)
    assert verdict.is_safe, verdict.reason


def test_what_a_slave_was_told_is_taken_over() -> None:
    view = MasterView(
        is_native=True, is_sync=True, is_in_sync=True, needed=1, in_sync=1, replicated=500
    )
    assert LastMaster.of(view) == GOOD


@given(
    st.integers(1, 3),
    st.lists(st.integers(0, 5), min_size=1, max_size=5),
    st.sets(st.integers(1, 4)),
)
def test_what_is_allowed_loses_nothing_that_can_have_been_acknowledged(
    needed: int, ends: list[int], silent: set[int]
) -> None:
    """Slave 0 asks; all were in sync. A message is acknowledged if any `needed` slaves hold it."""
    last = replace(GOOD, needed=needed, in_sync=len(ends), replicated=0)
    others = [
        OtherSlave(f"s{number}", None, None) if number in silent else other(end)
        for number, end in enumerate(ends)
        if number
    ]
    verdict = decide(last, epoch=3, end=ends[0], others=others)
    # Those who are silent may hold any amount: let it be a lot.
    true_ends = [9 if number in silent else end for number, end in enumerate(ends)]
    acknowledged = max(
        (min(group) for group in combinations(true_ends, needed) if len(true_ends) >= needed),
        default=0,
    )
    if verdict.is_safe:
        assert acknowledged <= ends[0]
