"""What `rmq doctor` looks at, and how it is told."""

from __future__ import annotations

import os
import resource
from dataclasses import asdict
from typing import TYPE_CHECKING

from rmq.cli.admin.session import open_cluster
from rmq.cli.common.client_options import client_config
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.shown import shown
from rmq.cli.common.tables import BAD, GOOD, ODD, Styled, print_json, print_table
from rmq.cli.doctor.checks import Check, State
from rmq.cli.doctor.cluster import cluster_checks
from rmq.cli.doctor.machine import machine_checks, read_machine
from rmq.model.names import NAMESERVERS_VARIABLE
from rmq.model.words import count_text

if TYPE_CHECKING:
    from argparse import Namespace

_STYLES = {State.OK: GOOD, State.ODD: ODD, State.BAD: BAD}


def run(args: Namespace) -> int:
    """Look at the machine, at a file if one is given, at a cluster if one is known."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_files = (1 << 60) if hard == resource.RLIM_INFINITY else hard
    checks = list(machine_checks(read_machine(open_files)))
    if args.config is not None:
        from rmq.cli.doctor.settings import settings_checks

        checks += settings_checks(args.config, os.environ)
    has_cluster = args.nameservers is not None or os.environ.get(NAMESERVERS_VARIABLE)
    if has_cluster:
        config = client_config(args, os.environ)
        with open_cluster(args) as cluster:
            checks += cluster_checks(cluster, config, args.timeout)
    if args.json:
        print_json({"checks": [asdict(check) for check in checks]})
    else:
        _show(checks, has_config=args.config is not None, has_cluster=bool(has_cluster))
    return ExitCode.FAILURE if any(check.state is State.BAD for check in checks) else ExitCode.OK


def _show(checks: list[Check], *, has_config: bool, has_cluster: bool) -> None:
    print_table(
        ("", "ABOUT", "WHAT", "FOUND"),
        [
            (
                Styled(check.state.value, _STYLES[check.state]),
                check.about,
                check.what,
                check.found,
            )
            for check in checks
        ],
    )
    todo = [check for check in checks if check.todo is not None]
    if todo:
        print("\nwhat to do:")
        for check in todo:
            print(f"  {shown(check.about)}, {check.what}: {shown(check.todo or '')}")
    if not has_config:
        print("\nnote: -c FILE checks a broker.conf and the place it names, too")
    if not has_cluster:
        print("\nnote: -n HOST:PORT checks a cluster, too")
    failed = sum(check.state is State.BAD for check in checks)
    odd = sum(check.state is State.ODD for check in checks)
    print(f"\n{count_text(len(checks), 'check')}: {failed} failed, {count_text(odd, 'warning')}")
