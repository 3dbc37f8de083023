"""The pipeline verify: what is pending, the verdict, and one run on Spark."""

from __future__ import annotations

import io
import json
import shutil
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from rmq.errors import CorruptStoreError
from rmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from rmq.model.properties import encode_properties
from rmq.model.record import NewMessage
from rmq.spark.jobs import outputs
from rmq.spark.jobs.store_offsets import delay_offsets, group_offsets
from rmq.spark.jobs.verify import pending as verify_pending
from rmq.spark.jobs.verify.pending import find_pending
from rmq.spark.pipelines.job import build_parser, run_pipeline
from rmq.spark.pipelines.verify import PIPELINE
from rmq.store.config import StoreConfig
from rmq.store.core import StoreCore
from rmq.store.reader import Reader
from tests.patching import patch
from tests.spark.pipelines.verify_kit import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    START_MS,
    files_below,
    open_store,
    write_store,
)
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rmq.spark.jobs.verify.pending import Pending

MINUTE_MS = 60_000
GEOMETRY = ("--index-slots", str(INDEX_SLOTS), "--index-entries", str(INDEX_ENTRIES))


def message(topic: str, body: bytes = b"x", queue_id: int = 0, **pairs: str) -> NewMessage:
    return NewMessage(topic, queue_id, body, encode_properties(pairs), born_ms=START_MS)


def write(root: Path, messages: list[NewMessage]) -> None:
    store = open_store(root)
    for each in messages:
        store.append([each])
    store.close()


def write_config(root: Path, name: str, table: Mapping[Any, Any]) -> None:
    path = root / "config" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"offsetTable": table}))


def pending(root: Path, after_minutes: int) -> Pending:
    with Reader(root) as reader:
        now_ms = START_MS + after_minutes * MINUTE_MS
        return find_pending(reader, int(reader.end_offset), now_ms, 30 * MINUTE_MS)


def half(name: str) -> NewMessage:
    return message(HALF_TOPIC, UNIQ_KEY=name, REAL_TOPIC="Orders")


# --- transactions -----------------------------------------------------------------------------


@pytest.fixture
def with_transactions(tmp_path: Path) -> Path:
    """Half messages 0 to 4: 1 is decided, 4 is a copy of 2."""
    halves = [half("a"), half("b"), half("c"), half("d"), half("c")]
    write(tmp_path, [*halves, message(OP_HALF_TOPIC, b"1", TAGS="d")])
    return tmp_path


def test_half_messages_are_settled_by_op_messages_and_by_copies(with_transactions: Path) -> None:
    write_config(with_transactions, "consumerOffset.json", {})
    found = pending(with_transactions, after_minutes=10)
    assert (found.half_messages, found.overdue, found.unknown) == (3, (), ())


def test_a_copy_that_is_decided_settles_those_before_it(tmp_path: Path) -> None:
    write(tmp_path, [half("a"), half("a"), half("b"), message(OP_HALF_TOPIC, b"1", TAGS="d")])
    write_config(tmp_path, "consumerOffset.json", {})
    found = pending(tmp_path, after_minutes=45)
    assert [each.queue_offset for each in found.overdue] == [2]


def test_without_the_progress_of_transactions_nothing_is_claimed(with_transactions: Path) -> None:
    """A broker gives up what nobody decides, and its progress is all that tells."""
    found = pending(with_transactions, after_minutes=600)
    assert (found.half_messages, found.overdue) == (0, ())
    assert found.unknown == (
        "whether transactions were decided: there is no config/consumerOffset.json",
    )


