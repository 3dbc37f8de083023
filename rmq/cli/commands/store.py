"""`rmq store inspect|dump|verify DIR` read a store directory; `cut` gives up a damaged end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.cli.common.command import Command
from rmq.cli.common.parameters import (
    MOMENT,
    NATURAL,
    POSITIVE,
    Argument,
    Option,
    Parsed,
    flag,
    path_type,
)

if TYPE_CHECKING:
    import click

_WHERE: Final = "where and how the store was written"
_CHOOSE: Final = "which records"


def _range(text: str) -> tuple[int | None, int | None]:
    begin, colon, end = text.partition(":")
    if not colon:
        return _number(begin), _number(begin) + 1
    return _number(begin) if begin else None, _number(end) if end else None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is not a number from 0 on")
    return int(text)


def _action(
    name: str, help: str, description: str, *own: click.Parameter, reads_index: bool = True
) -> Command:
    geometry = (
        ("--segment-bytes", "mappedFileSizeCommitLog", "the size of the files"),
        ("--index-slots", "maxHashSlotNum", "found out"),
        ("--index-entries", "maxIndexNum", "found out"),
    )
    sizes = [
        Option(
            option,
            type=POSITIVE,
            metavar="N",
            section=_WHERE,
            help=f"{key} of the broker (default: {default})",
        )
        for option, key, default in (geometry if reads_index else ())
    ]
    return Command(
        name=name,
        help=help,
        description=description,
        params=(
            Argument(
                "directory",
                "the store (storePathRootDir of its broker)",
                type=path_type(),
                metavar="DIR",
            ),
            Option(
                "--commit-log",
                type=path_type(),
                multiple=True,
                metavar="PATH",
                section=_WHERE,
                help="directory of the log, if not commitlog in DIR; may be repeated"
                " (storePathCommitLog)",
            ),
            *sizes,
            *own,
        ),
        run=f"rmq.cli.store.command:{name}",
    )


def _dump_options() -> list[click.Parameter]:
    return [
        Option("--topic", metavar="TOPIC", section=_CHOOSE, help="of this topic"),
        Option(
            "--queue",
            type=NATURAL,
            metavar="N",
            section=_CHOOSE,
            help="of this queue of the topic",
        ),
        Option("--key", metavar="KEY", section=_CHOOSE, help="with this key or unique key"),
        Option(
            "--from",
            "from_ms",
            type=MOMENT,
            metavar="TIME",
            section=_CHOOSE,
            help="stored at this time or later: milliseconds since 1970, or ISO 8601 (UTC by"
            " default)",
        ),
        Option(
            "--to",
            "to_ms",
            type=MOMENT,
            metavar="TIME",
            section=_CHOOSE,
            help="stored before this time",
        ),
        Option(
            "--from-offset",
            type=NATURAL,
            metavar="N",
            section=_CHOOSE,
            help="at this physical offset or behind it",
        ),
        Option(
            "--to-offset",
            type=NATURAL,
            metavar="N",
            section=_CHOOSE,
            help="before this physical offset (not included)",
        ),
        Option(
            "--queue-offset",
            type=Parsed("range", _range),
            metavar="N|N:M",
            section=_CHOOSE,
            help="with this queue offset, or from N to M; either may be left out",
        ),
        Option("--limit", type=POSITIVE, metavar="N", section=_CHOOSE, help="at most N records"),
        flag("--scan", section=_CHOOSE, help="read the log instead of queues and index"),
        flag("--raw", help="leave compressed bodies as they are"),
        flag(
            "--skip-bad",
            help="report damaged records on standard error and go on; the exit code is 1 then",
        ),
    ]


COMMAND: Final = Command(
    name="store",
    help="inspect a store directory, or repair it",
    description="Inspects a store directory, also while a broker uses it. Only `cut` changes it.",
    actions=lambda: (
        _action(
            "inspect",
            "show what is in a store",
            "Shows which process has a store open and how it was left, the range of its log, its"
            " queues and its index files. Times are in UTC.",
            flag("--json", help="print one JSON object"),
        ),
        _action(
            "dump",
            "print records as JSON, one per line",
            "Prints one JSON object per record and line, in the order of the log. Ranges include"
            " their begin and exclude their end. With --topic records are found through the"
            " ConsumeQueues, with --key through the index; --scan reads the whole log instead,"
            " which also finds what those lack.",
            *_dump_options(),
        ),
        _action(
            "verify",
            "check everything in a store",
            "Reads every record and compares queues and index with the log. Prints one finding per"
            " line, then a summary. Notes are about what a broker leaves like that or repairs;"
            " only errors make the exit code 1.",
            Option(
                "--delay-levels",
                metavar="LEVELS",
                help="messageDelayLevel of the broker (default: that of a broker without one)",
            ),
            flag("--skip-index", help="do not check the index"),
            flag("--json", help="print one JSON object"),
        ),
        _action(
            "cut",
            "give up a damaged end of the log",
            "Ends the log at an offset. For a store that refuses to open because a record is"
            " damaged and sound ones follow it, when no slave and no backup has the segment:"
            " everything from the offset on is lost to consumers. It is saved to a file first. The"
            " broker must not run.",
            Option(
                "--at",
                type=NATURAL,
                required=True,
                metavar="OFFSET",
                help="physical offset of the damaged record, as the error or `verify` names it",
            ),
            Option(
                "--save",
                type=path_type(),
                required=True,
                metavar="FILE",
                help="where to put what is cut off",
            ),
            reads_index=False,
        ),
    ),
    examples=(
        "rmq store inspect DIR",
        "rmq store dump DIR --topic T --queue 0 --queue-offset 100:110",
        "rmq store dump DIR --topic T --key order-4711",
        "rmq store dump DIR --from 2025-01-31T08:15 --to 2025-01-31T08:20",
        "rmq store verify DIR",
        "rmq store cut DIR --at 1073745920 --save lost.bin",
    ),
)
