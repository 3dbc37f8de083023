"""`rmq generate KIND`: prints or writes files for running rmq."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.cli.common.command import Command
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.logs import LEVELS
from rmq.cli.common.usage import UsageError
from rmq.cli.generate.deployment import Deployment, deployment_of
from rmq.cli.generate.deployment import add_arguments as add_deployment_arguments
from rmq.cli.generate.output import shown, write

if TYPE_CHECKING:
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


def run(args: argparse.Namespace) -> int:
    kind: Kind = args.kind
    try:
        deployment = deployment_of(args, os.environ) if kind.is_filled_in else Deployment()
        files = list(kind.files(deployment, args))
    except UsageError as wrong:
        print(f"rmq generate {kind.name}: error: {wrong}", file=sys.stderr)
        return ExitCode.USAGE
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True)
    for kind in load_kinds():
        _add_kind(kinds, kind)


def _add_kind(kinds: argparse._SubParsersAction[argparse.ArgumentParser], kind: Kind) -> None:
    parser = kinds.add_parser(
        kind.name,
        help=kind.help,
        description=kind.description or kind.help,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(kind=kind)
    if kind.is_filled_in:
        add_deployment_arguments(parser)
    kind.add_arguments(parser)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out", type=Path, metavar="DIR", help="write files into this folder, instead of printing"
    )
    output.add_argument(
        "--force", action="store_true", help="write over files that are there and differ"
    )
    # The program takes these behind the command's name, and here behind the kind's, too.
    group = parser.add_argument_group("global options")
    group.add_argument(
        "--log-level", choices=LEVELS, default=argparse.SUPPRESS, help="lowest level that is logged"
    )
    group.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )


COMMAND: Final = Command(
    name="generate",
    help="print files for running rmq: settings, units, containers, alerts",
    description=(
        "Prints files for running rmq, filled in from the command line or from the settings of a"
        " broker (-c). Secrets are left out."
    ),
    add_arguments=add_arguments,
    run=run,
    examples=(
        "rmq generate broker-conf --topology sync-pair --out conf",
        "rmq generate systemd -c broker.conf",
        "rmq generate compose --out deployment",
        "rmq generate k8s -c broker.conf | kubectl apply -f -",
        "rmq generate grafana --out grafana",
        "rmq generate prometheus --brokers '10.0.0.1;10.0.0.2' --out /etc/prometheus",
    ),
)
