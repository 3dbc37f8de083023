"""A few hundred histories of a store, and of a slave, against plain lists.

`python -m tests.store.model.run_histories --histories 10000` runs many more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rmq.store.commit_log import CommitLog
from rmq.store.consume_queue import ConsumeQueue
from rmq.store.core import FlushPlan, StoreCore
from rmq.store.index_file import IndexFile
from rmq.testing.storage import MemoryStorage
from tests.store.model.machine import StoreMachine
from tests.store.model.run_histories import run_row, silence
from tests.store.model.slave_machine import SlaveMachine
from tests.store.model.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

HISTORIES_PER_SEED: Final = 130
SLAVE_HISTORIES: Final = 40


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    with silence():
        yield


@pytest.mark.parametrize("row_seed", [1, 2], ids=["first seed", "second seed"])
def test_a_store_is_a_list_of_messages_whatever_happens_to_it(row_seed: int) -> None:
    before = Subject.tally.copy()
    run_row(StoreMachine, row_seed, HISTORIES_PER_SEED)
    happened = Subject.tally - before
    # Histories in which nothing happens would prove nothing.
    assert happened["histories"] >= HISTORIES_PER_SEED
    assert happened["the power is cut"] > HISTORIES_PER_SEED // 2
    assert happened["the process is killed"] > HISTORIES_PER_SEED // 2
    assert happened["clean stops"] > HISTORIES_PER_SEED // 4
    assert happened["recovery points"] > HISTORIES_PER_SEED // 4
    assert happened["records lost"] > HISTORIES_PER_SEED
    for event in ("segments expired", "calls failed", "reads: FOUND"):
        assert happened[event], event
    for place in ("steps", "starts"):
        assert happened[f"{place} interrupted: the power is cut"], place


def test_a_slave_has_what_its_master_has_whatever_happens_to_it() -> None:
    before = Subject.tally.copy()
    run_row(SlaveMachine, 7, SLAVE_HISTORIES)
    happened = Subject.tally - before
    assert happened["pieces shipped"] > SLAVE_HISTORIES
    assert happened["the power is cut"] > SLAVE_HISTORIES // 2


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(FlushPlan, "run", id="the log is not synced"),
        pytest.param(ConsumeQueue, "mark_synced", id="queues count as older than they are"),
        pytest.param(IndexFile, "sync", id="the index is not synced"),
        pytest.param(MemoryStorage, "sync_directory", id="directories are not synced"),
        pytest.param(ConsumeQueue, "clear_tail", id="what lies behind a queue is kept"),
        pytest.param(CommitLog, "discard_spare", id="a spare segment is left over"),
        pytest.param(StoreCore, "follow_log", id="queues and index do not follow the log"),
    ],
)
def test_histories_would_notice_if(
    kind: type[object], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, name, lambda *_, **__: None)
    with pytest.raises(Exception):  # noqa: B017, PT011 - there are many ways to find out
        run_row(StoreMachine, 3, 300, is_shrunk=False)
