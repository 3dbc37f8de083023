"""The actions of `rmq context`."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.cli.common.contexts import FIELDS, Context, Contexts, load_contexts, save_contexts
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.tables import GOOD, Styled, print_facts, print_json, print_table
from rmq.cli.common.usage import UsageError
from rmq.client.core.nameservers import parse_nameservers
from rmq.errors import ConfigError

if TYPE_CHECKING:
    from argparse import Namespace

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def list_contexts(args: Namespace) -> int:
    """Print all names."""
    contexts = load_contexts(os.environ)
    if args.json:
        print_json(
            {
                "current": contexts.current,
                "contexts": {name: _json(context) for name, context in contexts.known.items()},
            }
        )
        return ExitCode.OK
    print_table(
        ("IN USE", "NAME", "NAMESERVERS"),
        [
            (
                Styled("*", GOOD) if name == contexts.current else "",
                name,
                str(context.get("nameservers", "")),
            )
            for name, context in contexts.known.items()
        ],
    )
    return ExitCode.OK


def show(args: Namespace) -> int:
    """Print what is known of one."""
    contexts = load_contexts(os.environ)
    name = args.name or contexts.current
    if name is None:
        raise UsageError("no context is in use; name one, or see `rmq context list`")
    context = _json(contexts.find(name))
    if args.json:
        print_json({"name": name, "is_current": name == contexts.current, **context})
    else:
        print_facts([("name", name), *((key, str(value)) for key, value in context.items())])
    return ExitCode.OK


def use(args: Namespace) -> int:
    """Choose one."""
    contexts = load_contexts(os.environ)
    contexts.find(args.name)
    save_contexts(replace(contexts, current=args.name))
    print(f"commands are for {args.name} now")
    return ExitCode.OK


def add(args: Namespace) -> int:
    """Name a cluster."""
    if not _NAME.fullmatch(args.name):
        raise UsageError(f"{args.name!r} is no name: letters, digits, '.', '_' and '-' only")
    try:
        parse_nameservers(args.nameservers)
    except ConfigError as wrong:
        raise UsageError(f"-n {args.nameservers}: {wrong.reason}") from None
    contexts = load_contexts(os.environ)
    given = {key: getattr(args, key) for key in FIELDS}
    context = {
        key: value.absolute() if isinstance(value, Path) else value
        for key, value in given.items()
        if value
    }
    known = contexts.known | {args.name: context}
    current = contexts.current if contexts.current in known else args.name
    save_contexts(Contexts(contexts.path, current, known))
    print(f"{args.name} is in {contexts.path}" + (", and in use" if current == args.name else ""))
    return ExitCode.OK


def remove(args: Namespace) -> int:
    """Forget one."""
    contexts = load_contexts(os.environ)
    contexts.find(args.name)
    known = {name: context for name, context in contexts.known.items() if name != args.name}
    current = None if contexts.current == args.name else contexts.current
    save_contexts(Contexts(contexts.path, current, known))
    print(f"{args.name} is forgotten" + ("; no context is in use" if current is None else ""))
    return ExitCode.OK


def _json(context: Context) -> Context:
    return {key: str(value) if isinstance(value, Path) else value for key, value in context.items()}
