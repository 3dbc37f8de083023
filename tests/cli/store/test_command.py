"""`rmq store` as a user meets it: what it prints, where, and its exit code."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.shown import shown, time_text
from rmq.model.record import NewMessage
from rmq.store.config import StoreConfig
from rmq.store.core import StoreCore
from tests.patching import patch
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.store.conftest import Run


# --- inspect ----------------------------------------------------------------------------------


def test_inspect_tells_state_bounds_queues_and_index(run: Run, clean: Path) -> None:
    code, out, err = run("inspect", clean)
    assert (code, err) == (ExitCode.OK, "")
    assert re.search(r"^state +closed cleanly$", out, re.MULTILINE)
    assert re.search(r"^offsets +0 to 345724$", out, re.MULTILINE)
    assert re.search(r"^stored +2026-11-16T02:47:55.648Z to 2026-11-16T03:01:21.336Z$", out, re.M)
    assert re.search(r"^messages +685$", out, re.MULTILINE)
    assert re.search(r"^GoldenTopic +2 +0 +17 +17$", out, re.MULTILINE)
    assert re.search(r"^20261116024755653 +1357 +466 .* 0 to 345161$", out, re.MULTILINE)


def test_inspect_as_json_has_the_same_facts(run: Run, crashed: Path) -> None:
    code, out, _ = run("inspect", crashed, "--json")
    report = json.loads(out)
    assert code == ExitCode.OK
    assert (report["state"], report["processId"]) == ("crashed", None)
    assert (report["segments"], report["segmentBytes"]) == (5, golden.SEGMENT_BYTES)
    assert (report["minPhysicalOffset"], report["maxPhysicalOffset"]) == (0, 879137)
    assert report["firstStoreTimestamp"] == 1794798147760
    assert report["lastStoreTimestamp"] == 1794798151311
    assert report["checkpoint"] == {
        "physicalTimestamp": 0,
        "queuesTimestamp": 1794798151311,
        "indexTimestamp": 1794798151310,
    }
    assert report["recoveryPhysicalOffset"] is None
    assert report["queues"][3] == {
        "topic": "GoldenFill",
        "queueId": 3,
        "minOffset": 0,
        "maxOffset": 500,
        "entries": 500,
    }
    assert [file["entries"] for file in report["index"]] == [1999, 1999, 2]


def test_inspect_tells_of_a_store_that_was_not_closed(run: Run, crashed: Path) -> None:
    _, out, _ = run("inspect", crashed)
    assert "not closed cleanly; a broker recovers it when it starts" in out


def test_inspect_shows_what_is_there_of_a_damaged_store(run: Run, clean: Path) -> None:
    patch(clean / "commitlog" / f"{0:020d}", 100, b"\xff" * 5000)
    next((clean / "index").iterdir()).write_bytes(b"short")
    code, out, err = run("inspect", clean)
    assert (code, err) == (ExitCode.OK, "")
    assert "the file has 5 bytes, no header" in out


def test_inspect_tells_who_has_a_store_open_and_what_it_flushed(run: Run, tmp_path: Path) -> None:
    store = StoreCore(StoreConfig(root=tmp_path, segment_bytes=65536, index_enabled=False))
    try:
        store.append([NewMessage(topic="T", queue_id=0, body=b"body")])
        end = store.flush()
        _, out, _ = run("inspect", tmp_path)
        _, as_json, _ = run("inspect", tmp_path, "--json")
    finally:
        store.close()
    assert re.search(rf"^state +open in process {os.getpid()}$", out, re.MULTILINE)
    assert re.search(rf"^flushed +up to {end}$", out, re.MULTILINE)
    report = json.loads(as_json)
    assert (report["state"], report["flushedPhysicalOffset"]) == ("open", end)
    _, out, _ = run("inspect", tmp_path)
    assert re.search(rf"^recovery +begins at {end}$", out, re.MULTILINE)


def test_inspect_of_an_empty_store(run: Run, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    code, out, err = run("inspect", tmp_path)
    assert (code, err) == (ExitCode.OK, "")
    assert re.search(r"^messages +0$", out, re.MULTILINE)


def test_times_beyond_the_calendar_are_shown_as_numbers() -> None:
    assert time_text(1700000000001) == "2023-11-14T22:13:20.001Z"
    assert time_text(2**62) == str(2**62)


def test_names_are_shown_without_what_a_terminal_would_obey() -> None:
    assert shown("topic-é") == "topic-é"
    assert shown("a\x1b[2Jb\udc80\n") == "a\\x1b[2Jb\\udc80\\n"


# --- verify -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("store", "summary"),
    [
        pytest.param(
            golden.CLEAN_MASTER,
            "sound, 0 notes: 685 records up to physical offset 345724, 685 entries in 19 queues,"
            " 1357 index entries",
            id="clean",
        ),
        pytest.param(
            golden.TORN_RECOVERED,
            "sound, 2 notes: 1988 records up to physical offset 873623, 1988 entries in 4 queues,"
            " 3998 index entries",
            id="torn",
        ),
    ],
)
def test_a_sound_store_verifies_with_success(
    store: str, summary: str, run: Run, tmp_path: Path
) -> None:
    code, out, err = run("verify", golden.unpack(store, tmp_path))
    *findings, last = out.splitlines()
    assert (code, err, last) == (ExitCode.OK, "", summary)
    assert all(line.startswith("note: ") for line in findings)


def test_findings_are_one_per_line_with_path_and_offset_and_mean_failure(
    run: Run, clean: Path
) -> None:
    path = clean / "commitlog" / f"{0:020d}"
    offset = golden.records(golden.CLEAN_MASTER)[3].physical_offset
    patch(path, offset + 90, b"\xff")
    code, out, err = run("verify", clean)
    assert (code, err) == (ExitCode.FAILURE, "")
    finding, summary = out.splitlines()
    assert finding.startswith(f"error: record: {path}, physical offset {offset}: CRC of the body")
    assert summary.startswith("1 error, 0 notes: 684 records")
    code, out, _ = run("verify", clean, "--json")
    told = json.loads(out)
    assert (code, told["errors"], told["notes"], told["records"]) == (1, 1, 0, 684)
    (said,) = told["findings"]
    assert (said["kind"], said["physical_offset"]) == ("record", offset)


def test_the_index_can_be_left_out(run: Run, clean: Path) -> None:
    os.truncate(next((clean / "index").iterdir()), 42_048)
    code, _, err = run("verify", clean)
    assert code == ExitCode.CONFIG
    assert "rmq: error: maxHashSlotNum, maxIndexNum: cannot be told" in err
    assert "hint: " in err
    assert "--index-slots" in err
    assert run("verify", clean, "--skip-index")[0] == ExitCode.OK


def test_delay_levels_can_be_given(run: Run, clean: Path) -> None:
    assert run("verify", clean, "--delay-levels", "1s 5s 11s 30s")[0] == ExitCode.FAILURE
    code, _, err = run("verify", clean, "--delay-levels", "soon")
    assert code == ExitCode.CONFIG
    assert "messageDelayLevel" in err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_to_a_terminal_and_cleared_before_the_result(
    run: Run, crashed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("rmq.cli.store.command._PROGRESS_INTERVAL_S", 0)
    monkeypatch.setattr(sys, "stderr", terminal)
    code, out, _ = run("verify", crashed)
    assert code == ExitCode.OK
    assert "%" not in out
    shown_line, blank = terminal.getvalue().strip("\r").split("\r")
    assert re.fullmatch(r"\d+ % of the log, 1024 records", shown_line)
    assert blank == " " * len(shown_line)


# --- all of them ------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["inspect", "dump", "verify"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param("nothing", "there is no such directory", id="nothing there"),
        pytest.param("file", "it is not a directory", id="a file"),
        pytest.param("folder", "is not there", id="no store"),
    ],
)
def test_what_is_no_store_is_named_with_what_to_give(
    action: str, name: str, reason: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    code, out, err = run(action, tmp_path / name)
    assert (code, out) == (ExitCode.FAILURE, "")
    assert f"rmq: error: cannot open a store in {tmp_path / name}: " in err
    assert reason in err
    assert "hint: give the directory" in err


def test_without_an_action_the_command_is_a_usage_error(run: Run) -> None:
    code, out, err = run()
    assert (code, out) == (ExitCode.USAGE, "")
    assert "ACTION" in err


@pytest.mark.parametrize("action", ["inspect", "dump", "verify"])
def test_every_action_has_help_and_takes_global_options(
    action: str, run: Run, tmp_path: Path
) -> None:
    code, out, _ = run(action, "--help")
    assert code == ExitCode.OK
    assert "storePathRootDir" in out
    assert "--index-slots" in out
    code, _, err = run(action, tmp_path / "nothing", "--debug", "--log-level", "error")
    assert code == ExitCode.FAILURE
    assert "Traceback" in err


def test_a_log_elsewhere_and_other_numbers_can_be_given(run: Run, clean: Path) -> None:
    (clean / "commitlog").rename(clean.parent / "log")
    options = ["--commit-log", clean.parent / "log", "--segment-bytes", golden.SEGMENT_BYTES]
    options += ["--index-slots", golden.INDEX_SLOTS, "--index-entries", golden.INDEX_ENTRIES]
    assert run("verify", clean, *options)[0] == ExitCode.OK
    _, out, _ = run("dump", clean, *options)
    assert len(out.splitlines()) == 685


def test_a_reader_that_had_enough_ends_the_dump_quietly(crashed: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rmq", "store", "dump", str(crashed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["physicalOffset"] == 0
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=60), errors) == (ExitCode.PIPE_CLOSED, b"")


# --- cut --------------------------------------------------------------------------------------


def test_cut_says_what_it_did_and_what_comes_next(run: Run, clean: Path, tmp_path: Path) -> None:
    code, out, _ = run("dump", clean, "--limit", 2)
    assert code == ExitCode.OK
    second = json.loads(out.splitlines()[1])["physicalOffset"]
    saved = tmp_path / "lost.bin"
    code, out, _ = run("cut", clean, "--at", second, "--save", saved)
    assert code == ExitCode.OK
    assert f"ends at physical offset {second} now" in out
    assert saved.stat().st_size > 0
    code, out, err = run("cut", clean, "--at", second + 1, "--save", tmp_path / "more.bin")
    assert code == ExitCode.FAILURE
    assert f"physical offset {second}" in err
    assert "hint:" in err
