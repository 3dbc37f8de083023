"""Every frame that stock clients, tools and brokers were seen to send, sent to our servers.

What a stock nameserver or broker answered, ours must answer: all of it, and for every difference
there is a reason in `wire_expected`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.model.record import decode_record, decode_records
from tests.e2e.golden_cluster import open_golden_cluster
from tests.e2e.wire_capture import rows
from tests.e2e.wire_compare import fields_of, places
from tests.e2e.wire_expected import EXPECTED, UNSTABLE
from tests.e2e.wire_interludes import RECORDS
from tests.e2e.wire_replay import ORDER, replay_all
from tests.remoting.frames import RUNS
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.model.record import StoredRecord
    from tests.e2e.wire_compare import Difference
    from tests.e2e.wire_expected import Expected, Unstable
    from tests.e2e.wire_replay import Heard, Replayed


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    """What came of all runs, replayed once."""

    async def replay(folder: Path) -> Replayed:
        async with open_golden_cluster(folder) as cluster:
            return await replay_all(cluster)

    return trio.run(replay, tmp_path_factory.mktemp("replay"))


@pytest.mark.parametrize("run", RUNS)
def test_a_captured_run_gets_the_captured_answers(replayed: Replayed, run: str) -> None:
    unexpected = [
        f"{heard.row.request_name} {heard.row.key}: {difference}"
        for heard in replayed.heard
        if heard.run == run
        for difference in heard.differences
        if not _is_expected(heard, difference)
    ]
    assert not unexpected, "\n".join(unexpected)


@pytest.mark.parametrize("expected", EXPECTED, ids=str)
def test_an_expected_difference_is_there(replayed: Replayed, expected: Expected) -> None:
    assert any(
        expected.covers(heard, difference)
        for heard in replayed.heard
        for difference in heard.differences
    ), f"no longer so: {expected.why}"


@pytest.mark.parametrize("unstable", UNSTABLE, ids=str)
def test_an_unstable_value_is_one_that_was_captured(unstable: Unstable) -> None:
    assert any(
        fnmatchcase(where, unstable.where)
        for run in RUNS
        for row in rows(run)
        if row.answers == unstable.name
        for where in places(row.request_name, row.parsed)
    )


def test_codes_header_fields_and_members_of_bodies_are_the_captured_ones(
    replayed: Replayed,
) -> None:
    """Whatever else may be expected to differ."""
    different = [
        (heard.run, heard.row.request_name, difference.where)
        for heard in replayed.heard
        for difference in heard.differences
        if difference.is_of_shape
    ]
    # Captured was that no answer came.
    expected = {("mqadmin-42-clusterAclConfigVersion", "GET_BROKER_CLUSTER_ACL_INFO", "answer")}
    # A slave knows how far its master has delivered.
    expected |= {
        (run, "GET_BROKER_RUNTIME_INFO", f"body.table.scheduleMessageOffset_{level}")
        for run in ("mqadmin-08-clusterList", "mqadmin-10-brokerStatus")
        for level in (1, 2, 3)
    }
    assert set(different) == expected


def test_all_that_captured_servers_said_is_compared(replayed: Replayed) -> None:
    assert sorted(run for group in ORDER for run in group) == RUNS
    captured = Counter(run for run in RUNS for row in rows(run) if not row.is_from_client)
    compared = Counter(heard.run for heard in replayed.heard if not heard.row.is_from_client)
    assert compared == captured
    assert captured.total() == 466


def test_servers_ask_clients_nothing_that_captured_ones_did_not(replayed: Replayed) -> None:
    assert not replayed.uninvited


def test_the_broker_has_stored_what_the_captured_one_had_stored(replayed: Replayed) -> None:
    """Queue by queue: records of different queues may have come in another order."""
    stored = _queues(list(islice(decode_records(replayed.log), RECORDS)))
    captured = _queues(
        [decode_record(record.data) for record in golden.records(golden.CLEAN_MASTER)[:RECORDS]]
    )
    assert stored == captured


def _is_expected(heard: Heard, difference: Difference) -> bool:
    return any(expected.covers(heard, difference) for expected in EXPECTED) or any(
        unstable.covers(heard, difference) for unstable in UNSTABLE
    )


def _queues(records: list[StoredRecord]) -> dict[tuple[str, int], list[dict[str, object]]]:
    """Return the messages of each queue, but not where and when they were stored."""
    queues: defaultdict[tuple[str, int], list[dict[str, object]]] = defaultdict(list)
    for record in records:
        fields = fields_of(record)
        for name in ("physical_offset", "store_ms", "born_host", "born_ms"):
            del fields[name]
        queues[record.topic, record.queue_id].append(fields)
    return queues
