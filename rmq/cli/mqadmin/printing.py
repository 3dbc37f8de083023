"""What the commands of `rmq admin` share: the form of times, tables and result lines."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

from rmq.cli.common.shown import shown
from rmq.cli.common.usage import UsageError
from rmq.client.core.admin.targets import who
from rmq.model.moments import parse_moment_ms

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

    from rmq.client.core.routes import Address


def time_of(text: str) -> int:
    """Read `now`, milliseconds, `yyyy-MM-dd#HH:mm:ss:SSS`, or a time as ISO 8601 has it."""
    if text == "now":
        return int(time.time() * 1000)
    try:
        moment = datetime.strptime(text, "%Y-%m-%d#%H:%M:%S:%f").astimezone()
    except ValueError:
        pass
    else:
        return int(moment.timestamp() * 1000)
    try:
        return parse_moment_ms(text)
    except ValueError as wrong:
        raise UsageError(f"{wrong}, or yyyy-MM-dd#HH:mm:ss:SSS, or now") from None


def stamp(ms: int) -> str:
    """Return a time as mqadmin prints it: local, without a zone."""
    if ms <= 0:
        return ""
    return datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]


def target_of(args: Namespace) -> dict[str, str | None]:
    """Return the brokers that -b or -c name; raise `UsageError` if neither does."""
    if args.broker is None and args.cluster is None:
        raise UsageError("which brokers? give -b HOST:PORT, or -c CLUSTER")
    if args.broker is not None:
        return {"broker": args.broker, "cluster": None}
    return {"broker": None, "cluster": args.cluster}


def tell_done(what: str, where: Iterable[Address]) -> None:
    """Print a line for each broker that did something."""
    for broker in where:
        print(f"{what} to {who(broker)} success.")


def print_settings(table: dict[str, str]) -> None:
    """Print keys and values as mqadmin does."""
    for key in sorted(table):
        print(f"{shown(key):<50}=  {shown(table[key])}")
