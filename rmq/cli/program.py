"""The command line of `rmq` for click: from words to the command that they choose.

click reads the words, shows help and completes words for shells. Nothing runs here: `parse` returns
what was chosen. Commands are looked up, and their modules loaded, when a line names them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import click

import rmq
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.parameters import GLOBAL, SECTION, Option, flag
from rmq.settings.log_levels import LEVELS

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rmq.cli.common.command import Command

NAME: Final = "rmq"
COMPLETION_VARIABLE: Final = "_RMQ_COMPLETE"
"""What the shells' scripts of `rmq completion` set."""
_DESCRIPTION: Final = "A RocketMQ 4.9.8 compatible messaging system."
_HELP_NAMES: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 96}


class Chosen(NamedTuple):
    """What a command line asks for."""

    command: Command
    path: str
    """How it was named: `rmq ha status`."""
    args: Namespace


def global_options() -> list[Option]:
    """Return the options that stand in front of a command or behind it."""
    return [
        Option(
            "--log-level",
            type=click.Choice(LEVELS),
            metavar="LEVEL",
            section=GLOBAL,
            help=f"lowest level that is logged: {', '.join(LEVELS)} (default: info, or logLevel of"
            " the settings)",
        ),
        flag("--debug", section=GLOBAL, help="show the traceback of an error"),
    ]


@final
class _Formatter(click.HelpFormatter):
    """Help whose headings stand out on terminals."""

    def write_heading(self, heading: str) -> None:
        text = click.style(f"{heading}:", bold=True)
        self.write(f"{'':>{self.current_indent}}{text}\n")


@final
class _Context(click.Context):
    """Where a command is read. Terminals get colour, unless `NO_COLOR` is set."""

    formatter_class = _Formatter

    def __init__(
        self,
        command: click.Command,
        **attributes: Any,  # noqa: ANN401 - click has many
    ) -> None:
        super().__init__(command, **attributes)
        if os.environ.get("NO_COLOR"):
            self.color = False


class _Help(click.Command):
    """Help as all commands show it: options by section, then examples and other blocks of lines."""

    context_class = _Context

    def blocks(self) -> Iterable[tuple[str, Sequence[str]]]:
        """Return what follows the options: titles and lines that are not wrapped."""
        return ()

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        pieces = " ".join(self.collect_usage_pieces(ctx))
        formatter.write_usage(ctx.command_path, pieces, prefix="usage: ")

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.help = "show this help, and exit"
        return option

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        arguments = [each for each in self.get_params(ctx) if isinstance(each, click.Argument)]
        records = [each.get_help_record(ctx) for each in arguments]
        rows = [record for record in records if record is not None]
        if rows:
            with formatter.section("arguments"):
                formatter.write_dl(rows)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {SECTION: []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(param, "section", SECTION), []).append(record)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)
        # Those that all commands have stand at the end.
        everywhere = sections.pop(GLOBAL, [])
        for title, rows in [*sections.items(), (GLOBAL, everywhere)]:
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, lines in self.blocks():
            if lines:
                formatter.write("\n")
                formatter.write_heading(title)
                for line in lines:
                    formatter.write(f"  {line}\n")


@final
class _Leaf(_Help):
    """A command that runs something. To click, running it is to say that it was chosen."""

    def __init__(self, command: Command) -> None:
        super().__init__(
            command.name,
            params=[*command.all_params(), *global_options()],
            help=_unwrapped(command.description or command.help),
            short_help=command.help,
            context_settings=dict(_HELP_NAMES),
        )
        self._command = command

    def blocks(self) -> Iterable[tuple[str, Sequence[str]]]:
        return [("examples", self._command.examples)]

    def invoke(self, ctx: click.Context) -> Chosen:
        from argparse import Namespace

        args = Namespace(**ctx.params)
        above: click.Context | None = ctx
        while above is not None:
            # What stands behind the command counts before what stands in front of it.
            args.log_level = args.log_level or above.params.get("log_level")
            args.debug = args.debug or above.params.get("debug", False)
            above = above.parent
        return Chosen(self._command, ctx.command_path, args)


