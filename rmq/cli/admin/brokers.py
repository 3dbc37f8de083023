"""`rmq cluster`: what every broker tells of itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from rmq.cli.admin.session import Cluster, open_cluster, print_found
from rmq.cli.common.tables import BAD, ODD, Cell, Column, Styled, print_table
from rmq.client.core.admin.brokers import RuntimeInfo, runtime_info
from rmq.client.core.admin.targets import Failure, cluster_groups
from rmq.model.names import MASTER_ID
from rmq.model.words import seconds_text

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from rmq.client.core.routes import Address
    from rmq.remoting.bodies import ClusterInfo

DISK_ODD: Final = 0.75
DISK_BAD: Final = 0.9
"""Where stock brokers begin to delete, and where they refuse messages."""
_COLUMNS: Final = (
    "BROKER",
    Column("ID", True),
    "ADDRESS",
    "VERSION",
    Column("IN/S", True),
    Column("OUT/S", True),
    Column("DISK", True),
    Column("REACHES BACK", True),
)


def cluster(args: Namespace) -> int:
    """Print a line per broker."""
    with open_cluster(args) as cluster:
        found, failures = brokers_found(cluster, args.cluster)
    return print_found(args, {"brokers": found}, lambda: _show(found), failures)


def brokers_found(
    cluster: Cluster, name: str | None = None
) -> tuple[list[dict[str, Any]], list[Failure]]:
    """Return what all brokers of a cluster tell of themselves, and who does not answer."""
    info = cluster.run(cluster.nameservers.cluster())
    brokers = [each for group in cluster_groups(info, name) for each in group]
    infos, errors = cluster.run_all(
        {broker: runtime_info(cluster.nameservers, broker.address) for broker in brokers}
    )
    now_ms = int(time.time() * 1000)
    found = [_found(info, broker, infos.get(broker), now_ms) for broker in brokers]
    return found, [Failure(broker, error) for broker, error in errors.items()]


def _found(
    info: ClusterInfo, broker: Address, told: RuntimeInfo | None, now_ms: int
) -> dict[str, Any]:
    data = info.broker_addr_table.get(broker.broker_name)
    common: dict[str, Any] = {
        "cluster": (data.cluster if data is not None else None) or "",
        "broker": broker.broker_name,
        "broker_id": broker.broker_id,
        "role": "master" if broker.broker_id == MASTER_ID else "slave",
        "address": broker.address,
        "answers": told is not None,
    }
    if told is None:
        return common
    table = told.table
    oldest_ms = _number(table, "earliestMessageTimeStamp")
    return common | {
        "version": told.version,
        "in_per_second": told.sends_per_second,
        "out_per_second": told.reads_per_second,
        "messages_in_today": _today(table, "msgPutTotalTodayNow", "msgPutTotalTodayMorning"),
        "messages_out_today": _today(table, "msgGetTotalTodayNow", "msgGetTotalTodayMorning"),
        "log_start": told.log_start,
        "log_end": told.log_end,
        "disk_used_ratio": _number(table, "commitLogDiskRatio"),
        "oldest_message_age_s": (now_ms - oldest_ms) / 1000 if oldest_ms else None,
    }


def _number(table: Mapping[str, str], name: str) -> float | None:
    """Return a figure of a broker; None if it says none, or none that makes sense."""
    try:
        value = float(table[name].split()[0])
    except (KeyError, ValueError, IndexError):
        return None
    return value if value >= 0 else None


def _today(table: Mapping[str, str], now: str, morning: str) -> int | None:
    so_far, before = _number(table, now), _number(table, morning)
    return None if so_far is None or before is None else int(so_far - before)


def _show(found: list[dict[str, Any]]) -> None:
    clusters = sorted({each["cluster"] for each in found})
    for number, name in enumerate(clusters):
        if len(clusters) > 1:
            print(f"{'' if number == 0 else chr(10)}cluster {name}")
        print_table(_COLUMNS, [_row(each) for each in found if each["cluster"] == name])


def _row(found: dict[str, Any]) -> tuple[Cell, ...]:
    place: tuple[Cell, ...] = (found["broker"], found["broker_id"], found["address"])
    if not found["answers"]:
        return (*place, Styled("no answer", BAD), None, None, None, None)
    age = found["oldest_message_age_s"]
    return (
        *place,
        found["version"] or None,
        found["in_per_second"],
        found["out_per_second"],
        disk_cell(found["disk_used_ratio"]),
        None if age is None else seconds_text(max(0.0, age)),
    )


def disk_cell(ratio: float | None) -> Cell:
    if ratio is None:
        return None
    text = f"{ratio:.0%}"
    if ratio < DISK_ODD:
        return text
    return Styled(text, BAD if ratio >= DISK_BAD else ODD)
