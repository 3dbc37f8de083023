"""The folder of an archive: whenever a run is killed, the next one finds all of it or nothing."""

from __future__ import annotations

import errno
import json
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rmq.errors import ConfigError, DiskFullError, StorageError
from rmq.spark.jobs.archive.files import ArchiveFolder
from rmq.spark.jobs.archive.manifest import (
    Gap,
    Manifest,
    Part,
    Queue,
    RunManifest,
    joined,
    manifest_json,
    parse_manifest,
    parse_run,
    run_json,
)
from rmq.spark.jobs.archive.plan import Bounds, Plan, Span, make_plan
from rmq.spark.jobs.archive.proof import NotProvenError, proven
from rmq.spark.jobs.archive.result import verdict_of
from rmq.spark.pipelines.verdict import Outcome

if TYPE_CHECKING:
    from pathlib import Path

Q0 = Queue("Orders", "broker-a", 0)
Q1 = Queue("Orders", "broker-a", 1)
Q2 = Queue("%RETRY%g|x", "broker-a", 0)


def _part(first: int, last: int, *gaps: Gap) -> Part:
    missing = sum(gap.messages for gap in gaps)
    count = last - first + 1 - missing
    return Part(first, last, count, 100 * count, first ^ last, count, 1_000 + last, gaps)


def _run(number: int, parts: dict[Queue, Part], archive_id: str = "A") -> RunManifest:
    return RunManifest(number, archive_id, "cluster x", 1.0, 2.0, parts)


def _write_run(archive: ArchiveFolder, number: int, parts: dict[Queue, Part]) -> Path:
    """Do what a run does before it commits."""
    folder = archive.begin(number)
    (folder / "date=2024-05-31" / "topic=Orders").mkdir(parents=True)
    (folder / "date=2024-05-31" / "topic=Orders" / "part.parquet").write_text(str(number))
    return folder


def _whole_run(archive: ArchiveFolder, parts: dict[Queue, Part]) -> Manifest:
    with archive.locked():
        manifest = archive.load()
        number = manifest.last_run + 1
        folder = _write_run(archive, number, parts)
        archive.commit(folder, _run(number, parts, manifest.archive_id))
        manifest = archive.load()
        archive.save(manifest)
    return manifest


def test_manifests_are_read_as_they_were_written() -> None:
    gap = Gap(5, 7, is_accepted=True)
    run = _run(3, {Q0: _part(0, 9, gap), Q2: _part(4, 4)})
    assert parse_run(json.loads(json.dumps(run_json(run)))) == run
    manifest = Manifest("A").with_run(run)
    assert parse_manifest(json.loads(json.dumps(manifest_json(manifest)))) == manifest
    # Earlier versions wrote down where they had ended in the logs of stores.
    positions = {"store_positions": {"/data": {"offset": 77, "topics": ["Orders"]}}}
    assert parse_run(run_json(run) | positions) == run
    assert parse_manifest(manifest_json(manifest) | positions) == manifest
    broken = run_json(run)
    assert isinstance(broken["queues"], list)
    assert isinstance(broken["queues"][0], dict)
    broken["queues"][0]["count"] = 8
    with pytest.raises(ValueError, match="contradict each other"):
        parse_run(broken)
    with pytest.raises(ValueError, match="version 2"):
        parse_manifest({"version": 2})


def test_runs_follow_each_other() -> None:
    manifest = Manifest("A").with_run(_run(1, {Q0: _part(10, 19)}))
    manifest = manifest.with_run(_run(2, {Q0: _part(20, 29), Q1: _part(0, 0)}))
    assert manifest.parts[Q0].count == 20
    assert manifest.parts[Q0].checksum == 10 ^ 19 ^ 20 ^ 29
    assert (manifest.gaps, manifest.messages, manifest.last_run) == ([], 21, 2)
    manifest = manifest.with_run(_run(3, {Q0: _part(35, 40, Gap(37, 38))}))
    assert manifest.gaps == [(Q0, Gap(30, 34)), (Q0, Gap(37, 38))]
    assert manifest.parts[Q0].is_dense
    assert manifest.accepting_gaps().gaps == []
    with pytest.raises(ConfigError, match="archived already"):
        joined(Q0, _part(0, 5), _part(5, 9))
    with pytest.raises(ConfigError, match="belongs to another archive"):
        manifest.with_run(_run(4, {}, "B"))