class _Branch(_Help, click.Group):
    """A command that has actions, each made when a line names it."""

    word = "command"
    """What its actions are called."""

    def __init__(
        self,
        name: str,
        found: Mapping[str, Callable[[], Command]],
        **attributes: Any,  # noqa: ANN401 - click has many
    ) -> None:
        super().__init__(name, context_settings=dict(_HELP_NAMES), **attributes)
        self._found = found
        self._made: dict[str, click.Command] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._found)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._found:
            return None
        if cmd_name not in self._made:
            self._made[cmd_name] = _made_of(self._found[cmd_name]())
        return self._made[cmd_name]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not ctx.resilient_parsing and args[0] not in self._found:
            message = f"No such {self.word} {args[0]!r}."
            raise click.NoSuchCommand(args[0], message, possibilities=self._found, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, make().help) for name, make in self._found.items()]
        if rows:
            with formatter.section(f"{self.word}s"):
                formatter.write_dl(rows)


@final
class _Actions(_Branch):
    """`rmq NAME ACTION`."""

    def __init__(self, command: Command) -> None:
        self._command = command
        super().__init__(
            command.name,
            _by_name(command.all_actions()),
            params=list(global_options()),
            help=_unwrapped(command.description or command.help),
            short_help=command.help,
            subcommand_metavar=f"{command.action_word.upper()} ...",
        )
        self.word = command.action_word

    def blocks(self) -> Iterable[tuple[str, Sequence[str]]]:
        return [("examples", self._command.examples)]


@final
class _Program(_Branch):
    """`rmq COMMAND`."""

    def __init__(self, found: Mapping[str, Callable[[], Command]]) -> None:
        version = f"{NAME} {rmq.__version__} (RocketMQ protocol {rmq.PROTOCOL_VERSION})"
        super().__init__(
            NAME,
            found,
            params=[_version_option(version), *global_options()],
            help=_DESCRIPTION,
            subcommand_metavar="COMMAND ...",
        )

    def blocks(self) -> Iterable[tuple[str, Sequence[str]]]:
        commands = [make() for make in self._found.values()]
        examples = [command.examples[0] for command in commands if command.examples]
        codes = [f"{code.value:<4} {code.meaning}" for code in ExitCode]
        return [("examples", [*examples, f"{NAME} --version"]), ("exit codes", codes)]


def program_of(found: Mapping[str, Callable[[], Command]]) -> click.Group:
    """Return the program with these commands, each made when it is needed."""
    return _Program(found)


def parse(program: click.Group, words: Sequence[str]) -> Chosen | int:
    """Return what a line asks for, or an exit code if there is nothing left to do.

    Prints help, the version or what is wrong with the line.
    """
    try:
        with program.make_context(NAME, list(words)) as ctx:
            chosen: Chosen = program.invoke(ctx)
            return chosen
    except click.exceptions.Exit as finished:
        return finished.exit_code
    except click.exceptions.NoArgsIsHelpError as empty:
        click.echo(empty.format_message(), err=True)
        return ExitCode.USAGE
    except click.UsageError as wrong:
        path = wrong.ctx.command_path if wrong.ctx is not None else NAME
        click.echo(f"{path}: error: {wrong.format_message()}", err=True)
        click.echo(f"hint: {path} --help tells what there is", err=True)
        return ExitCode.USAGE


def _version_option(version: str) -> Option:
    def show(ctx: click.Context, param: click.Parameter, is_given: bool) -> None:
        if is_given and not ctx.resilient_parsing:
            click.echo(version)
            ctx.exit()

    return Option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="show version and protocol, and exit",
    )


def _made_of(command: Command) -> click.Command:
    return _Leaf(command) if command.run is not None else _Actions(command)


def _by_name(commands: Sequence[Command]) -> dict[str, Callable[[], Command]]:
    return {command.name: _returning(command) for command in commands}


def _returning(command: Command) -> Callable[[], Command]:
    return lambda: command


def _unwrapped(text: str) -> str:
    """Return a description with the line breaks of its paragraphs gone: help wraps them."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