@pytest.mark.parametrize(
    ("ops", "halves", "topic"), [(3, 1, OP_HALF_TOPIC), (1, 3, HALF_TOPIC), (3, 3, OP_HALF_TOPIC)]
)
def test_nothing_is_overdue_where_decisions_may_be_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ops: int, halves: int, topic: str
) -> None:
    """The op message, or the copy, that settles a half message may be behind the limit."""
    told = [message(OP_HALF_TOPIC, b"%d" % number, TAGS="d") for number in range(7, 7 + ops)]
    write(tmp_path, [half(str(number)) for number in range(halves)] + told)
    write_config(tmp_path, "consumerOffset.json", {})
    found = pending(tmp_path, after_minutes=45)
    assert (len(found.overdue), found.unknown) == (halves, ())
    monkeypatch.setattr(verify_pending, "ENTRIES_MAX", 2)
    found = pending(tmp_path, after_minutes=45)
    assert (found.half_messages, found.overdue) == (0, ())
    (unknown,) = found.unknown
    assert unknown == (
        "whether transactions of queue 0 were decided: there are more than 2 messages to read in"
        f" {topic}"
    )


def test_bodies_of_undecided_messages_are_not_kept(tmp_path: Path) -> None:
    body = bytes(64 * 1024)
    store = StoreCore(StoreConfig(root=tmp_path, segment_bytes=1 << 24), now_ms=lambda: START_MS)
    for number in range(200):
        pairs = encode_properties({"UNIQ_KEY": str(number), "REAL_TOPIC": "Orders"})
        store.append([NewMessage(HALF_TOPIC, 0, body, pairs, born_ms=START_MS)])
    store.close()
    write_config(tmp_path, "consumerOffset.json", {})
    tracemalloc.start()
    try:
        found = pending(tmp_path, after_minutes=45)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.overdue) == 200
    # A block of the file is read at once.
    assert most < 80 * len(body)


