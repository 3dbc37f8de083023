"""Parameters that are declared with argparse."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmq.cli.common.command import Command
from rmq.cli.common.from_argparse import params_from
from rmq.cli.program import Chosen, parse, program_of

if TYPE_CHECKING:
    from argparse import ArgumentParser


def _even(text: str) -> int:
    if int(text) % 2:
        raise argparse.ArgumentTypeError(f"{text} is odd")
    return int(text)


def declare(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="100 %% of it")
    parser.add_argument("-n", "--number", type=_even, default=4, help="(default: %(default)s)")
    group = parser.add_argument_group("how")
    group.add_argument("--mode", choices=("a", "b"), default="a")
    group.add_argument("--key", action="append", default=[], metavar="K=V")
    group.add_argument("--from", dest="start", type=int)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--all", action="store_true")
    either.add_argument("--one", metavar="X")


def read(*words: str) -> Chosen | int:
    command = Command(name="do", help="does", params=params_from(declare), run=lambda _: 0)
    return parse(program_of({"do": lambda: command}), ["do", *words])


def test_values_are_read_as_argparse_reads_them() -> None:
    chosen = read("x", "-n", "6", "--key", "a=1", "--key", "b=2", "--from", "3", "--all")
    assert isinstance(chosen, Chosen)
    args = chosen.args
    assert (args.file, args.number, args.mode, args.start) == (Path("x"), 6, "a", 3)
    assert (args.key, args.all, args.one) == (("a=1", "b=2"), True, None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["x", "-n", "3"], "3 is odd", id="its own check"),
        pytest.param(["x", "--from", "y"], "'y' is no number", id="a plain type"),
        pytest.param(["x", "--mode", "c"], "'c' is not one of 'a', 'b'", id="choice"),
        pytest.param(["x", "--all", "--one", "y"], "--one and --all exclude", id="excluding"),
        pytest.param([], "Missing argument 'FILE'", id="missing"),
    ],
)
def test_what_is_wrong_is_said(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read(*words) == 2
    assert message in capsys.readouterr().err


def test_help_has_sections_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert read("--help") == 0
    shown = capsys.readouterr().out
    assert "(default: 4)" in shown
    assert "100 % of it" in shown
    assert "\nhow:\n  --mode [a|b]" in shown
