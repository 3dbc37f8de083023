"""What `rmq top` asks, and how often."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from rmq.cli.admin.brokers import brokers_found
from rmq.cli.admin.groups import groups_found
from rmq.cli.admin.session import Cluster, open_cluster
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.usage import UsageError
from rmq.cli.top.view import Asked
from rmq.errors import ConfigError, RmqError

if TYPE_CHECKING:
    from argparse import Namespace


def run(args: Namespace) -> int:
    """Show the cluster until the user has seen enough."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("there is no terminal; scripts use `rmq cluster` and `rmq group list`")
    try:
        from rmq.cli.top.app import Top
    except ModuleNotFoundError as exc:
        raise ConfigError(
            "rmq top", f"needs {exc.name}, which is not installed", hint="pip install 'rmq[top]'"
        ) from None
    with open_cluster(args) as cluster:
        Top(lambda: _ask(cluster, args.cluster), args.interval).run()
    return ExitCode.OK


def _ask(cluster: Cluster, name: str | None) -> Asked:
    """Ask all brokers; a cluster that does not answer is a problem to show, too."""
    try:
        brokers, _ = brokers_found(cluster, name)
        groups, _ = groups_found(cluster, name)
    except RmqError as exc:
        return Asked(time.monotonic(), (), (), exc.text)
    return Asked(time.monotonic(), brokers, groups)
