"""`rmq store inspect|dump|verify DIR` read a store directory; `cut` gives up a damaged end.

The first three change nothing and lock nothing: they work on a store that a broker has open, too.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.cli.common.command import Command, add_global_options_again
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.store.dump import (
    Selection,
    json_line,
    record_fields,
    select,
    time_argument,
)
from rmq.cli.store.inspect import StoreReport, shown
from rmq.store.config import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rmq.store.reader import Reader
from rmq.store.repair import cut_log
from rmq.store.verify import Progress, Verifier
from rmq.store.verify.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.errors import CorruptStoreError

    _Actions = argparse._SubParsersAction[argparse.ArgumentParser]

_PROGRESS_INTERVAL_S: Final = 0.2


def inspect(args: argparse.Namespace) -> int:
    """Print what is in a store."""
    with _open(args) as reader:
        report = StoreReport.of(reader)
    print(report.as_json() if args.json else report.as_text())
    return ExitCode.OK


def dump(args: argparse.Namespace) -> int:
    """Print records, one JSON object per line."""
    try:
        selection = Selection.of(args)
    except ValueError as wrong:
        print(f"rmq store dump: error: {wrong}", file=sys.stderr)
        return ExitCode.USAGE
    skipped = 0

    def skip(bad: CorruptStoreError) -> None:
        nonlocal skipped
        skipped += 1
        print(f"rmq: skipped: {shown(str(bad))}", file=sys.stderr)

    with _open(args) as reader:
        for record in select(reader, selection, skip if args.skip_bad else None):
            print(json_line(record_fields(record, decompress=not args.raw)))
    return ExitCode.FAILURE if skipped else ExitCode.OK


def verify(args: argparse.Namespace) -> int:
    """Check a store and print what is found, one finding per line."""
    counts = dict.fromkeys(Severity, 0)
    progress = _ProgressLine()
    with _open(args) as reader:
        verifier = Verifier(
            reader,
            delay_levels_ms=parse_delay_levels(args.delay_levels),
            check_index=not args.skip_index,
            on_progress=progress.show,
        )
        for finding in verifier.run():
            progress.clear()
            counts[finding.severity] += 1
            print(shown(str(finding)))
    progress.clear()
    errors, notes = counts[Severity.ERROR], counts[Severity.NOTE]
    result = f"{errors} error{'s' * (errors != 1)}" if errors else "sound"
    print(
        f"{result}, {notes} note{'s' * (notes != 1)}:"
        f" {verifier.records} records up to physical offset {verifier.log_end},"
        f" {verifier.queue_entries} entries in {verifier.queue_count} queues,"
        f" {verifier.index_entries} index entries"
    )
    return ExitCode.FAILURE if errors else ExitCode.OK


def cut(args: argparse.Namespace) -> int:
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


def _open(args: argparse.Namespace) -> Reader:
    return Reader(
        args.directory,
        commit_log_paths=args.commit_log or None,
        segment_bytes=args.segment_bytes,
        index_slots=args.index_slots,
        index_entries=args.index_entries,
    )


# --- the command line -------------------------------------------------------------------------


def run(args: argparse.Namespace) -> int:
    action: Callable[[argparse.Namespace], int] = args.action
    return action(args)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_inspect(actions)
    _add_dump(actions)
    _add_verify(actions)
    _add_cut(actions)


def _add_action(
    actions: _Actions,
    action: Callable[[argparse.Namespace], int],
    help_text: str,
    description: str,
    *,
    reads_index: bool = True,
) -> argparse.ArgumentParser:
    parser = actions.add_parser(
        action.__name__,
        help=help_text,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(action=action)
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="the store (storePathRootDir of its broker)"
    )
    where = parser.add_argument_group("where and how the store was written")
    where.add_argument(
        "--commit-log",
        type=Path,
        action="append",
        metavar="PATH",
        help="directory of the log, if not commitlog in DIR; may be repeated (storePathCommitLog)",
    )
    geometry = (
        ("--segment-bytes", "mappedFileSizeCommitLog", "the size of the files"),
        ("--index-slots", "maxHashSlotNum", "found out"),
        ("--index-entries", "maxIndexNum", "found out"),
    )
    for option, key, default in geometry if reads_index else ():
        where.add_argument(
            option, type=_positive, metavar="N", help=f"{key} of the broker (default: {default})"
        )
    add_global_options_again(parser)
    return parser


def _add_inspect(actions: _Actions) -> None:
    parser = _add_action(
        actions,
        inspect,
        "show what is in a store",
        "Shows which process has a store open and how it was left, the range of its log, its"
        " queues\nand its index files. Times are in UTC.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_dump(actions: _Actions) -> None:
    parser = _add_action(
        actions,
        dump,
        "print records as JSON, one per line",
        "Prints one JSON object per record and line, in the order of the log. Ranges include their"
        "\nbegin and exclude their end. With --topic records are found through the ConsumeQueues,"
        "\nwith --key through the index; --scan reads the whole log instead, which also finds what"
        "\nthose lack.",
    )
    choose = parser.add_argument_group("which records")
    choose.add_argument("--topic", help="of this topic")
    choose.add_argument("--queue", type=_natural, metavar="N", help="of this queue of the topic")
    choose.add_argument("--key", help="with this key or unique key")
    choose.add_argument(
        "--from",
        dest="from_ms",
        type=time_argument,
        metavar="TIME",
        help="stored at this time or later: milliseconds since 1970, or ISO 8601 (UTC by default)",
    )
    choose.add_argument(
        "--to", dest="to_ms", type=time_argument, metavar="TIME", help="stored before this time"
    )
    for option, what in (("--from-offset", "or behind it"), ("--to-offset", "(not included)")):
        word = "at" if option == "--from-offset" else "before"
        choose.add_argument(
            option, type=_natural, metavar="N", help=f"{word} this physical offset {what}"
        )
    choose.add_argument(
        "--queue-offset",
        type=_range,
        metavar="N|N:M",
        help="with this queue offset, or from N to M; either may be left out",
    )
    choose.add_argument("--limit", type=_positive, metavar="N", help="at most N records")
    choose.add_argument(
        "--scan", action="store_true", help="read the log instead of queues and index"
    )
    parser.add_argument("--raw", action="store_true", help="leave compressed bodies as they are")
    parser.add_argument(
        "--skip-bad",
        action="store_true",
        help="report damaged records on standard error and go on; the exit code is 1 then",
    )


def _add_verify(actions: _Actions) -> None:
    parser = _add_action(
        actions,
        verify,
        "check everything in a store",
        "Reads every record and compares queues and index with the log. Prints one finding per"
        " line,\nthen a summary. Notes are about what a broker leaves like that or repairs; only"
        " errors make\nthe exit code 1.",
    )
    parser.add_argument(
        "--delay-levels",
        default=DEFAULT_DELAY_LEVELS,
        metavar="LEVELS",
        help="messageDelayLevel of the broker (default: %(default)s)",
    )
    parser.add_argument("--skip-index", action="store_true", help="do not check the index")


def _add_cut(actions: _Actions) -> None:
    parser = _add_action(
        actions,
        cut,
        "give up a damaged end of the log",
        "Ends the log at an offset. For a store that refuses to open because a record is damaged"
        " and\nsound ones follow it, when no slave and no backup has the segment: everything from"
        " the\noffset on is lost to consumers. It is saved to a file first. The broker must not"
        " run.",
        reads_index=False,
    )
    parser.add_argument(
        "--at",
        type=_natural,
        required=True,
        metavar="OFFSET",
        help="physical offset of the damaged record, as the error or `verify` names it",
    )
    parser.add_argument(
        "--save", type=Path, required=True, metavar="FILE", help="where to put what is cut off"
    )


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _range(text: str) -> tuple[int | None, int | None]:
    begin, colon, end = text.partition(":")
    if not colon:
        return _natural(begin), _natural(begin) + 1
    return _natural(begin) if begin else None, _natural(end) if end else None


COMMAND: Final = Command(
    name="store",
    help="inspect a store directory, or repair it",
    description="Inspects a store directory, also while a broker uses it. Only `cut` changes it.",
    add_arguments=add_arguments,
    run=run,
    examples=(
        "rmq store inspect DIR",
        "rmq store dump DIR --topic T --queue 0 --queue-offset 100:110",
        "rmq store dump DIR --topic T --key order-4711",
        "rmq store dump DIR --from 2025-01-31T08:15 --to 2025-01-31T08:20",
        "rmq store verify DIR",
        "rmq store cut DIR --at 1073745920 --save lost.bin",
    ),
)
