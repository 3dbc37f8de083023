"""The kinds of `rmq generate KIND`: prints or writes files for running rmq."""

from __future__ import annotations

import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.cli.common.command import Command
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.from_argparse import params_from
from rmq.cli.generate.deployment import Deployment, deployment_of
from rmq.cli.generate.deployment import add_arguments as add_deployment_arguments
from rmq.cli.generate.output import shown, write

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from rmq.cli.generate.kind import Kind

KINDS: Final = {
    "broker-conf": "rmq.cli.generate.broker_conf",
    "systemd": "rmq.cli.generate.systemd",
    "compose": "rmq.cli.generate.compose",
    "k8s": "rmq.cli.generate.k8s",
    "grafana": "rmq.cli.generate.grafana.kind",
    "prometheus": "rmq.cli.generate.prometheus",
}
"""Where every kind is. A new one is a module with a constant `KIND`, and a line here."""


def load_kinds() -> list[Kind]:
    """Load all kinds, in the order of `rmq generate --help`."""
    kinds: list[Kind] = [import_module(module).KIND for module in KINDS.values()]
    return kinds


def actions() -> Sequence[Command]:
    """Return a command for every kind."""
    return [_action(kind) for kind in load_kinds()]


def _action(kind: Kind) -> Command:
    def add_arguments(parser: ArgumentParser) -> None:
        if kind.is_filled_in:
            add_deployment_arguments(parser)
        kind.add_arguments(parser)
        output = parser.add_argument_group("output")
        output.add_argument(
            "--out",
            type=Path,
            metavar="DIR",
            help="write files into this folder, instead of printing",
        )
        output.add_argument(
            "--force", action="store_true", help="write over files that are there and differ"
        )

    return Command(
        name=kind.name,
        help=kind.help,
        description=kind.description or kind.help,
        params=partial(params_from, add_arguments),
        run=partial(_run, kind),
    )


def _run(kind: Kind, args: Namespace) -> int:
    deployment = deployment_of(args, os.environ) if kind.is_filled_in else Deployment()
    files = list(kind.files(deployment, args))
    if args.out is None:
        print(shown(files), end="")
    else:
        for path in write(files, args.out, force=args.force):
            print(path)
    for key in deployment.left_out:
        print(
            f"note: {key} is secret and was left out: write it into the settings yourself",
            file=sys.stderr,
        )
    return ExitCode.OK
