"""The program around the commands: parsing, exit codes, what is printed where."""

from __future__ import annotations

import logging
import os
import re
import shlex
import subprocess
import sys
from itertools import groupby, takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.cli import main
from rmq.cli.app import COMMANDS, load_command, program
from rmq.cli.common.command import Command
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.parameters import Option
from rmq.cli.program import Chosen, parse
from rmq.errors import ConfigError, ConnectionLostError, ListenError, RmqError
from tests.paths import DOCS

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator

    from tests.cli.conftest import RunHere


def command(run: Callable[[Namespace], int], name: str = "greet") -> Command:
    return Command(
        name=name,
        help=f"run {name}",
        params=(Option("--whom", default="world", metavar="NAME"),),
        run=run,
        examples=(f"rmq {name} --whom you", f"rmq {name} --whom me"),
    )


def greet(args: Namespace) -> int:
    sys.stdout.write(f"hello {args.whom}\n")
    return ExitCode.OK


def raising(error: BaseException) -> Command:
    def run(args: Namespace) -> int:
        raise error

    return command(run)


def python(*arguments: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with buffered output, as users do."""
    return subprocess.run(
        [sys.executable, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        text=True,
        timeout=60,
        check=False,
    )


# --- which modules are loaded --------------------------------------------------------------


HEAVY = ("trio", "construct", "msgspec", "rich", "rmq.remoting", "rmq.store", "rmq.broker")
"""What commands do their work with."""


def loaded_by(code: str, **environ: str) -> set[str]:
    """Return all modules that a process has loaded when its code is done."""
    script = f"import sys\n{code}\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        env={**os.environ, **environ},
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    ("code", "environ"),
    [
        pytest.param("from rmq.cli import main; main(['--version'])", {}, id="version"),
        pytest.param("from rmq.cli import main; main(['--help'])", {}, id="help"),
        pytest.param(
            "from rmq.cli import main; sys.argv = ['rmq']; main()",
            {"_RMQ_COMPLETE": "bash_complete", "COMP_WORDS": "rmq ha st", "COMP_CWORD": "2"},
            id="completion",
        ),
    ],
)
def test_help_and_completion_load_declarations_only(code: str, environ: dict[str, str]) -> None:
    loaded = loaded_by(code, **environ)
    assert loaded & {*HEAVY, "logging", "argparse"} == set()


def test_an_admin_command_loads_neither_an_event_loop_nor_a_broker() -> None:
    loaded = loaded_by("from rmq.cli import main; main(['cluster', '-n', '127.0.0.1:1', '--json'])")
    assert "rmq.client.blocking.admin" in loaded
    assert loaded & {"trio", "rmq.broker", "rmq.store", "rmq.ha", "tomlkit", "rich"} == set()


def test_a_nameserver_loads_what_it_needs() -> None:
    loaded = loaded_by("import rmq.cli.namesrv")
    assert loaded & {"rmq.broker", "rmq.client", "rmq.store", "rich"} == set()


def all_commands() -> list[tuple[str, Command]]:
    found = []
    for name in COMMANDS:
        declared = load_command(name)
        found.append((name, declared))
        found += [(f"{name} {each.name}", each) for each in declared.all_actions()]
    return found


def test_every_command_is_declared_in_full() -> None:
    """What it runs exists, it has help, and its examples are lines that it understands."""
    for path, declared in all_commands():
        assert path.endswith(declared.name)
        assert declared.help
        assert not declared.help.endswith(".")
        if declared.run is not None:
            assert callable(declared.load()), path
        for example in declared.examples:
            for line in lines_of(example):
                assert isinstance(parse(program(), line), Chosen), example


def lines_of(example: str) -> Iterator[list[str]]:
    """Yield the words behind each `rmq` of a line for a shell."""
    reader = shlex.shlex(example, posix=True, punctuation_chars="|<>")
    reader.whitespace_split = True
    words = list(reader)
    for is_pipe, part in groupby(words, lambda word: word == "|"):
        line = list(takewhile(lambda word: word not in "<>", part))
        if not is_pipe and line[0] == "rmq":
            yield line[1:]


# --- parsing --------------------------------------------------------------------------------


def test_version_names_the_release_and_the_protocol() -> None:
    done = python("-m", "rmq", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "rmq 0.1.0 (RocketMQ protocol V4_9_8)\n",
        "",
    )


def test_no_command_prints_the_help_to_stderr_and_is_a_usage_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([], commands=[command(greet)]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: rmq ")
    assert "greet" in err


def test_help_shows_commands_examples_and_every_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"], commands=[command(greet), command(greet, "part")]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert err == ""
    for expected in ("run greet", "run part", "rmq greet --whom you", "rmq part --whom you"):
        assert expected in out
    for code in ExitCode:
        assert f"  {code.value:<4} {code.meaning}\n" in out


def test_help_of_a_command_shows_its_arguments_and_examples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["greet", "--help"], commands=[command(greet)]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "--whom" in out
    assert "rmq greet --whom me" in out
    assert "--log-level" in out


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(["nosuch"], id="unknown command"),
        pytest.param(["greet", "--nosuch"], id="unknown option"),
        pytest.param(["greet", "--who", "you"], id="abbreviated option"),
        pytest.param(["--log-level", "loud", "greet"], id="bad choice"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv, commands=[command(greet)]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert "error:" in err


def test_a_command_gets_its_arguments_and_its_exit_code_is_returned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["greet", "--whom", "you"], commands=[command(greet)]) == ExitCode.OK
    assert capsys.readouterr() == ("hello you\n", "")
    assert main(["greet"], commands=[command(lambda args: 9)]) == 9


@pytest.mark.parametrize(
    ("argv", "log_level", "debug"),
    [
        pytest.param(["greet"], None, False, id="defaults"),
        pytest.param(["--log-level=error", "--debug", "greet"], "error", True, id="before"),
        pytest.param(["greet", "--log-level=error", "--debug"], "error", True, id="after"),
        pytest.param(["--debug", "greet", "--log-level=debug"], "debug", True, id="split"),
        pytest.param(
            ["--log-level=error", "greet", "--log-level=debug"], "debug", False, id="last wins"
        ),
    ],
)
def test_global_options_may_stand_before_and_after_the_command(
    argv: list[str], log_level: str | None, debug: bool
) -> None:
    seen: list[Namespace] = []

    def run(args: Namespace) -> int:
        seen.append(args)
        return ExitCode.OK

    assert main(argv, commands=[command(run)]) == ExitCode.OK
    assert [(args.log_level, args.debug) for args in seen] == [(log_level, debug)]


# --- failures -------------------------------------------------------------------------------


class HintedError(RmqError):
    hint = "feed it"


@pytest.mark.parametrize(
    ("error", "code", "printed"),
    [
        pytest.param(
            ConfigError("port", "is negative"),
            ExitCode.CONFIG,
            "rmq: error: port: is negative\n",
            id="named error",
        ),
        pytest.param(
            ListenError("127.0.0.1:1", "in use", hint="choose another port"),
            ExitCode.UNAVAILABLE,
            "rmq: error: cannot listen on 127.0.0.1:1: in use\nhint: choose another port\n",
            id="hint of the instance",
        ),
        pytest.param(
            HintedError("starving"),
            ExitCode.FAILURE,
            "rmq: error: starving\nhint: feed it\n",
            id="hint of the class",
        ),
        pytest.param(
            RmqError(), ExitCode.FAILURE, "rmq: error: RmqError\n", id="error without a text"
        ),
        pytest.param(
            ValueError("odd"),
            ExitCode.SOFTWARE,
            "rmq: error: unexpected ValueError: odd\n"
            "hint: this is a bug in rmq; --debug shows the traceback\n",
            id="bug",
        ),
        pytest.param(
            SystemExit(0),
            ExitCode.SOFTWARE,
            "rmq: error: unexpected SystemExit: 0\n"
            "hint: this is a bug in rmq; --debug shows the traceback\n",
            id="exit from inside a command",
        ),
        pytest.param(KeyboardInterrupt(), ExitCode.INTERRUPTED, "rmq: interrupted\n", id="Ctrl-C"),
        pytest.param(BrokenPipeError(), ExitCode.PIPE_CLOSED, "", id="closed pipe"),
        pytest.param(
            ExceptionGroup("nursery", [ExceptionGroup("inner", [ConfigError("a", "b")])]),
            ExitCode.CONFIG,
            "rmq: error: a: b\n",
            id="group of one",
        ),
        pytest.param(
            ExceptionGroup("nursery", [ListenError("x", "y"), ConfigError("a", "b")]),
            ExitCode.UNAVAILABLE,
            "rmq: error: cannot listen on x: y\nrmq: error: a: b\n",
            id="first of a group counts",
        ),
        pytest.param(
            ExceptionGroup("nursery", [ConnectionLostError("p", "reset"), KeyError("k")]),
            ExitCode.SOFTWARE,
            "rmq: error: connection to p lost: reset\n"
            "rmq: error: unexpected KeyError: 'k'\n"
            "hint: this is a bug in rmq; --debug shows the traceback\n",
            id="bug outranks named errors",
        ),
        pytest.param(
            BaseExceptionGroup("nursery", [ValueError("odd"), KeyboardInterrupt()]),
            ExitCode.INTERRUPTED,
            "rmq: interrupted\n",
            id="Ctrl-C outranks what fell over with it",
        ),
    ],
)
def test_an_error_becomes_an_exit_code_and_a_message(
    error: BaseException, code: ExitCode, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["greet"], commands=[raising(error)]) == code
    assert capsys.readouterr() == ("", printed)


@pytest.mark.parametrize(
    "error",
    [pytest.param(ValueError("odd"), id="bug"), pytest.param(ConfigError("a", "b"), id="named")],
)
def test_debug_adds_the_traceback_and_no_advice_to_use_it(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["greet", "--debug"], commands=[raising(error)])
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last):\n")
    assert "rmq: error: " in err
    assert "--debug" not in err


def test_an_error_out_of_a_nursery_is_reported_as_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def listen() -> None:
        raise ListenError("127.0.0.1:1", "in use")

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            nursery.start_soon(trio.sleep_forever)

    def run(args: Namespace) -> int:
        trio.run(serve)
        return ExitCode.OK

    assert main(["greet"], commands=[command(run)]) == ExitCode.UNAVAILABLE
    assert capsys.readouterr().err == "rmq: error: cannot listen on 127.0.0.1:1: in use\n"


SCRIPT = """
import os, signal, sys, trio
from rmq.cli import main
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import POSITIVE, Option

def interrupted(args):
    # A shell starts what runs in the background with this signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    async def wait():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            os.kill(os.getpid(), signal.SIGINT)
    trio.run(wait)
    return 0

def talkative(args):
    for _ in range(args.lines):
        print("x" * 1000)
    return 0

commands = [
    Command(
        name=run.__name__,
        help="",
        params=[Option("--lines", type=POSITIVE, default=1)],
        run=run,
    )
    for run in (interrupted, talkative)
]
sys.exit(main(commands=commands))
"""


def test_ctrl_c_inside_trio_ends_with_130_and_no_traceback() -> None:
    done = python("-c", SCRIPT, "interrupted")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "rmq: interrupted\n")


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(1, id="found by the last flush"),
        pytest.param(1000, id="found by a print of the command"),
    ],
)
def test_a_reader_that_went_away_ends_the_program_quietly(lines: int) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = python("-c", SCRIPT, "talkative", f"--lines={lines}", stdout=write_end)
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (ExitCode.PIPE_CLOSED, "")


def test_output_that_cannot_be_written_is_a_failure_not_a_success() -> None:
    with Path("/dev/full").open("w") as full:
        done = python("-c", SCRIPT, "talkative", stdout=full.fileno())
    assert done.returncode == ExitCode.FAILURE
    assert done.stderr.startswith("rmq: error: cannot write to standard output: ")


def test_a_closed_standard_output_is_not_an_error() -> None:
    close_and_run = (
        "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    done = python("-c", close_and_run, "-c", SCRIPT, "talkative")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- logging --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param([], ["INFO", "ERROR"], id="info by default"),
        pytest.param(["--log-level", "debug"], ["DEBUG", "INFO", "ERROR"], id="debug"),
        pytest.param(["--log-level", "error"], ["ERROR"], id="error"),
    ],
)
def test_the_log_level_decides_what_a_command_logs(
    options: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def run(args: Namespace) -> int:
        logger = logging.getLogger("rmq.test")
        logger.debug("one")
        logger.info("two")
        logger.error("three")
        return ExitCode.OK

    assert main(["greet", *options], commands=[command(run)]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split()[1] for line in err.splitlines()] == expected


# --- the page -------------------------------------------------------------------------------


def test_the_page_lists_all_commands_their_actions_and_the_exit_codes() -> None:
    page = (DOCS / "cli.md").read_text()
    for name in COMMANDS:
        declared = load_command(name)
        found = re.search(rf"`rmq {name}(?: ([a-z\\|]+|\.\.\.|[a-z]+))?`", page)
        assert found, name
        listed = (found[1] or "...").replace("\\", "")
        if declared.run is None and listed != "...":
            assert listed.split("|") == [action.name for action in declared.all_actions()]
    for code in ExitCode:
        assert re.search(rf"^\| {code.value} \| \S", page, re.MULTILINE), code


# --- rmq broker -----------------------------------------------------------------------------


def test_a_broker_takes_settings_from_the_command_line(run_here: RunHere, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=a\nlistenPort=20911\n")
    broker = ("broker", "-p", "-c", str(file))
    code, output, _ = run_here(*broker, "--port", "30911", "--set", "brokerName = b")
    assert code == ExitCode.OK
    assert {"brokerName=b", "listenPort=30911"} <= set(output.splitlines())
    code, _, errors = run_here(*broker, "--set", "brokerName")
    assert (code, errors) == (
        ExitCode.USAGE,
        "rmq broker: error: --set brokerName: write KEY=VALUE\n",
    )
    code, _, errors = run_here(*broker, "--set", "brokerNam=b")
    assert code == ExitCode.CONFIG
    assert "did you mean brokerName?" in errors
    assert run_here(*broker, "-m")[0] == ExitCode.USAGE
