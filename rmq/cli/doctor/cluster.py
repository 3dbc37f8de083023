"""A cluster: nameservers, brokers, replication, consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from rmq.cli.doctor.checks import Check, State, judged
from rmq.cli.ha.client import open_ha_client
from rmq.cli.ha.health import findings
from rmq.cli.ha.members import Target, find_groups
from rmq.client.core.admin.brokers import RuntimeInfo, runtime_info
from rmq.client.core.admin.targets import TIMEOUT_S, cluster_groups
from rmq.client.core.flows import ask
from rmq.errors import RmqError
from rmq.model.names import MASTER_ID
from rmq.model.words import count_text
from rmq.remoting.bodies import ClusterInfo
from rmq.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmq.cli.admin.session import Cluster
    from rmq.cli.ha.members import Group
    from rmq.client.core.config import ClientConfig
    from rmq.client.core.flows import Flow
    from rmq.client.core.routes import Address
    from rmq.errors import ClientError

DISK_ODD: Final = 0.75
DISK_BAD: Final = 0.9


def cluster_checks(cluster: Cluster, config: ClientConfig, timeout_s: float) -> Iterator[Check]:
    """Check a cluster as all of its nameservers and brokers tell of it."""
    addresses = cluster.nameservers.addresses
    told, silent = cluster.run_all({address: _brokers_at(address) for address in addresses})
    yield from nameserver_checks(told, silent)
    if not told:
        return
    brokers = sorted(
        {
            broker
            for info in told.values()
            for group in cluster_groups(info, None)
            for broker in group
        }
    )
    infos, errors = cluster.run_all(
        {broker: runtime_info(cluster.nameservers, broker.address) for broker in brokers}
    )
    yield from broker_checks(brokers, infos, errors)
    yield from _replication_checks(config, timeout_s)


def _brokers_at(nameserver: str) -> Flow[ClusterInfo]:
    answer = yield from ask(nameserver, RequestCode.GET_BROKER_CLUSTER_INFO, timeout_s=TIMEOUT_S)
    return answer.body(ClusterInfo)


def nameserver_checks(
    told: Mapping[str, ClusterInfo], silent: Mapping[str, ClientError]
) -> Iterator[Check]:
    """Compare what nameservers list. Pure."""
    for address, error in silent.items():
        yield Check(
            address, "nameserver", State.BAD, error.text, "start it, or correct its address"
        )
    everything = {
        (name, number, address)
        for info in told.values()
        for name, data in info.broker_addr_table.items()
        for number, address in data.broker_addrs.items()
    }
    for nameserver, info in told.items():
        listed = {
            (name, number, address)
            for name, data in info.broker_addr_table.items()
            for number, address in data.broker_addrs.items()
        }
        missing = sorted(address for _, _, address in everything - listed)
        count = count_text(len(listed), "broker")
        yield judged(
            nameserver,
            "nameserver",
            f"lists {count}" + (f", and not {', '.join(missing)}" if missing else ""),
            is_bad=not listed,
            is_odd=bool(missing),
            todo="put all nameservers into namesrvAddr of every broker",
        )


def broker_checks(
    brokers: list[Address],
    infos: Mapping[Address, RuntimeInfo],
    errors: Mapping[Address, ClientError],
) -> Iterator[Check]:
    """Judge what brokers tell of themselves. Pure."""
    versions: dict[str, list[str]] = {}
    for broker in brokers:
        about = f"{broker.broker_name}:{broker.broker_id}"
        error = errors.get(broker)
        if error is not None:
            yield Check(about, "broker", State.BAD, error.text, "see whether it runs: its log")
            continue
        info = infos[broker]
        versions.setdefault(info.version, []).append(about)
        yield from _disk_check(about, info)
    if len(versions) > 1:
        found = "; ".join(f"{version}: {', '.join(who)}" for version, who in versions.items())
        yield Check(
            "cluster", "versions", State.ODD, found, "finish the upgrade: one name at a time"
        )
    by_name: dict[str, list[Address]] = {}
    for broker in brokers:
        by_name.setdefault(broker.broker_name, []).append(broker)
    for name, members in by_name.items():
        masters = [each.address for each in members if each.broker_id == MASTER_ID]
        yield judged(
            name,
            "master",
            ", ".join(masters) or "none is registered",
            is_bad=len(masters) != 1,
            todo="see `rmq ha status`: exactly one broker of a name is its master",
        )


def _disk_check(about: str, info: RuntimeInfo) -> Iterator[Check]:
    try:
        ratio = float(info.table.get("commitLogDiskRatio", ""))
    except ValueError:
        return
    yield judged(
        about,
        "disk",
        f"{ratio:.0%} used",
        is_bad=ratio >= DISK_BAD,
        is_odd=ratio >= DISK_ODD,
        todo="make room, or lower fileReservedTime: above 90 % messages are refused",
    )


def _replication_checks(config: ClientConfig, timeout_s: float) -> Iterator[Check]:
    """Say what `rmq ha status` finds, of brokers of rmq."""

    async def look() -> list[Group]:
        client = open_ha_client(timeout_s, credentials=config.credentials, tls=config.tls)
        async with client as opened:
            target = Target(nameservers=config.addresses)
            return await find_groups(opened, target, with_neighbours=True)

    try:
        groups = trio.run(look)
    except RmqError as exc:
        yield Check("cluster", "replication", State.BAD, exc.text, exc.hint)
        return
    for group in groups:
        found = findings(group)
        if not found:
            slaves = count_text(len(group.slaves), "slave")
            yield Check(group.name, "replication", State.OK, f"healthy, {slaves}")
        for finding in found:
            yield Check(
                group.name,
                "replication",
                State.BAD if finding.is_problem else State.ODD,
                f"{finding.where} {finding.what}",
                finding.todo,
            )