def test_a_run_counts_when_it_has_its_name(tmp_path: Path) -> None:
    archive = ArchiveFolder(tmp_path / "archive")
    first = _whole_run(archive, {Q0: _part(0, 9)})
    assert (first.messages, first.last_run) == (10, 1)
    # Killed while files are written: they are hidden, and removed by the next run.
    with archive.locked():
        leftover = _write_run(archive, 2, {})
    assert archive.load() == first
    assert [folder.name for folder in archive.run_folders()] == ["run=000001"]
    # Killed between writing the manifest of the run and the renaming: nothing counts either.
    archive.begin(2)
    assert not leftover.exists()
    folder = _write_run(archive, 2, {})
    (folder / "_manifest.json").write_text(json.dumps(run_json(_run(2, {Q0: _part(10, 19)}))))
    assert archive.load() == first
    # Killed behind the renaming: the run counts, though manifest.json does not know it.
    with archive.locked():
        folder = _write_run(archive, 2, {})
        archive.commit(folder, _run(2, {Q0: _part(10, 19)}, first.archive_id))
    stale = json.loads(archive.manifest_path.read_text())
    assert stale["last_run"] == 1
    assert (archive.load().last_run, archive.load().messages) == (2, 20)
    # Killed while manifest.json is written: a part of it lies beside it under another name.
    (archive.root / ".manifest.json.99").write_text('{"version": 1, "arch')
    third = _whole_run(archive, {Q0: _part(20, 29)})
    assert (third.messages, third.last_run, third.gaps) == (30, 3, [])
    assert sorted(path.name for path in (archive.root / "history").iterdir()) == [
        "run-000001.json",
        "run-000002.json",
        "run-000003.json",
    ]
    assert json.loads(archive.manifest_path.read_text())["messages"] == 30


def test_a_lost_manifest_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    archive = ArchiveFolder(tmp_path)
    _whole_run(archive, {Q0: _part(0, 9)})
    whole = _whole_run(archive, {Q0: _part(10, 19)})
    archive.manifest_path.unlink()
    with caplog.at_level(logging.WARNING):
        assert archive.load() == whole
    assert "made again" in caplog.text
    (tmp_path / "data" / "run=000001").rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="what was archived is not known"):
        archive.load()


def test_old_runs_may_be_moved_away(tmp_path: Path) -> None:
    archive = ArchiveFolder(tmp_path / "out", tmp_path / "state")
    _whole_run(archive, {Q0: _part(0, 9)})
    whole = _whole_run(archive, {Q0: _part(10, 19)})
    (tmp_path / "out" / "data" / "run=000001").rename(tmp_path / "cold")
    assert archive.load() == whole
    assert (tmp_path / "state" / "manifest.json").exists()
    third = _whole_run(archive, {Q0: _part(20, 29)})
    assert (third.last_run, third.parts[Q0].first, third.gaps) == (3, 0, [])


def test_files_that_are_no_archive(tmp_path: Path) -> None:
    archive = ArchiveFolder(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(ConfigError, match="not the manifest of an archive"):
        archive.load()
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        archive.load()
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "data" / "run=000001").mkdir(parents=True)
    with pytest.raises(ConfigError, match="not the manifest of a run"):
        archive.load()
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StorageError, match="Not a directory"),
        ArchiveFolder(tmp_path / "file" / "x").locked(),
    ):
        pass


def test_a_checkpoint_of_another_archive(tmp_path: Path) -> None:
    _whole_run(ArchiveFolder(tmp_path / "one", tmp_path / "state"), {Q0: _part(0, 9)})
    other = ArchiveFolder(tmp_path / "two")
    _whole_run(other, {Q0: _part(0, 9)})
    _whole_run(other, {Q0: _part(10, 19)})
    with pytest.raises(ConfigError, match="belongs to another archive"):
        ArchiveFolder(tmp_path / "two", tmp_path / "state").load()


