"""Short runs of the targets that have inputs with numbers, and proof that they would notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.broker.pulling.sql import evaluator
from rmq.broker.pulling.sql.nodes import NumberType
from rmq.broker.tables.consumer_offsets import ConsumerOffsets
from rmq.ha.protocol.slave_link import SlaveLink
from rmq.store.recovery import Recovery
from tests.fuzz import fuzz_ha, fuzz_sql
from tests.fuzz.inputs import Tally, examine_inputs
from tests.fuzz.run import TARGETS, main, run, shared_out

if TYPE_CHECKING:
    import random


def assert_nothing_found(tally: Tally, inputs: int) -> None:
    assert not tally.findings, "\n".join([str(tally), *tally.findings])
    assert tally.inputs == tally.outcomes.total() == inputs


def test_damaged_replication_streams_are_taken_or_refused() -> None:
    tally = examine_inputs("ha", fuzz_ha.examine, 1500, seed=498)
    assert_nothing_found(tally, 1500)
    # Streams that are all refused, or none of them, would prove little.
    assert tally.outcomes["master's end: served"] > 100
    assert tally.outcomes["master's end: refused"] > 100
    assert tally.outcomes["slave's end: open"] > 50
    assert tally.outcomes["slave's end: damaged"] > 10


def test_damaged_filters_are_read_or_refused() -> None:
    tally = examine_inputs("sql", fuzz_sql.examine, 500, seed=498)
    assert_nothing_found(tally, 500)
    assert min(tally.outcomes.values()) > 30
    assert set(tally.outcomes) == {"evaluated as plainly", "read", "refused"}


def test_damaged_files_of_a_store_are_read_or_refused() -> None:
    (tally,) = run(100, only=["store"], seed=498)
    assert_nothing_found(tally, 100)
    assert tally.outcomes["opened"] > 40
    assert tally.outcomes["refused"] > 1
    assert tally.outcomes["reader: read"] > 3


def test_damaged_files_of_tables_are_read_or_refused() -> None:
    (tally,) = run(200, only=["tables"], seed=498)
    assert_nothing_found(tally, 200)
    assert min(tally.outcomes["read"], tally.outcomes["refused"]) > 30


def test_a_slave_that_acknowledges_damaged_bytes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlaveLink, "_held", lambda self: (self._log.end, self._log.flushed))
    tally = examine_inputs("ha", fuzz_ha.examine, 1500, seed=498)
    assert any("master does not have" in finding for finding in tally.findings)


def test_a_filter_that_decides_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(evaluator._READERS, NumberType.INTEGER, lambda _: 0)
    tally = examine_inputs("sql", fuzz_sql.examine, 300, seed=498)
    assert any("AssertionError in _compare_with_plain" in finding for finding in tally.findings)


def test_a_store_that_ends_at_a_hole_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recovery, "_refuse_if_cutting_loses_messages", lambda *_: None)
    (tally,) = run(60, only=["store"], seed=498)
    assert any("sound records follow" in finding for finding in tally.findings)


def test_a_table_that_does_not_write_all_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerOffsets, "render", lambda _: '{"offsetTable":{}}')
    (tally,) = run(150, only=["tables"], seed=498)
    assert any("it says something else" in finding for finding in tally.findings)


def test_inputs_are_shared_out_and_numbered_the_same_in_any_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []

    def look(chance: random.Random) -> str:
        seen.append(chance.getrandbits(64))
        return "seen"

    monkeypatch.setattr(fuzz_ha, "examine", look)
    (tally,) = run(30, only=["ha"])
    assert tally.outcomes == {"seen": 30}
    run(1, only=["ha"], first=17)
    run(30, only=["ha"], seed=5)
    assert seen[30] == seen[17]
    assert len(set(seen)) == 60
    assert sum(shared_out(1_000_001, list(TARGETS)).values()) == 1_000_001
    assert shared_out(7, ["store"]) == {"store": 7}


def test_a_finding_is_told_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(chance: random.Random) -> str:
        raise KeyError("topic")

    monkeypatch.setattr(fuzz_sql, "examine", fail)
    assert main(["--inputs", "3", "--only", "sql", "--first", "40", "--seed", "7"]) == 1
    told = capsys.readouterr().out
    assert "KeyError in fail (test_fuzz_run.py:" in told
    assert "python -m tests.fuzz.run --only sql --inputs 1 --first 40 --seed 7\n" in told
    assert "3 inputs" in told


def test_all_targets_run_and_a_run_without_findings_ends_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--inputs", "100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines if line] == list(TARGETS)


def test_an_unknown_target_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "ha,disk"])
    assert "no such target: disk" in capsys.readouterr().err
