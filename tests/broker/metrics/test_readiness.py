"""When a broker is ready, and what it says when it is not."""

from __future__ import annotations

import pytest

from rmq.broker.metrics.readiness import WORDS, why_unready
from rmq.ha.slave_status import SlaveState
from rmq.store.core import Refusal
from tests.broker.metrics.metrics_kit import master_status, slave_status


def words(status: object, refusal: Refusal | None = None, **changes: object) -> list[str]:
    given = {"is_stopping": False, "nameservers": 1, "registered_at": 1, **changes}
    return [reason.word for reason in why_unready(status, refusal, **given)]  # type: ignore[arg-type]


def test_a_master_that_takes_messages_and_is_listed_is_ready() -> None:
    assert words(master_status()) == []
    assert words(master_status(), nameservers=0, registered_at=0) == []


def test_a_broker_that_no_nameserver_lists_is_not() -> None:
    assert words(master_status(), registered_at=0) == ["not_registered"]
    assert words(master_status(), nameservers=3, registered_at=1) == []


@pytest.mark.parametrize("refusal", list(Refusal))
def test_a_master_that_takes_nothing_is_not(refusal: Refusal) -> None:
    [word] = words(master_status(), refusal)
    assert word in WORDS
    [reason] = why_unready(
        master_status(), refusal, is_stopping=False, nameservers=0, registered_at=0
    )
    assert str(reason) == f"{word}: {refusal.value}"


def test_a_slave_is_ready_when_its_master_counts_it() -> None:
    assert words(slave_status(in_sync=True)) == []
    assert words(slave_status(in_sync=False)) == ["not_in_sync"]
    # A stock master does not say whom it counts.
    assert words(slave_status(in_sync=False, native=False)) == []


@pytest.mark.parametrize("state", list(SlaveState))
def test_a_slave_that_does_not_follow_is_not(state: SlaveState) -> None:
    live = state in (SlaveState.CATCHING_UP, SlaveState.STREAMING)
    assert words(slave_status(state.value)) == ([] if live else ["not_connected"])


def test_all_reasons_that_hold_are_told() -> None:
    found = words(slave_status("connecting"), Refusal.DISK_FULL, is_stopping=True, registered_at=0)
    assert found == ["stopping", "disk_full", "not_connected", "not_registered"]
    assert words(master_status(), Refusal.CLOSED, is_stopping=True) == ["stopping"]
