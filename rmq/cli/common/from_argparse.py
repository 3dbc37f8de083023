"""Parameters that are declared with argparse, as click has them.

Pipelines are programs for `spark-submit`, too, where there is no click, and so they declare what
they take with the standard library; `rmq generate` shares the form with its kinds. Supported is
what these use: values, flags, choices, lists by repetition, groups and groups that exclude.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rmq.cli.common.parameters import SECTION, Argument, Option, Parsed, path_type

if TYPE_CHECKING:
    from collections.abc import Callable

_OWN_SECTIONS: Final = ("options", "positional arguments")


def params_from(add_arguments: Callable[[argparse.ArgumentParser], None]) -> list[click.Parameter]:
    """Return the parameters that a function declares at a parser of argparse."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_arguments(parser)
    excluding = {
        action.dest: [other for other in group._group_actions if other is not action]
        for group in parser._mutually_exclusive_groups
        for action in group._group_actions
    }
    params: list[click.Parameter] = []
    for group in parser._action_groups:
        section = SECTION if group.title in _OWN_SECTIONS else group.title or SECTION
        for action in group._group_actions:
            others = excluding.get(action.dest, ())
            params.append(_param(action, section, [_spelled(other) for other in others]))
    return params


def _param(action: argparse.Action, section: str, others: list[str]) -> click.Parameter:
    help_text = (action.help or "") % {"default": action.default, "prog": "rmq"}
    common: dict[str, Any] = {"help": help_text, "type": _type_of(action)}
    if isinstance(action.metavar, str):
        common["metavar"] = action.metavar
    if not action.option_strings:
        if action.nargs in ("*", "+"):
            common |= {"nargs": -1, "required": action.nargs == "+"}
        elif action.nargs == "?":
            common |= {"required": False, "default": action.default}
        common.setdefault("metavar", action.dest.upper())
        return Argument(action.dest, **common)
    common |= {"section": section, "required": action.required}
    if isinstance(action, argparse._StoreTrueAction):
        del common["type"]
        common |= {"is_flag": True, "default": bool(action.default)}
    elif isinstance(action, argparse._AppendAction):
        common |= {"multiple": True, "default": tuple(action.default or ())}
    else:
        assert isinstance(action, argparse._StoreAction), f"{action} is not supported"
        assert action.nargs is None, f"{action} takes several words"
        common["default"] = action.default
    if others:
        common["callback"] = _refusing(others)
    return Option(*action.option_strings, action.dest, **common)


def _refusing(others: list[str]) -> Callable[[click.Context, click.Parameter, object], object]:
    """Return a check that none of the options that exclude this one was read before it."""

    def check(ctx: click.Context, param: click.Parameter, value: object) -> object:
        if value:
            given = [each for each in others if ctx.params.get(_dest(each, ctx))]
            if given:
                raise click.UsageError(f"{param.opts[0]} and {given[0]} exclude each other", ctx)
        return value

    return check


def _dest(spelled: str, ctx: click.Context) -> str:
    names = (each.name or "" for each in ctx.command.params if spelled in each.opts)
    return next(names, "")


def _spelled(action: argparse.Action) -> str:
    return action.option_strings[0]


def _type_of(action: argparse.Action) -> click.ParamType[Any] | None:
    if action.choices is not None:
        return click.Choice([str(choice) for choice in action.choices])
    if action.type is None:
        return None
    if action.type is Path:
        return path_type()
    read = action.type
    assert callable(read), f"{action} reads its values with {read!r}"

    def parse(text: str) -> object:
        try:
            return read(text)
        except argparse.ArgumentTypeError as wrong:
            raise ValueError(str(wrong)) from None
        except ValueError:
            name = getattr(read, "__name__", "value")
            raise ValueError(f"{text!r} is no {'number' if name == 'int' else name}") from None

    return Parsed(getattr(read, "__name__", "value"), parse)
