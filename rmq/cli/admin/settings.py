"""Settings of running brokers: `rmq config get`, `set` and `diff`."""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rmq.cli.admin.session import Cluster, confirmed, open_cluster, print_found
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.shown import shown
from rmq.cli.common.tables import print_table
from rmq.cli.common.usage import UsageError
from rmq.client.core.admin.brokers import update_broker_config
from rmq.client.core.admin.nameservers import read_settings
from rmq.client.core.admin.targets import TIMEOUT_S, Failure, failed, who
from rmq.client.core.flows import ask
from rmq.errors import ConfigError, NoBrokerError
from rmq.model.names import MASTER_ID
from rmq.remoting.codes import RequestCode
from rmq.settings.properties_file import read_members

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping
    from pathlib import Path

    from rmq.client.core.flows import Flow
    from rmq.client.core.routes import Address

OWN: Final = re.compile(
    r"broker(Name|Id|IP\d|Role)|listenPort|bindAddress|ha(Listen)?(Port|MasterAddress)|metrics.*"
    r"|storePath.*|.*Path|.*File|rocketmqHome|namesrvAddr",
    re.IGNORECASE,
)
"""Settings in which brokers differ because they are different brokers."""


def get(args: Namespace) -> int:
    """Print settings."""
    with open_cluster(args) as cluster:
        tables, failures = _tables(cluster, _targets(cluster, args))
    wanted = list(args.keys)
    known = {key for table in tables.values() for key in table}
    for key in wanted:
        if key not in known and tables and not failures:
            raise UsageError(f"no broker has a setting {key}; see `rmq config reference {key}`")
    found = {
        "brokers": [
            {
                "broker": broker.broker_name,
                "address": broker.address,
                "settings": {key: table[key] for key in wanted or sorted(table) if key in table},
            }
            for broker, table in tables.items()
        ]
    }
    return print_found(args, found, lambda: _show(tables, wanted or sorted(known)), failures)


def _targets(cluster: Cluster, args: Namespace) -> list[Address]:
    """Return the brokers that options name: one, or all masters and slaves."""
    groups = cluster.groups(cluster=args.cluster, broker=args.broker)
    return [broker for group in groups for broker in group]


def _tables(
    cluster: Cluster, brokers: list[Address]
) -> tuple[dict[Address, dict[str, str]], list[Failure]]:
    """Return the settings of brokers, and who did not answer; raise if none did."""
    tables, errors = cluster.run_all({broker: _settings_of(broker) for broker in brokers})
    failures = [Failure(broker, error) for broker, error in errors.items()]
    if failures and not tables:
        raise failed("settings", failures)
    return tables, failures


def _settings_of(broker: Address) -> Flow[dict[str, str]]:
    answer = yield from ask(broker.address, RequestCode.GET_BROKER_CONFIG, timeout_s=TIMEOUT_S)
    return read_settings(answer)


def _show(tables: Mapping[Address, Mapping[str, str]], keys: list[str]) -> None:
    rows = []
    for key in keys:
        holders: dict[str, list[str]] = {}
        for broker, table in tables.items():
            if key in table:
                holders.setdefault(table[key], []).append(_name(broker))
        for value, names in holders.items():
            rows.append((key, value, "all" if len(names) == len(tables) > 1 else ", ".join(names)))
    print_table(("KEY", "VALUE", "BROKERS"), rows)


def _name(broker: Address) -> str:
    return f"{broker.broker_name}:{broker.broker_id}" if broker.broker_name else broker.address


# --- set --------------------------------------------------------------------------------------


def put(args: Namespace) -> int:
    """Show what would change, ask, and change it."""
    wanted = dict(map(_change, args.changes))
    if args.broker is None and args.cluster is None:
        raise UsageError("which brokers? give -b NAME|HOST:PORT, or --cluster NAME")
    with open_cluster(args) as cluster:
        groups = cluster.groups(cluster=args.cluster, broker=args.broker)
        masters = [group[0] for group in groups]
        for master in masters:
            if master.broker_id != MASTER_ID:
                raise NoBrokerError(f"broker {master.broker_name}", "it has no master now")
        tables, failures = _tables(cluster, masters)
        lines = [
            {"broker": _name(broker), "key": key, "old": table.get(key), "new": value}
            for broker, table in tables.items()
            for key, value in wanted.items()
        ]
        if not args.json:
            print_table(
                ("BROKER", "KEY", "NOW", "THEN"),
                [(each["broker"], each["key"], each["old"], each["new"]) for each in lines],
            )
        if failures:
            print_found(args, {}, lambda: None, failures)
            raise UsageError("all brokers must answer before settings are changed")
        found: dict[str, Any] = {"is_dry_run": args.dry_run, "changes": lines}
        if args.dry_run:
            return print_found(args, found, lambda: None)
        if not confirmed(args, "change them?"):
            return ExitCode.FAILURE
        remarks, errors = cluster.run_all(
            {
                broker: update_broker_config(cluster.nameservers, broker.address, wanted)
                for broker in tables
            }
        )
    found["remarks"] = {_name(broker): remark for broker, remark in remarks.items()}

    def show() -> None:
        for broker, remark in remarks.items():
            print(f"changed at {who(broker)}" + (f": {shown(remark)}" if remark else ""))

    return print_found(
        args, found, show, [Failure(broker, error) for broker, error in errors.items()]
    )


def _change(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"{text}: write KEY=VALUE")
    return key.strip(), value.strip()


# --- diff -------------------------------------------------------------------------------------


def diff(args: Namespace) -> int:
    """Print settings that differ; 1 if there are any."""
    if args.file is not None and args.broker is None:
        raise UsageError("--file is compared with one broker: give -b NAME|HOST:PORT")
    with open_cluster(args) as cluster:
        brokers = _targets(cluster, args)
        if args.file is not None:
            brokers = brokers[:1]
        tables, failures = _tables(cluster, brokers)
    columns = {_name(broker): table for broker, table in tables.items()}
    if args.file is not None:
        written = _written(args.file)
        columns = {
            str(args.file): written,
            **{
                name: {key: table.get(key, "") for key in written}
                for name, table in columns.items()
            },
        }
    compared = partial(_differs, list(columns.values()))
    keys = sorted({key for table in columns.values() for key in table})
    different = [key for key in keys if compared(key) and (args.all or not OWN.fullmatch(key))]
    found = {
        "differences": [
            {"key": key, "values": {name: table.get(key) for name, table in columns.items()}}
            for key in different
        ]
    }

    def show() -> None:
        if len(columns) == 1:
            print("only one broker answered: there is nothing to compare it with", file=sys.stderr)
        elif different:
            print_table(
                ("KEY", *columns),
                [(key, *(table.get(key) for table in columns.values())) for key in different],
            )
        else:
            print(f"the same in {', '.join(columns)}")

    code = print_found(args, found, show, failures)
    return ExitCode.FAILURE if different else code


def _differs(tables: list[Mapping[str, str]], key: str) -> bool:
    return len({table.get(key) for table in tables}) > 1


def _written(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(str(path), f"cannot be read: {exc}") from exc
    return {member.key: member.value for member in read_members(text)}
