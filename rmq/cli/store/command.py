"""`rmq store inspect|dump|verify DIR` read a store directory; `cut` gives up a damaged end.

The first three change nothing and lock nothing: they work on a store that a broker has open, too.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

import msgspec

from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.shown import shown
from rmq.cli.common.tables import print_json
from rmq.cli.store.dump import (
    Selection,
    json_line,
    record_fields,
    select,
)
from rmq.cli.store.inspect import StoreReport
from rmq.store.config import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rmq.store.reader import Reader
from rmq.store.repair import cut_log
from rmq.store.verify import Progress, Verifier
from rmq.store.verify.finding import Severity

if TYPE_CHECKING:
    from argparse import Namespace

    from rmq.errors import CorruptStoreError
    from rmq.store.verify.finding import Finding

_PROGRESS_INTERVAL_S: Final = 0.2


def inspect(args: Namespace) -> int:
    """Print what is in a store."""
    with _open(args) as reader:
        report = StoreReport.of(reader)
    print(report.as_json() if args.json else report.as_text())
    return ExitCode.OK


def dump(args: Namespace) -> int:
    """Print records, one JSON object per line."""
    selection = Selection.of(args)
    skipped = 0

    def skip(bad: CorruptStoreError) -> None:
        nonlocal skipped
        skipped += 1
        print(f"rmq: skipped: {shown(str(bad))}", file=sys.stderr)

    with _open(args) as reader:
        for record in select(reader, selection, skip if args.skip_bad else None):
            print(json_line(record_fields(record, decompress=not args.raw)))
    return ExitCode.FAILURE if skipped else ExitCode.OK


def verify(args: Namespace) -> int:
    """Check a store and print what is found, one finding per line, or all as one JSON object."""
    counts = dict.fromkeys(Severity, 0)
    found: list[Finding] = []
    progress = _ProgressLine()
    with _open(args) as reader:
        verifier = Verifier(
            reader,
            delay_levels_ms=parse_delay_levels(args.delay_levels or DEFAULT_DELAY_LEVELS),
            check_index=not args.skip_index,
            on_progress=progress.show,
        )
        for finding in verifier.run():
            progress.clear()
            counts[finding.severity] += 1
            if args.json:
                found.append(finding)
            else:
                print(shown(str(finding)))
    progress.clear()
    errors, notes = counts[Severity.ERROR], counts[Severity.NOTE]
    if args.json:
        checked = {
            "records": verifier.records,
            "log_end": verifier.log_end,
            "queues": verifier.queue_count,
            "queue_entries": verifier.queue_entries,
            "index_entries": verifier.index_entries,
        }
        findings = msgspec.to_builtins(found)
        print_json({"errors": errors, "notes": notes, **checked, "findings": findings})
        return ExitCode.FAILURE if errors else ExitCode.OK
    result = f"{errors} error{'s' * (errors != 1)}" if errors else "sound"
    print(
        f"{result}, {notes} note{'s' * (notes != 1)}:"
        f" {verifier.records} records up to physical offset {verifier.log_end},"
        f" {verifier.queue_entries} entries in {verifier.queue_count} queues,"
        f" {verifier.index_entries} index entries"
    )
    return ExitCode.FAILURE if errors else ExitCode.OK


def cut(args: Namespace) -> int:
    """End the log at an offset, for a store that refuses to open because of damage there."""
    done = cut_log(args.directory, args.at, args.save, commit_log_paths=args.commit_log or ())
    print(
        f"the log of {args.directory} ends at physical offset {done.offset} now;"
        f" {done.saved_bytes} bytes from there on are in {done.saved},"
        f" {done.segments_removed} segments were removed"
    )
    print("the next start recovers what is left and builds the index again")
    return ExitCode.OK


class _ProgressLine:
    """Progress of a long check, on standard error if that is a terminal."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._next = time.monotonic() + _PROGRESS_INTERVAL_S
        self._width = 0

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if not self._is_terminal or now < self._next:
            return
        self._next = now + _PROGRESS_INTERVAL_S
        percent = progress.done_bytes * 100 // max(progress.total_bytes, 1)
        line = f"{percent} % of the log, {progress.records} records"
        self._write(line.ljust(self._width))
        self._width = len(line)

    def clear(self) -> None:
        """Make room for a line of the result."""
        if self._width:
            self._write(" " * self._width + "\r")
            self._width = 0

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r{text}")
        sys.stderr.flush()


def _open(args: Namespace) -> Reader:
    return Reader(
        args.directory,
        commit_log_paths=args.commit_log or None,
        segment_bytes=args.segment_bytes,
        index_slots=args.index_slots,
        index_entries=args.index_entries,
    )