def test_a_checkpoint_of_another_archive_with_more_runs(tmp_path: Path) -> None:
    """It knows more runs than there are here, so none of them looks new."""
    other = ArchiveFolder(tmp_path / "other", tmp_path / "state")
    _whole_run(other, {Q0: _part(0, 50)})
    _whole_run(other, {Q0: _part(51, 100)})
    _whole_run(ArchiveFolder(tmp_path / "mine"), {Q0: _part(0, 200)})
    mine = ArchiveFolder(tmp_path / "mine", tmp_path / "state")
    with pytest.raises(ConfigError, match="belongs to another archive") as caught:
        mine.load()
    assert "--checkpoint" in str(caught.value.hint)
    # The same with nothing but the history left of its runs, and with nothing at all.
    (tmp_path / "mine" / "data" / "run=000001").rename(tmp_path / "cold")
    with pytest.raises(ConfigError, match="belongs to another archive"):
        mine.load()
    (tmp_path / "mine" / "history" / "run-000001.json").unlink()
    with pytest.raises(ConfigError, match=r"knows run 2, of which .* has no trace"):
        mine.load()


def test_a_checkpoint_that_was_forgotten(tmp_path: Path) -> None:
    archive = ArchiveFolder(tmp_path / "out", tmp_path / "state")
    _whole_run(archive, {Q0: _part(0, 9)})
    whole = _whole_run(archive, {Q0: _part(10, 19)})
    data = tmp_path / "out" / "data"
    # All runs are there: nothing needs to be known that they do not say.
    assert ArchiveFolder(tmp_path / "out").load() == whole
    for run in ("run=000002", "run=000001"):
        (data / run).rename(tmp_path / run)
        with pytest.raises(ConfigError, match="what was archived is not known") as caught:
            ArchiveFolder(tmp_path / "out").load()
        assert "--checkpoint" in str(caught.value.hint)
    assert archive.load() == whole


def test_a_manifest_from_before_there_was_a_checkpoint(tmp_path: Path) -> None:
    """It lies in the archive still, and does not know the runs that were moved away since."""
    _whole_run(ArchiveFolder(tmp_path / "out"), {Q0: _part(0, 9)})
    archive = ArchiveFolder(tmp_path / "out", tmp_path / "state")
    _whole_run(archive, {Q0: _part(10, 19)})
    whole = _whole_run(archive, {Q0: _part(20, 29)})
    for run in ("run=000002", "run=000003"):
        (tmp_path / "out" / "data" / run).rename(tmp_path / run)
        with pytest.raises(ConfigError, match="what was archived is not known") as caught:
            ArchiveFolder(tmp_path / "out").load()
        assert "--checkpoint" in str(caught.value.hint)
    assert archive.load() == whole


def test_two_runs_at_once(tmp_path: Path) -> None:
    one, other = ArchiveFolder(tmp_path), ArchiveFolder(tmp_path)
    with one.locked(), pytest.raises(ConfigError, match="another run is writing"), other.locked():
        pass
    with other.locked():
        pass


@pytest.mark.parametrize(
    ("code", "kind", "hint"),
    [
        (errno.ENOLCK, StorageError, "a file system that has locks"),
        (errno.EIO, StorageError, None),
        (errno.ENOSPC, DiskFullError, "make room"),
    ],
)
def test_a_lock_that_cannot_be_taken(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    kind: type[StorageError],
    hint: str | None,
) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(StorageError) as caught, ArchiveFolder(tmp_path).locked():
        pass
    assert type(caught.value) is kind
    assert str(caught.value) == f"cannot lock {tmp_path / '.lock'}: {os.strerror(code)}"
    told = caught.value.hint
    assert told is None if hint is None else hint in str(told)


