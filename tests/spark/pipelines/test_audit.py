"""The audit of a slave's log: everything that can differ is found and named, nothing else is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.errors import ConfigError, StorageError
from rmq.model.record_layout import Record
from rmq.spark.jobs import outputs
from rmq.spark.jobs.audit.compare import differing
from rmq.spark.jobs.audit.ends import FLUSH_WAIT_S, look_at, open_pair
from rmq.spark.jobs.audit.naming import DIFFERS, FOUND, LOST, UNREADABLE
from rmq.spark.jobs.audit.plan import (
    Log,
    NothingInCommonError,
    Range,
    make_plan,
    merged,
    received,
    stretches,
    without,
)
from rmq.spark.jobs.audit.records import field_places, head_of
from rmq.spark.pipelines.audit import PIPELINE
from rmq.spark.pipelines.job import main
from rmq.store.reader.state import LockHolder
from rmq.store.segments import segment_name
from tests.spark.pipelines.audit_kit import (
    SEGMENT_BYTES,
    Placed,
    audit,
    copy_log,
    flip,
    overwrite,
    read,
    write_log,
)
from tests.store.built_records import drawn_records
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[Placed]]:
    """A master, the slave to be made, and what the master holds."""
    folder = tmp_path_factory.mktemp("pair")
    return folder / "master", folder / "slave", write_log(folder / "master", range(60))


def _fresh(pair: tuple[Path, Path, list[Placed]]) -> tuple[Path, Path, list[Placed]]:
    copy_log(pair[0], pair[1])
    return pair


def test_equal_logs(pair: tuple[Path, Path, list[Placed]]) -> None:
    master, slave, placed = _fresh(pair)
    plan, runs, rows = audit(master, slave)
    end = placed[-1].offset + placed[-1].size
    assert plan.compared == Range(0, end)
    assert (plan.lag.size, plan.beyond.size, runs, rows) == (0, 0, [], [])


@given(share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flipped_bit_is_found_and_named(
    pair: tuple[Path, Path, list[Placed]], share: float, bit: int
) -> None:
    master, slave, placed = _fresh(pair)
    end = placed[-1].offset + placed[-1].size
    at = int(share * end)
    flip(slave, at, bit)
    _, runs, rows = audit(master, slave)
    assert runs == [Range(at, at + 1)]
    assert len(rows) == 1
    assert (rows[0].first_byte, rows[0].bytes_differing) == (at, 1)
    hit = [each for each in placed if each.offset <= at < each.offset + each.size]
    if hit:
        assert (rows[0].kind, rows[0].physical_offset) == (DIFFERS, hit[0].offset)
        assert (rows[0].topic, rows[0].unique_key) == ("Orders", f"K{hit[0].number:06d}")
        fields = field_places(
            read(master, hit[0].offset, hit[0].size),
            head_of(read(master, hit[0].offset, hit[0].size)) or pytest.fail("no head"),
        )
        assert rows[0].fields == next(
            name for name, start, stop in fields if start <= at - hit[0].offset < stop
        )
    else:
        assert rows[0].kind == UNREADABLE


@given(record=drawn_records())
def test_fields_are_where_the_declaration_says(record: bytes) -> None:
    head = head_of(record)
    assert head is not None
    parsed = Record.parse(record)
    places = {name: record[start:stop] for name, start, stop in field_places(record, head)}
    assert b"".join(places.values()) == record
    assert places["body"] == parsed.body
    assert places["properties"] == parsed.properties
    assert places["born_host"] == parsed.born_host
    assert int.from_bytes(places["queue_offset"], signed=True) == parsed.queue_offset


def test_the_master_may_be_the_damaged_one(pair: tuple[Path, Path, list[Placed]]) -> None:
    master, slave, placed = _fresh(pair)
    at = placed[20].offset + 100
    flip(slave, at)
    # Roles changed: what was flipped is now the master's.
    _, _, rows = audit(slave, master)
    assert [(row.kind, row.damaged, row.fields) for row in rows] == [(DIFFERS, "master", "body")]
    assert rows[0].reason is not None
    assert rows[0].reason.startswith("master: CRC of the body")


def test_a_record_that_was_never_written(pair: tuple[Path, Path, list[Placed]]) -> None:
    master, slave, placed = _fresh(pair)
    gone = placed[30]
    overwrite(slave, gone.offset, bytes(gone.size))
    _, _, rows = audit(master, slave)
    assert [(row.kind, row.physical_offset, row.reason) for row in rows] == [
        (LOST, gone.offset, "nothing was written there")
    ]


def test_a_damaged_stretch_names_all_its_records(pair: tuple[Path, Path, list[Placed]]) -> None:
    master, slave, placed = _fresh(pair)
    first, last = placed[10], placed[13]
    stop = last.offset + 50
    overwrite(slave, first.offset + 3, bytes([0xEE]) * (stop - first.offset - 3))
    _, _, rows = audit(master, slave)
    assert [row.physical_offset for row in rows] == [each.offset for each in placed[10:14]]
    assert {(row.kind, row.damaged) for row in rows} == {(DIFFERS, "slave")}


@pytest.mark.parametrize("constant_body", [False, True])
def test_records_behind_a_missing_one_have_moved(tmp_path: Path, constant_body: bool) -> None:
    numbers = list(range(40))
    placed = write_log(tmp_path / "master", numbers, constant_body=constant_body)
    write_log(tmp_path / "slave", [*numbers[:17], *numbers[18:]], constant_body=constant_body)
    plan, _, rows = audit(tmp_path / "master", tmp_path / "slave")
    lost = {row.unique_key: row for row in rows if row.kind == LOST}
    found = {row.unique_key: row for row in rows if row.kind == FOUND}
    assert set(lost) - set(found) >= {"K000017"}
    # What lies behind the end of the slave is lag, not a difference.
    behind = {f"K{each.number:06d}" for each in placed if each.offset >= plan.compared.stop}
    assert set(lost) - set(found) - behind == {"K000017"}
    assert not set(found) - set(lost) - behind
    for key in set(lost) & set(found):
        assert lost[key].digest == found[key].digest
    assert not [row for row in rows if row.kind == DIFFERS]


def test_what_the_slave_has_not_received_is_lag(tmp_path: Path) -> None:
    placed = write_log(tmp_path / "master", range(60))
    write_log(tmp_path / "slave", range(50))
    plan, runs, _ = audit(tmp_path / "master", tmp_path / "slave")
    end = placed[-1].offset + placed[-1].size
    assert (runs, plan.lag) == ([], Range(placed[50].offset, end))
    plan, runs, rows = audit(tmp_path / "slave", tmp_path / "master")
    assert runs == [plan.beyond] == [Range(placed[50].offset, end)]
    assert [row.physical_offset for row in rows] == [each.offset for each in placed[50:]]
    assert {row.kind for row in rows} == {FOUND}


def test_retention_is_no_difference(pair: tuple[Path, Path, list[Placed]]) -> None:
    master, slave, _ = _fresh(pair)
    (slave / "commitlog" / segment_name(0)).unlink()
    plan, runs, _ = audit(master, slave)
    assert (runs, plan.only_master, plan.only_slave.size) == ([], Range(0, SEGMENT_BYTES), 0)
    plan, runs, _ = audit(slave, master)
    assert (runs, plan.only_slave) == ([], Range(0, SEGMENT_BYTES))


def test_a_segment_that_is_missing_in_the_middle(pair: tuple[Path, Path, list[Placed]]) -> None:
    master, slave, placed = _fresh(pair)
    (slave / "commitlog" / segment_name(SEGMENT_BYTES)).unlink()
    _, _, rows = audit(master, slave)
    inside = [each for each in placed if SEGMENT_BYTES <= each.offset < 2 * SEGMENT_BYTES]
    lost = [row.physical_offset for row in rows if row.kind == LOST]
    assert lost == [each.offset for each in inside]


def test_a_copy_that_was_cut_short(tmp_path: Path) -> None:
    placed = write_log(tmp_path / "master", range(10))
    copy_log(tmp_path / "master", tmp_path / "slave")
    path = tmp_path / "slave" / "commitlog" / segment_name(0)
    path.write_bytes(path.read_bytes()[: placed[5].offset + 7])
    plan, runs, _ = audit(tmp_path / "master", tmp_path / "slave")
    assert (runs, plan.compared) == ([], Range(0, placed[5].offset))
    assert plan.lag.start == placed[5].offset


@pytest.mark.parametrize("is_crashed", [False, True])
def test_damage_to_the_last_record_is_no_lag(tmp_path: Path, is_crashed: bool) -> None:
    placed = write_log(tmp_path / "master", range(10))
    copy_log(tmp_path / "master", tmp_path / "slave")
    if is_crashed:
        (tmp_path / "slave" / "abort").touch()
    flip(tmp_path / "slave", placed[-1].offset + 95)
    _, _, rows = audit(tmp_path / "master", tmp_path / "slave")
    assert [(row.kind, row.physical_offset) for row in rows] == [(DIFFERS, placed[-1].offset)]


@pytest.mark.parametrize("number", [0, 4, 8])
def test_damage_is_no_end_even_after_a_crash(tmp_path: Path, number: int) -> None:
    placed = write_log(tmp_path / "master", range(10))
    copy_log(tmp_path / "master", tmp_path / "slave")
    (tmp_path / "slave" / "abort").touch()
    flip(tmp_path / "slave", placed[number].offset + 95)
    plan, _, rows = audit(tmp_path / "master", tmp_path / "slave")
    assert plan.lag.size == 0
    assert [row.physical_offset for row in rows] == [placed[number].offset]


def test_a_torn_end_is_lag(tmp_path: Path) -> None:
    placed = write_log(tmp_path / "master", range(10))
    copy_log(tmp_path / "master", tmp_path / "slave")
    (tmp_path / "slave" / "abort").touch()
    overwrite(tmp_path / "slave", placed[-1].offset + 95, bytes(placed[-1].size - 95))
    plan, runs, _ = audit(tmp_path / "master", tmp_path / "slave")
    assert (runs, plan.lag) == ([], Range(placed[-1].offset, placed[-1].offset + placed[-1].size))


def test_what_was_received() -> None:
    record = bytes(range(1, 101))
    assert not received(b"", record, is_torn_possible=False)
    assert not received(bytes(100), record, is_torn_possible=False)
    assert received(record[:99] + b"\xff", record, is_torn_possible=True)
    assert received(record[:80] + bytes(20), record, is_torn_possible=False)
    assert not received(record[:80] + bytes(20), record, is_torn_possible=True)
    assert not received(b"\xaa" * 100, record, is_torn_possible=False)


def test_logs_that_cannot_be_compared(tmp_path: Path) -> None:
    log = Log("m", 0, 8192, 4096, (0, 4096), False)
    with pytest.raises(ConfigError, match="no copies of each other"):
        make_plan(log, Log("s", 0, 8192, 1024, (0,), False))
    with pytest.raises(NothingInCommonError, match="m holds 0 to 8192, s 8192 to 9000"):
        make_plan(log, Log("s", 8192, 9000, 4096, (8192,), False))
    empty = Log("e", 0, 0, 0, (), False)
    assert make_plan(empty, empty).compared.size == 0
    with pytest.raises(StorageError, match="there is no such directory"):
        open_pair(tmp_path / "none", tmp_path, None, None)


def test_a_running_master_is_given_time_to_flush(tmp_path: Path) -> None:
    write_log(tmp_path / "master", range(10))
    write_log(tmp_path / "slave", range(12))
    master, slave = open_pair(tmp_path / "master", tmp_path / "slave", None, None)
    slept: list[float] = []
    times = iter(range(1000))

    def nap(seconds: float) -> None:
        slept.append(seconds)

    look_at(master, slave, clock=lambda: next(times), sleep=nap)
    assert slept == []  # nobody writes it: waiting would not help
    master.state = master.state._replace(lock_holder=LockHolder(1))
    refresh = master.refresh

    def refresh_and_hold() -> None:
        refresh()
        master.state = master.state._replace(lock_holder=LockHolder(1))

    master.refresh = refresh_and_hold  # type: ignore[method-assign]
    look_at(master, slave, clock=lambda: next(times), sleep=nap)
    assert 1 <= len(slept) <= FLUSH_WAIT_S


def test_stretches_keep_to_segments() -> None:
    parts = stretches(Range(100, 10_000), 4096, 3000)
    assert [(each.start, each.stop) for each in parts] == [
        *((100, 3100), (3100, 4096)),
        *((4096, 7096), (7096, 8192)),
        (8192, 10_000),
    ]
    assert [each.segment for each in parts] == [0, 0, 4096, 4096, 8192]
    assert stretches(Range(5, 5), 4096) == []


def test_ranges() -> None:
    assert merged([Range(5, 9), Range(0, 2), Range(9, 9), Range(8, 12)]) == [
        Range(0, 2),
        Range(5, 12),
    ]
    assert without(Range(0, 10), [Range(2, 4), Range(6, 20)]) == [Range(0, 2), Range(4, 6)]
    assert without(Range(5, 10), [Range(0, 7)]) == [Range(7, 10)]
    assert differing(b"a" * 1000, b"b" + b"a" * 800 + b"bb" + b"a" * 197) == [
        Range(0, 1),
        Range(801, 803),
    ]


def test_the_golden_pair_of_a_stock_cluster(tmp_path: Path) -> None:
    for name in (golden.CLEAN_MASTER, golden.CLEAN_SLAVE):
        golden.unpack(name, tmp_path)
    plan, runs, rows = audit(tmp_path / golden.CLEAN_MASTER, tmp_path / golden.CLEAN_SLAVE)
    assert plan.compared.size > 200_000
    assert (runs, rows, plan.beyond.size) == ([], [], 0)


def test_the_whole_pipeline(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = list(range(60))
    placed = write_log(tmp_path / "master", numbers)
    copy_log(tmp_path / "master", tmp_path / "slave")
    out = tmp_path / "out"
    arguments = ["--master-store", str(tmp_path / "master"), "--slave-store"]
    arguments += [str(tmp_path / "slave"), "--out", str(out), "--json"]
    flip(tmp_path / "slave", placed[7].offset + 95)
    overwrite(tmp_path / "slave", placed[33].offset, bytes(placed[33].size))
    assert main(PIPELINE, arguments) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["facts"]["first_difference"] == placed[7].offset + 95
    assert {kind: told["facts"][kind] for kind in ("differs", "missing", "moved", "extra")} == {
        "differs": 1,
        "missing": 1,
        "moved": 0,
        "extra": 0,
    }
    assert [finding["physical_offset"] for finding in told["findings"]] == [
        placed[7].offset,
        placed[33].offset,
    ]
    rows = spark.read.parquet(str(out / "differences")).orderBy("physical_offset").collect()
    assert [(row["kind"], row["damaged"], row["fields"]) for row in rows] == [
        ("differs", "slave", "body"),
        ("missing", None, None),
    ]
    assert json.loads((out / "audit.json").read_text())["findings"] == told["findings"]
    page = (out / "audit.html").read_text()
    assert "cell-differs" in page
    assert str(placed[7].offset) in page
    # One record less: all behind it have moved.
    copy_log(tmp_path / "master", tmp_path / "slave")
    for path in (tmp_path / "slave" / "commitlog").iterdir():
        path.unlink()
    (tmp_path / "slave" / "commitlog").rmdir()
    write_log(tmp_path / "slave", [*numbers[:17], *numbers[18:], 60, 61])
    assert main(PIPELINE, arguments[:-1]) == 1
    text = capsys.readouterr().out
    assert f"record at physical offset {placed[17].offset} (topic Orders" in text
    assert "records are at other offsets" in text
    # And none at all: what was found before is gone from the folder.
    for path in (tmp_path / "slave" / "commitlog").iterdir():
        path.unlink()
    (tmp_path / "slave" / "commitlog").rmdir()
    copy_log(tmp_path / "master", tmp_path / "slave")
    assert main(PIPELINE, arguments) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "holds"
    assert spark.read.parquet(str(out / "differences")).count() == 0
    # As on a cluster without a shared disk: what tasks write is elsewhere under the same path.
    monkeypatch.setattr(outputs, "spark_path", lambda path: f"{tmp_path}/executor/{path.name}")
    arguments[arguments.index(str(out))] = str(tmp_path / "elsewhere")
    assert main(PIPELINE, arguments) == 2
    told = json.loads(capsys.readouterr().out)
    assert "differences is not on storage that all machines see" in told["verdict"]