def test_of_many_overdue_messages_the_first_are_kept_and_all_counted(
    with_transactions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(with_transactions, "consumerOffset.json", {})
    monkeypatch.setattr(verify_pending, "OVERDUE_MAX", 2)
    found = pending(with_transactions, after_minutes=45)
    assert (len(found.overdue), found.overdue_left_out, found.overdue_total) == (2, 1, 3)


def test_what_the_broker_has_passed_is_decided(with_transactions: Path) -> None:
    table = {f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS": {0: 3}}
    write_config(with_transactions, "consumerOffset.json", table)
    assert pending(with_transactions, after_minutes=10).half_messages == 2


def test_an_old_undecided_transaction_is_named(with_transactions: Path) -> None:
    table = {f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS": {0: 4}}
    write_config(with_transactions, "consumerOffset.json", table)
    (overdue,) = pending(with_transactions, after_minutes=45).overdue
    assert (overdue.kind, overdue.queue_offset) == ("transaction", 4)
    assert "half message of Orders is undecided after 45 min" in overdue.text


# --- delays -----------------------------------------------------------------------------------


@pytest.fixture
def with_delays(tmp_path: Path) -> Path:
    """Two messages that were due after 1 s, and one after 5 s."""
    delayed = [message(SCHEDULE_TOPIC, queue_id=level - 1, DELAY=str(level)) for level in (1, 1, 2)]
    write(tmp_path, delayed)
    return tmp_path


def test_delayed_messages_are_settled_by_the_progress_of_their_level(with_delays: Path) -> None:
    write_config(with_delays, "delayOffset.json", {1: 1})
    found = pending(with_delays, after_minutes=10)
    assert (found.delayed_messages, found.overdue) == (2, ())
    found = pending(with_delays, after_minutes=31)
    assert [(each.kind, each.queue_offset) for each in found.overdue] == [
        ("schedule", 1),
        ("schedule", 0),
    ]
    assert "level 2 was due" in found.overdue[1].text


def test_without_the_progress_of_delays_nothing_is_claimed(with_delays: Path) -> None:
    found = pending(with_delays, after_minutes=600)
    assert (found.delayed_messages, found.overdue) == (0, ())
    assert "delayOffset.json" in found.unknown[0]


def test_progress_is_read_as_stock_brokers_write_it(tmp_path: Path) -> None:
    root = golden.unpack(golden.CLEAN_MASTER, tmp_path)
    assert delay_offsets(root) == {1: 3, 2: 3, 3: 2}
    offsets = group_offsets(root)
    assert offsets is not None
    assert offsets["GoldenTopic", "golden_push"] == {0: 17, 1: 10, 2: 17, 3: 8}
    config = root / "config"
    (config / "delayOffset.json").write_text('{"offsetTable":{1:3,')
    assert delay_offsets(root) is not None  # from the file before it
    (config / "delayOffset.json.bak").write_text("{")
    with pytest.raises(CorruptStoreError, match=r"delayOffset\.json"):
        delay_offsets(root)
    shutil.rmtree(config)
    assert (group_offsets(root), delay_offsets(root)) == (None, None)


# --- the whole pipeline -----------------------------------------------------------------------


def run(*argv: str) -> tuple[int, dict[str, Any]]:
    out = io.StringIO()
    args = build_parser(PIPELINE).parse_args([*argv, "--json"])
    code = run_pipeline(PIPELINE, args, stdout=out, stderr=io.StringIO())
    return code, json.loads(out.getvalue())


def test_a_sound_and_a_damaged_store_on_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_store(tmp_path / "store", 120)
    code, verdict = run("--store", str(root), *GEOMETRY)
    assert (code, verdict["outcome"], verdict["records"]) == (0, "holds", 120)
    assert verdict["facts"]["queues_checked_one_by_one"] == 0
    assert verdict["verdict"].startswith("sound (1 note): 120 records up to physical")

    path = files_below(root, "commitlog")[0]
    body_at = path.read_bytes().index(b"body of 7")
    patch(path, body_at, b"B")
    queue = files_below(root, "consumequeue/Payments/1")[0]
    patch(queue, 3 * 20, bytes(8))
    code, verdict = run("--store", str(root), "--out", str(tmp_path / "out"), *GEOMETRY)
    assert (code, verdict["outcome"]) == (1, "fails")
    with Reader(root) as reader:
        offset = next(r.physical_offset for r in reader.records(on_bad=lambda _: None))
    rows = spark.read.parquet(verdict["outputs"]["findings"]).collect()
    errors = {(row.kind, row.physical_offset, row.queue_offset) for row in rows}
    assert ("queue", 3) in {(kind, queue_offset) for kind, _, queue_offset in errors}
    damaged = [each for each in verdict["findings"] if each["kind"] == "record"]
    assert [each["path"] for each in damaged] == [str(path)]
    assert offset == 0 < damaged[0]["physical_offset"] < body_at
    assert f"physical offset {damaged[0]['physical_offset']:,}" in damaged[0]["text"]
    summary = json.loads((tmp_path / "out" / "verify.json").read_text())
    assert summary["facts"] == verdict["facts"]
    assert summary["facts"]["errors"] == 2
    assert sorted(row.severity for row in rows) == ["error", "error", "note"]
    # As on a cluster without a shared disk: what tasks write is elsewhere under the same path.
    monkeypatch.setattr(outputs, "spark_path", lambda path: f"{tmp_path}/executor/{path.name}")
    code, verdict = run("--store", str(root), "--out", str(tmp_path / "elsewhere"), *GEOMETRY)
    assert (code, verdict["outcome"]) == (2, "unknown")
    assert "findings is not on storage that all machines see" in verdict["verdict"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        pytest.param(["--store", "/nowhere/at/all"], "no such directory", id="no store"),
        pytest.param(["--delay-levels", "1s never"], "not a delay", id="levels"),
        pytest.param(["--index-slots", "51"], "51 slots and 120 entries", id="index"),
    ],
)
def test_what_is_asked_wrongly_is_said_clearly(argv: list[str], words: str, tmp_path: Path) -> None:
    root = write_store(tmp_path / "store", 5)
    code, verdict = run("--store", str(root), *GEOMETRY, *argv)
    assert (code, verdict["outcome"]) == (2, "unknown")
    assert words in verdict["verdict"]
