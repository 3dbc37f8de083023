"""Brokers and nameservers under the names of mqadmin."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rmq.cli.admin.session import open_cluster, tell_missing
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.tables import print_table
from rmq.cli.mqadmin.printing import print_settings, target_of, tell_done
from rmq.client.core.admin import brokers as flows
from rmq.client.core.admin import nameservers as ns_flows
from rmq.client.core.admin.targets import Failure, cluster_groups

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from rmq.client.core.admin.brokers import RuntimeInfo
    from rmq.client.core.flows import Flow
    from rmq.client.core.routes import Address
    from rmq.remoting.bodies import ClusterInfo


def cluster_list(args: Namespace) -> int:
    """Print a line for every broker, again and again if told to."""
    while True:
        with open_cluster(args) as cluster:
            info = cluster.admin.cluster_info()
            brokers = [each for group in cluster_groups(info, args.cluster) for each in group]
            infos, errors = cluster.run_all(
                {each: flows.runtime_info(cluster.nameservers, each.address) for each in brokers}
            )
        _print_brokers(info, brokers, infos, has_totals=args.moreStats)
        code = tell_missing(Failure(broker, error) for broker, error in errors.items())
        if args.interval is None:
            return code
        print(flush=True)
        time.sleep(args.interval)


def _print_brokers(
    info: ClusterInfo,
    brokers: list[Address],
    infos: dict[Address, RuntimeInfo],
    *,
    has_totals: bool,
) -> None:
    rows = []
    for broker in brokers:
        data = info.broker_addr_table.get(broker.broker_name)
        name = (data.cluster if data is not None else None) or ""
        told = infos.get(broker)
        table = {} if told is None else told.table
        place = (name, broker.broker_name, str(broker.broker_id))
        rows.append((*place, *(_totals(table) if has_totals else _line(broker, told))))
    heads: tuple[str, ...] = ("#Cluster Name", "#Broker Name", "#BID")
    if has_totals:
        heads += ("#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
    else:
        heads += ("#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)", "#PCWait(ms)", "#Hour")
        heads += ("#SPACE",)
    print_table(heads, rows)


def _line(broker: Address, told: RuntimeInfo | None) -> tuple[str, ...]:
    if told is None:
        return (broker.address, "", "", "", "", "", "")
    table = told.table
    oldest_ms = float(table.get("earliestMessageTimeStamp", "-1"))
    hours = (time.time() - oldest_ms / 1000) / 3600 if oldest_ms > 0 else 0.0
    sends, pulls = (
        f"({table.get(f'{kind}ThreadPoolQueueSize', '0')},"
        f"{table.get(f'{kind}ThreadPoolQueueHeadWaitTimeMills', '0')}ms)"
        for kind in ("send", "pull")
    )
    return (
        broker.address,
        told.version,
        f"{told.sends_per_second:9.2f}{sends}",
        f"{told.reads_per_second:9.2f}{pulls}",
        table.get("pageCacheLockTimeMills", ""),
        f"{hours:.2f}",
        f"{float(table.get('commitLogDiskRatio', '0')):.4f}",
    )


def _totals(table: dict[str, str]) -> tuple[str, ...]:
    def between(kind: str, first: str, last: str) -> str:
        try:
            return str(int(table[f"{kind}{last}"]) - int(table[f"{kind}{first}"]))
        except (KeyError, ValueError):
            return ""

    put, got = "msgPutTotal", "msgGetTotal"
    return (
        between(put, "YesterdayMorning", "TodayMorning"),
        between(got, "YesterdayMorning", "TodayMorning"),
        between(put, "TodayMorning", "TodayNow"),
        between(got, "TodayMorning", "TodayNow"),
    )


def status(args: Namespace) -> int:
    """Print what brokers tell of themselves."""
    with open_cluster(args) as cluster:
        groups = cluster.groups(**target_of(args))
        brokers = [each for group in groups for each in group]
        infos, errors = cluster.run_all(
            {each: flows.runtime_info(cluster.nameservers, each.address) for each in brokers}
        )
    for broker, told in infos.items():
        for key in sorted(told.table):
            front = f"{broker.address:<24} " if args.broker is None else ""
            print(f"{front}{key:<32}: {told.table[key]}")
    return tell_missing(Failure(broker, error) for broker, error in errors.items())


def get_config(args: Namespace) -> int:
    """Print all settings of brokers."""
    with open_cluster(args) as cluster:
        groups = cluster.groups(**target_of(args))
        brokers = [each for group in groups for each in group]
        tables, errors = cluster.run_all(
            {each: flows.broker_config(cluster.nameservers, each.address) for each in brokers}
        )
    for broker, table in tables.items():
        print(f"============{broker.address}============")
        print_settings(table)
    return tell_missing(Failure(broker, error) for broker, error in errors.items())


def update_config(args: Namespace) -> int:
    """Change one setting of brokers."""
    with open_cluster(args) as cluster:
        masters = [group[0] for group in cluster.groups(**target_of(args))]
        done, errors = cluster.run_all(
            {
                each: flows.update_broker_config(
                    cluster.nameservers, each.address, {args.key: args.value}
                )
                for each in masters
            }
        )
    for broker, remark in done.items():
        print(f"update broker config success, {broker.address}" + (f": {remark}" if remark else ""))
    return tell_missing(Failure(broker, error) for broker, error in errors.items())


def clean_queues(args: Namespace) -> int:
    """Delete queues whose messages have expired."""
    return _clean(args, "clean expired consume queues", flows.clean_expired_queues)


def clean_topics(args: Namespace) -> int:
    """Delete queues of topics that are no more."""
    return _clean(args, "clean unused topics", flows.clean_unused_topics)


def delete_logs(args: Namespace) -> int:
    """Delete files of the log that have expired."""
    return _clean(args, "delete expired commit logs", flows.delete_expired_logs)


def _clean(args: Namespace, what: str, flow: Callable[..., Flow[tuple[Address, ...]]]) -> int:
    with open_cluster(args) as cluster:
        done = cluster.run(flow(cluster.nameservers, cluster=args.cluster, broker=args.broker))
    tell_done(what, done)
    return ExitCode.OK


def wipe_write_perm(args: Namespace) -> int:
    """Have no more messages go to a broker."""
    with open_cluster(args) as cluster:
        done = cluster.run(ns_flows.wipe_write_permission(cluster.nameservers, args.broker))
    for address, count in done.items():
        print(f"wipe write perm of broker[{args.broker}] in name server[{address}] OK, {count}")
    return ExitCode.OK


def add_write_perm(args: Namespace) -> int:
    """Have messages go to a broker again."""
    with open_cluster(args) as cluster:
        done = cluster.run(ns_flows.add_write_permission(cluster.nameservers, args.broker))
    for address, count in done.items():
        print(f"add write perm of broker[{args.broker}] in name server[{address}] OK, {count}")
    return ExitCode.OK


def get_nameserver_config(args: Namespace) -> int:
    """Print all settings of nameservers."""
    with open_cluster(args) as cluster:
        tried = cluster.run(ns_flows.nameserver_config(cluster.nameservers))
    for nameserver, table in tried.answers:
        print(f"============{nameserver.address}============")
        print_settings(table)
    return tell_missing(tried.failures)


def update_nameserver_config(args: Namespace) -> int:
    """Change one setting of all nameservers."""
    with open_cluster(args) as cluster:
        done = cluster.run(
            ns_flows.update_nameserver_config(cluster.nameservers, {args.key: args.value})
        )
    for address, remark in done.items():
        print(f"update name server config success! {address}" + (f": {remark}" if remark else ""))
    return ExitCode.OK


def update_kv(args: Namespace) -> int:
    """Set a value at all nameservers."""
    with open_cluster(args) as cluster:
        cluster.run(ns_flows.put_kv(cluster.nameservers, args.namespace, args.key, args.value))
    print("create or update kv config to namespace success.")
    return ExitCode.OK


def delete_kv(args: Namespace) -> int:
    """Remove a value at all nameservers."""
    with open_cluster(args) as cluster:
        cluster.run(ns_flows.delete_kv(cluster.nameservers, args.namespace, args.key))
    print("delete kv config from namespace success.")
    return ExitCode.OK
