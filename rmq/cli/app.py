"""The `rmq` program: from a command line to an exit code.

`main` always returns; it never lets an exception out. What went wrong stands on standard error as
`rmq: error: WHAT`, with a `hint:` line where the error knows one, and the exit code tells scripts
which kind it was (`exit_codes`).
"""

from __future__ import annotations

import os
import sys
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from rmq.cli.common.exit_codes import ExitCode, exit_code_of
from rmq.cli.common.usage import UsageError
from rmq.cli.program import COMPLETION_VARIABLE, NAME, parse, program_of
from rmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import click

    from rmq.cli.common.command import Command
    from rmq.cli.program import Chosen


COMMANDS: Final = (
    "dev",
    "namesrv",
    "broker",
    "produce",
    "consume",
    "cluster",
    "top",
    "topic",
    "group",
    "message",
    "dlq",
    "client",
    "config",
    "ha",
    "doctor",
    "bench",
    "bundle",
    "admin",
    "store",
    "pipeline",
    "generate",
    "context",
    "completion",
)
"""All subcommands, in the order of `rmq --help`: each is a module of `rmq.cli.commands`.

They declare parameters and help; what a command runs is loaded when it is called.
"""


def main(argv: Sequence[str] | None = None, *, commands: Sequence[Command] | None = None) -> int:
    """Run `rmq` with `argv` (by default the arguments of this process) and return its exit code.

    `commands` are those it knows; by default those of `rmq`.
    """
    asked = os.environ.get(COMPLETION_VARIABLE)
    if argv is None and asked:
        from click.shell_completion import shell_complete

        return shell_complete(program(), {}, NAME, COMPLETION_VARIABLE, asked)
    try:
        chosen = parse(program(commands), sys.argv[1:] if argv is None else argv)
        code = chosen if isinstance(chosen, int) else _run(chosen)
    except OSError as error:  # what help is printed to takes nothing
        return _not_printed(error, ExitCode.OK)
    return _flush_stdout(code)


def program(commands: Sequence[Command] | None = None) -> click.Group:
    """Return the program with these commands; by default those of `rmq`."""
    if commands is None:
        return program_of({name: partial(load_command, name) for name in COMMANDS})
    return program_of({command.name: partial(_same, command) for command in commands})


def load_command(name: str) -> Command:
    """Load the declaration of one command."""
    command: Command = import_module(f"rmq.cli.commands.{name}").COMMAND
    return command


def _same(command: Command) -> Command:
    return command


def _run(chosen: Chosen) -> int:
    from rmq.cli.common.logs import logging_to_stderr

    command, args = chosen.command, chosen.args
    with logging_to_stderr(args.log_level, in_background=command.is_service) as logs:
        args.logs = logs
        try:
            if hasattr(args, "context"):
                from rmq.cli.common.contexts import apply_context

                apply_context(args, os.environ)
            return command.load()(args)
        except UsageError as wrong:
            logs.say(f"{chosen.path}: error: {wrong}")
            return ExitCode.USAGE
        except BaseException as error:  # noqa: BLE001 - nothing above us could report it better
            return _report(error, logs.say, debug=args.debug)


def _report(error: BaseException, say: Callable[[str], None], *, debug: bool) -> ExitCode:
    """Tell the user what ended the command, and pick the exit code.

    A nursery hands its errors over in groups. Ctrl-C outranks what fell over because of it, and so
    does a lack of memory; among the others a bug outranks a failure that has a name, and then the
    first one counts.
    """
    if debug:
        import traceback

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
        return _not_printed(error, code)
    return code


def _not_printed(error: OSError, code: int) -> int:
    """Return the exit code where standard output takes nothing more."""
    # What is still buffered goes nowhere, so that the flush at shutdown succeeds.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return ExitCode.PIPE_CLOSED
    print(f"rmq: error: cannot write to standard output: {error.strerror}", file=sys.stderr)
    return code or ExitCode.FAILURE
