"""`rmq namesrv`: a nameserver as a process."""

from __future__ import annotations

import gc
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.service_log import log_reload, log_version, process_name
from rmq.cli.common.stopping import serving, use_all_open_files
from rmq.cli.common.supervisor import READY, STOPPING, tell_supervisor
from rmq.errors import ConfigError
from rmq.nameserver.config import load_nameserver_config
from rmq.nameserver.server import serve_nameserver
from rmq.settings import metrics_port

if TYPE_CHECKING:
    from argparse import Namespace

    from rmq.cli.common.logs import Logs
    from rmq.nameserver.config import LoadedConfig
    from rmq.nameserver.server import Nameserver

logger = logging.getLogger(__name__)

STOP_GRACE_S: Final = 5.0
GC_THRESHOLD: Final = 10_000
"""New objects after which the collector searches for cycles among them. All that are searched at
once keep requests waiting: 100,000 for some 10 ms.
"""


def run(args: Namespace) -> int:
    loaded = _load(args)
    config = loaded.config
    if not args.print_config:
        args.logs.configure(config, process_name("nameserver", config.listen_port))
    for warning in loaded.warnings:
        logger.warning("%s", warning)
    if args.print_config:
        print("\n".join(config.lines()))
    else:
        use_all_open_files()
        trio.run(_serve, args, loaded)
    return ExitCode.OK


def _load(args: Namespace) -> LoadedConfig:
    overrides = {"bindAddress": args.host, "listenPort": args.port}
    return load_nameserver_config(
        args.config,
        {key: value for key, value in overrides.items() if value is not None},
        environ=os.environ,
    )


async def _serve(args: Namespace, loaded: LoadedConfig) -> None:
    config, logs = loaded.config, args.logs
    async with serving() as (nursery, stopping):
        log_version()
        nameserver: Nameserver = await nursery.start(
            partial(serve_nameserver, config, default_metrics_port=metrics_port.NAMESERVER)
        )
        nameserver.config.subscribe(lambda new: logs.set_level(new.log_level))
        stopping.on_hangup(partial(_reload, args, nameserver, logs))
        logger.info(
            "nameserver on %s: %d values of the KV config from %s",
            ", ".join(nameserver.server.addresses),
            nameserver.statistics().kv_values,
            config.kv_path,
        )
        _say(f"nameserver listens on {', '.join(nameserver.server.addresses)}")
        _tune_garbage_collector()
        # Scripts made for the original wait for this line.
        _say("The Name Server boot success. serializeType=JSON")
        tell_supervisor(READY)
        await stopping.wait()
        _say("stopping")
        tell_supervisor(STOPPING)
        nameserver.stop(STOP_GRACE_S)


async def _reload(args: Namespace, nameserver: Nameserver, logs: Logs) -> None:
    """Apply the settings file as it is now, as far as that is possible without a restart."""
    logs.reopen()
    live = nameserver.config
    try:
        loaded = await trio.to_thread.run_sync(_load, args)
        change = live.plan_reload(loaded.config)
    except ConfigError as exc:
        logger.error("the settings were not reloaded, nothing has changed: %s", exc)
        return
    live.apply(change)
    log_reload(change.now, change.restart)


def _tune_garbage_collector() -> None:
    """Have what the start has made, 40,000 objects, not be searched for cycles again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 100)


def _say(line: str) -> None:
    print(line, flush=True)