def test_a_disk_that_is_full_before_a_run_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = ArchiveFolder(tmp_path)
    first = _whole_run(archive, {Q0: _part(0, 9)})

    def fsync(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with archive.locked():
        folder = _write_run(archive, 2, {})
        run = _run(2, {Q0: _part(10, 19)}, first.archive_id)
        with monkeypatch.context() as patched:
            patched.setattr("os.fsync", fsync)
            with pytest.raises(DiskFullError) as caught:
                archive.commit(folder, run)
        archive.discard(folder)
    assert "make room" in str(caught.value.hint)
    assert not folder.exists()
    assert archive.load() == first
    assert _whole_run(archive, {Q0: _part(10, 19)}).messages == 20


# --- plans --------------------------------------------------------------------------------------

ARCHIVED = Manifest("A").with_run(_run(1, {Q0: _part(0, 9), Q1: _part(5, 14)}))


def test_only_what_is_new_is_read() -> None:
    bounds = {Q0: Bounds(0, 10), Q1: Bounds(7, 20), Q2: Bounds(3, 8)}
    plan = make_plan(ARCHIVED, bounds, {})
    assert plan.spans == {Q1: Span(15, 20), Q2: Span(3, 8)}
    assert (plan.restarts, plan.left, plan.messages) == ((), 0, 10)
    assert make_plan(ARCHIVED, {Q0: Bounds(0, 10), Q1: Bounds(15, 15)}, {}).spans == {}


def test_what_retention_took_is_a_gap() -> None:
    plan = make_plan(ARCHIVED, {Q0: Bounds(12, 20)}, {})
    assert plan.spans == {Q0: Span(12, 20)}
    after = ARCHIVED.with_run(_run(2, {Q0: _part(12, 19)}))
    verdict = verdict_of(after, _run(2, {Q0: _part(12, 19)}), plan, {})
    assert verdict.outcome is Outcome.FAILS
    assert verdict.findings[0].text == (
        "queue 0 of Orders on broker-a: 2 messages missing, offsets 10 to 11; --accept-gap says"
        " that they are known to be lost"
    )
    # It stays so until somebody accepts it.
    nothing_new = make_plan(after, {Q0: Bounds(12, 20)}, {})
    assert verdict_of(after, None, nothing_new, {}).outcome is Outcome.FAILS
    accepted = verdict_of(after.accepting_gaps(), None, nothing_new, {})
    assert accepted.outcome is Outcome.HOLDS
    assert "2 messages known to be lost" in accepted.sentence


@pytest.mark.parametrize(
    ("bounds", "changed"),
    [
        (Bounds(0, 5), {}),
        (Bounds(0, 9), {}),
        (Bounds(0, 50), {Q0: "it has another message"}),
    ],
)
def test_a_topic_that_was_made_again(bounds: Bounds, changed: dict[Queue, str]) -> None:
    plan = make_plan(ARCHIVED, {Q0: bounds, Q1: Bounds(0, 20)}, changed)
    assert [restart.queue for restart in plan.restarts] == [Q0]
    assert plan.spans == {Q1: Span(15, 20)}
    verdict = verdict_of(ARCHIVED, None, plan, {})
    assert verdict.outcome is Outcome.FAILS
    assert verdict.findings[0].facts["kind"] == "restart"


def test_queues_that_cannot_be_read_now() -> None:
    """Nobody can tell whether they have something new: the archive does not hold by that."""
    bounds = {Q0: Bounds(0, 12), Q2: Bounds(3, 8)}
    plan = make_plan(ARCHIVED, bounds, {}, expected=ARCHIVED.parts)
    assert (plan.spans, plan.unreadable) == ({Q0: Span(10, 12), Q2: Span(3, 8)}, (Q1,))
    verdict = verdict_of(ARCHIVED, None, plan, {})
    assert (verdict.outcome, verdict.exit_code) == (Outcome.UNKNOWN, 2)
    assert "; 1 queue not readable now" in verdict.sentence
    (finding,) = verdict.findings
    assert (finding.facts["kind"], finding.facts["archived"]) == ("unreadable", 14)
    assert finding.text.startswith(
        "queue 1 of Orders on broker-a is not readable now: nothing after offset 14 is archived"
    )
    # What is known to be wrong stays so.
    gap = ARCHIVED.with_run(_run(2, {Q0: _part(12, 19)}))
    assert verdict_of(gap, None, plan, {}).outcome is Outcome.FAILS
    assert make_plan(ARCHIVED, bounds, {}, expected=[Q0]).unreadable == ()


def test_a_run_may_be_bounded() -> None:
    bounds = {Q0: Bounds(0, 110), Q1: Bounds(0, 25), Q2: Bounds(0, 1)}
    plan = make_plan(ARCHIVED, bounds, {}, limit=50)
    assert (plan.messages, plan.left) == (50, 61)
    assert all(span.messages > 0 for span in plan.spans.values())
    assert plan.spans[Q0].start == 10
    assert make_plan(ARCHIVED, bounds, {}, limit=111).left == 0


# --- proof --------------------------------------------------------------------------------------


def _plan(**spans: Span) -> Plan:
    queues = {"q0": Q0, "q1": Q1}
    return Plan({queues[name]: span for name, span in spans.items()}, (), 0)


def _no_gaps(queue: Queue) -> tuple[Gap, ...]:
    raise AssertionError(f"{queue} has none")


def test_what_was_planned_has_to_be_in_the_files() -> None:
    plan = _plan(q0=Span(10, 20))
    assert proven(plan, {Q0: _part(10, 19)}, _no_gaps, may_lack=False) == {Q0: _part(10, 19)}
    # The source said that it has the first and the last one: without them something went wrong.
    for written in ({}, {Q0: _part(11, 19)}, {Q0: _part(10, 18)}):
        with pytest.raises(NotProvenError, match="offsets 10 to 19 that it has") as caught:
            proven(plan, written, _no_gaps, may_lack=False)
        assert "--skip-corrupt" in str(caught.value.hint)
    for wrong in ({Q0: _part(9, 19)}, {Q0: _part(10, 20)}, {Q0: _part(10, 19), Q1: _part(0, 0)}):
        for may_lack in (False, True):
            with pytest.raises(NotProvenError, match="nothing of this run was archived"):
                proven(plan, wrong, _no_gaps, may_lack=may_lack)
    # What the source itself does not have in between is a gap.
    holed = replace(_part(10, 19), count=8)
    found = proven(plan, {Q0: holed}, lambda queue: (Gap(12, 13),), may_lack=False)
    assert found == {Q0: replace(holed, gaps=(Gap(12, 13),))}
    with pytest.raises(NotProvenError, match="contradict each other"):
        proven(plan, {Q0: holed}, lambda queue: (Gap(12, 14),), may_lack=False)


def test_damage_that_is_passed_over_becomes_gaps() -> None:
    plan = _plan(q0=Span(10, 20), q1=Span(15, 17))
    holed = replace(_part(12, 17), count=5)
    found = proven(plan, {Q0: holed}, lambda queue: (Gap(14, 14),), may_lack=True)
    assert found[Q0].gaps == (Gap(10, 11), Gap(14, 14), Gap(18, 19))
    assert (found[Q0].first, found[Q0].last, found[Q0].count) == (10, 19, 5)
    assert (found[Q0].last_message, found[Q0].last_store_ms) == (17, 1_017)
    assert (found[Q1].gaps, found[Q1].count, found[Q1].last_message) == ((Gap(15, 16),), 0, None)
    # The next run goes on behind it, and knows which message was the last one.
    manifest = ARCHIVED.with_run(_run(2, found))
    assert manifest.parts[Q1].last_message == 14
    assert manifest.parts[Q1].last_store_ms == ARCHIVED.parts[Q1].last_store_ms
    assert parse_manifest(json.loads(json.dumps(manifest_json(manifest)))) == manifest
    assert make_plan(manifest, {Q1: Bounds(0, 20)}, {}).spans == {Q1: Span(17, 20)}
    assert _part(0, 9, Gap(2, 3), Gap(6, 7), Gap(8, 9)).last_message == 5
