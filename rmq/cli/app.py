"""The `rmq` program: from a command line to an exit code.

`main` always returns; it never lets an exception out. What went wrong stands on standard error as
`rmq: error: WHAT`, with a `hint:` line where the error knows one, and the exit code tells scripts
which kind it was (`exit_codes`).
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Final

import rmq
from rmq.cli.common.command import Command, add_global_options, add_global_options_again
from rmq.cli.common.exit_codes import ExitCode, exit_code_of
from rmq.cli.common.logs import logging_to_stderr
from rmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


MODULES: Final = {
    "dev": "rmq.cli.dev.command",
    "namesrv": "rmq.cli.namesrv",
    "broker": "rmq.cli.broker",
    "produce": "rmq.cli.produce",
    "consume": "rmq.cli.consume.command",
    "ha": "rmq.cli.ha.command",
    "store": "rmq.cli.store.command",
    "pipeline": "rmq.cli.pipeline.command",
    "generate": "rmq.cli.generate.command",
}
"""Where every subcommand is, in the order of `rmq --help`. A new one is a module and a line here.

A process loads only the one that it runs: a nameserver needs no broker, and starts sooner.
"""


def main(argv: Sequence[str] | None = None, *, commands: Sequence[Command] | None = None) -> int:
    """Run `rmq` with `argv` (by default the arguments of this process) and return its exit code.

    `commands` are those it knows; by default those of `rmq`.
    """
    words = sys.argv[1:] if argv is None else argv
    known = load_commands(words) if commands is None else commands
    return _flush_stdout(_dispatch(build_parser(known), words))


def load_commands(words: Sequence[str]) -> list[Command]:
    """Load the command that a line is for, or all if it does not begin with the name of one."""
    remaining = iter(words)
    for word in remaining:
        if word == "--log-level":
            next(remaining, None)
        elif word != "--debug" and not word.startswith("--log-level="):
            named = [word] if word in MODULES else MODULES
            return [_load(name) for name in named]
    return [_load(name) for name in MODULES]


def _load(name: str) -> Command:
    command: Command = import_module(MODULES[name]).COMMAND
    return command


def build_parser(commands: Sequence[Command]) -> argparse.ArgumentParser:
    """The parser of the whole line; it leaves the chosen `Command` (or None) in `args.command`."""
    parser = argparse.ArgumentParser(
        prog="rmq",
        description="A RocketMQ 4.9.8 compatible messaging system.",
        epilog=_epilog(commands),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(command=None)
    parser.add_argument(
        "--version",
        action="version",
        version=f"rmq {rmq.__version__} (RocketMQ protocol {rmq.PROTOCOL_VERSION})",
    )
    add_global_options(parser, log_level=None, debug=False)
    if commands:
        subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
        for command in commands:
            _add_command(subparsers, command)
    return parser


def _add_command(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], command: Command
) -> None:
    parser = subparsers.add_parser(
        command.name,
        help=command.help,
        description=command.description or command.help,
        epilog=_section("examples", command.examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    add_global_options_again(parser)
    parser.set_defaults(command=command)


def _epilog(commands: Iterable[Command]) -> str:
    examples = [*(command.examples[0] for command in commands if command.examples), "rmq --version"]
    codes = [f"{code.value:<4} {code.meaning}" for code in ExitCode]
    return f"{_section('examples', examples)}\n\n{_section('exit codes', codes)}"


def _section(title: str, lines: Sequence[str]) -> str | None:
    return "\n  ".join([f"{title}:", *lines]) if lines else None


def _dispatch(parser: argparse.ArgumentParser, argv: Sequence[str]) -> int:
    try:
        args = parser.parse_args(argv)
    except SystemExit as finished:  # argparse has printed the help, the version or what is wrong
        return int(finished.code or ExitCode.OK)
    command: Command | None = args.command
    if command is None:
        parser.print_help(sys.stderr)
        return ExitCode.USAGE
    with logging_to_stderr(args.log_level, in_background=command.is_service) as logs:
        args.logs = logs
        try:
            return command.run(args)
        except BaseException as error:  # noqa: BLE001 - nothing above us could report it better
            return _report(error, logs.say, debug=args.debug)


def _report(error: BaseException, say: Callable[[str], None], *, debug: bool) -> ExitCode:
    """Tell the user what ended the command, and pick the exit code.

    A nursery hands its errors over in groups. Ctrl-C outranks what fell over because of it, and so
    does a lack of memory; among the others a bug outranks a failure that has a name, and then the
    first one counts.
    """
    if debug:
        say("".join(traceback.format_exception(error)).rstrip())
    causes = list(_leaves(error))
    codes = [exit_code_of(cause) for cause in causes]
    outranking = (ExitCode.INTERRUPTED, ExitCode.OUT_OF_RESOURCES, ExitCode.SOFTWARE)
    code = next((code for code in outranking if code in codes), codes[0])
    if code is ExitCode.INTERRUPTED:
        say("rmq: interrupted")
    elif code is not ExitCode.PIPE_CLOSED:
        for cause in causes:
            _say_error(cause, say, debug=debug)
    return code


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    elif isinstance(error.__cause__, MemoryError):
        # What fell over because of it, the event loop itself included.
        yield error.__cause__
    else:
        yield error


def _say_error(error: BaseException, say: Callable[[str], None], *, debug: bool) -> None:
    kind = type(error).__name__
    text = str(error)
    hint: str | None
    if isinstance(error, RmqError):
        what, hint = error.text or kind, error.hint
    elif isinstance(error, MemoryError):
        what = "out of memory"
        hint = "allow the process more (ulimit -v, the limit of its container), or less load"
    else:
        what = f"unexpected {kind}: {text}" if text else f"unexpected {kind}"
        hint = None if debug else "this is a bug in rmq; --debug shows the traceback"
    say(f"rmq: error: {what}")
    if hint:
        say(f"hint: {hint}")


def _flush_stdout(code: int) -> int:
    """Write out what is buffered while a failure can still become an exit code.

    At the interpreter's own shutdown, a reader that went away would cause a traceback.
    """
    if sys.stdout is None:  # closed by the parent process: prints went nowhere
        return code
    try:
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered goes nowhere, so that the flush at shutdown succeeds.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return ExitCode.PIPE_CLOSED
        print(f"rmq: error: cannot write to standard output: {error.strerror}", file=sys.stderr)
        return code or ExitCode.FAILURE
    return code
