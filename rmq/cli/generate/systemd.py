"""`rmq generate systemd`: units for a nameserver and for brokers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rmq.cli.common.usage import UsageError
from rmq.cli.generate.kind import GeneratedFile, Kind
from rmq.cli.generate.templates import fill, template

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable

    from rmq.cli.generate.deployment import Deployment

PROGRAM: Final = "/opt/rmq/bin/rmq"
_ACCOUNT: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_PATH: Final = re.compile(r"/[\w./+-]+", re.ASCII)


def _files(deployment: Deployment, args: Namespace) -> Iterable[GeneratedFile]:
    if not _ACCOUNT.fullmatch(args.user):
        raise UsageError(f"--user {args.user!r} is no name of an account")
    if not _PATH.fullmatch(args.rmq):
        raise UsageError(f"--rmq {args.rmq!r} is not an absolute path without blanks")
    values = {"user": args.user, "rmq": args.rmq, "writable": _writable(deployment)}
    values["hardening"] = fill(template("hardening.conf"), values)
    for name in ("rmq-namesrv.service", "rmq-broker@.service"):
        yield GeneratedFile(name, fill(template(name), values))


def _writable(deployment: Deployment) -> str:
    """Return which paths a broker writes besides its StateDirectory."""
    store = deployment.store
    outside = store is not None and not store.startswith("/var/lib/rmq/")
    return f"/etc/rmq {store}" if outside else "/etc/rmq"


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--user", default="rmq", metavar="NAME", help="account (%(default)s)")
    parser.add_argument("--rmq", default=PROGRAM, metavar="PATH", help="the program (%(default)s)")


KIND: Final = Kind(
    name="systemd",
    help="units for a nameserver and for brokers",
    description="Units: rmq-namesrv.service, and rmq-broker@NAME.service with /etc/rmq/NAME.conf.",
    files=_files,
    add_arguments=_add_arguments,
)
