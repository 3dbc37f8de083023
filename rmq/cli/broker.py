"""`rmq broker`: a broker as a process."""

from __future__ import annotations

import gc
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from rmq.broker.broker import serve_broker
from rmq.broker.config import LiveConfig, load_broker_config
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.service_log import log_reload, log_version, process_name
from rmq.cli.common.stopping import serving, use_all_open_files
from rmq.cli.common.supervisor import READY, STOPPING, tell_supervisor
from rmq.cli.common.usage import UsageError
from rmq.errors import ConfigError
from rmq.model.clock import system_ms
from rmq.settings import metrics_port
from rmq.settings.exposure import take_umask

if TYPE_CHECKING:
    from argparse import Namespace

    from rmq.broker.broker import Broker
    from rmq.broker.config import BrokerConfig
    from rmq.broker.config.loading import LoadedConfig
    from rmq.store.recovery import Progress, RecoveryReport

logger = logging.getLogger(__name__)

GC_THRESHOLDS: Final = (700, 10, 100)
"""When the collector searches for cycles among new, younger and all objects.

The first two are Python's own: sends and pulls leave no cycles and few new objects, so that 100,000
sends cause three searches of 0.2 ms, while a fault that did leave cycles would show in megabytes
otherwise. A search among all takes 0.25 us an object, 70 ms with 10,000 connections: ten times as
rare.
"""


def run(args: Namespace) -> int:
    if args.print_config and args.print_important:
        raise UsageError("-p and -m exclude each other")
    loaded = _load(args)
    is_printing = args.print_config or args.print_important
    if not is_printing:
        config = loaded.config
        args.logs.configure(config, process_name(config.broker_name, config.listen_port))
    for warning in loaded.warnings:
        logger.warning("%s", warning)
    if is_printing:
        print("\n".join(loaded.format_lines(important_only=args.print_important)))
        return ExitCode.OK
    take_umask(loaded.config.store_file_access)
    use_all_open_files()
    trio.run(_serve, args, LiveConfig(loaded, now_ms=system_ms()))
    return ExitCode.OK


def _load(args: Namespace) -> LoadedConfig:
    overrides: dict[str, str] = {}
    for setting in args.settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {setting}: write KEY=VALUE")
        overrides[key.strip()] = value.strip()
    if args.port is not None:
        overrides["listenPort"] = args.port
    if args.nameservers is not None:
        overrides["namesrvAddr"] = args.nameservers
    return load_broker_config(args.config, overrides, os.environ)


async def _serve(args: Namespace, live: LiveConfig) -> None:
    config, logs = live.current, args.logs
    live.subscribe(lambda _, new: logs.set_level(new.log_level), is_lasting=True)
    async with serving() as (nursery, stopping):
        log_version()
        broker: Broker = await nursery.start(
            partial(
                serve_broker,
                live,
                on_progress=_show_progress,
                default_metrics_port=metrics_port.BROKER,
            )
        )
        stopping.on_hangup(partial(_reload, args, live))
        for line in _opening_lines(config, broker):
            logger.info("%s", line)
        tune_garbage_collector()
        nameservers = ";".join(config.namesrv_addrs)
        told = f" and name server is {nameservers}" if nameservers else ""
        # Scripts made for the original wait for this line.
        _say(
            f"The broker[{config.broker_name}, {config.address}] boot success."
            f" serializeType=JSON{told}"
        )
        tell_supervisor(READY, status=f"serving as {config.role.value}")
        await stopping.wait()
        _say("stopping")
        tell_supervisor(STOPPING)
        broker.stop()


async def _reload(args: Namespace, live: LiveConfig) -> None:
    """Apply the settings file as it is now, as far as that is possible without a restart."""
    args.logs.reopen()
    try:
        loaded = await trio.to_thread.run_sync(_load, args)
        outcome = live.reload(loaded.values, now_ms=system_ms())
    except ConfigError as exc:
        logger.error("the settings were not reloaded, nothing has changed: %s", exc)
        return
    log_reload(outcome.applied, outcome.needs_restart)


def _opening_lines(config: BrokerConfig, broker: Broker) -> list[str]:
    """Say what was started: its role, its ports, its store, and what recovery did."""
    # Where they are served has a line of its own, also without the setting.
    metrics = {0: ", no metrics", metrics_port.UNSET: ""}.get(
        config.metrics_port, f", metrics {config.metrics_port}"
    )
    nameservers = ", ".join(config.namesrv_addrs) or "none: only clients that know it find it"
    log = broker.store.log
    return [
        f"{config.role.value} {config.broker_name}, brokerId {config.broker_id}, of cluster"
        f" {config.cluster_name}, epoch {broker.replication.identity.epoch}; nameservers:"
        f" {nameservers}",
        f"ports on {config.bind_address}: clients {broker.server.port} and"
        f" {broker.vip_server.port}, slaves {config.ha_port}{metrics}; announced as"
        f" {config.address}",
        f"store {config.store.root}: log from {log.min_offset} to {log.written};"
        f" {_what_recovery_did(broker.store.recovery)}",
    ]


def _what_recovery_did(report: RecoveryReport) -> str:
    stop = "an orderly stop" if report.was_clean else "a stop without saving"
    did = [
        f"opened in {report.elapsed_s:.1f} s after {stop}: {report.records_read} messages of the"
        f" log read from {report.started_at} on, {report.records_dispatched} put into their queues"
    ]
    if report.rebuilt_queues:
        did.append("queues built again")
    if report.cut_bytes:
        did.append(f"{report.cut_bytes} bytes cut at {report.ended_at}: {report.reason_of_end}")
    if report.truncated_bytes:
        did.append(f"{report.truncated_bytes} bytes cut as ordered")
    return ", ".join(did)


def tune_garbage_collector() -> None:
    """Leave the objects of the start out of all searches, and search among all less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _show_progress(progress: Progress) -> None:
    logger.info(
        "recovering: %d of %d MiB of the log read, %d messages",
        progress.done_bytes >> 20,
        progress.total_bytes >> 20,
        progress.records,
    )
    tell_supervisor(
        status=f"recovering: {progress.done_bytes >> 20} of {progress.total_bytes >> 20} MiB"
    )


def _say(line: str) -> None:
    print(line, flush=True)
