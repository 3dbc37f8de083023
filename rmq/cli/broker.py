"""`rmq broker`: a broker as a process."""

from __future__ import annotations

import gc
import logging
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from rmq.broker.broker import serve_broker
from rmq.broker.config import LiveConfig, load_broker_config
from rmq.cli.common.command import Command
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.stopping import serving, use_all_open_files
from rmq.settings.exposure import take_umask

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from rmq.store.recovery import Progress

logger = logging.getLogger(__name__)

GC_THRESHOLDS: Final = (700, 10, 100)
"""When the collector searches for cycles among new, younger and all objects.

The first two are Python's own: sends and pulls leave no cycles and few new objects, so that 100,000
sends cause three searches of 0.2 ms, while a fault that did leave cycles would show in megabytes
otherwise. A search among all takes 0.25 us an object, 70 ms with 10,000 connections: ten times as
rare.
"""


def run(args: Namespace) -> int:
    overrides = {"namesrvAddr": args.nameservers} if args.nameservers is not None else {}
    loaded = load_broker_config(args.config, overrides, os.environ)
    for warning in loaded.warnings:
        logger.warning("%s", warning)
    if args.print_config or args.print_important:
        print("\n".join(loaded.format_lines(important_only=args.print_important)))
        return ExitCode.OK
    take_umask(loaded.config.store_file_access)
    use_all_open_files()
    trio.run(_serve, LiveConfig(loaded, now_ms=time.time_ns() // 1_000_000))
    return ExitCode.OK


async def _serve(live: LiveConfig) -> None:
    config = live.current
    async with serving() as (nursery, stopping):
        broker = await nursery.start(partial(serve_broker, live, on_progress=_show_progress))
        tune_garbage_collector()
        nameservers = ";".join(config.namesrv_addrs)
        told = f" and name server is {nameservers}" if nameservers else ""
        # Scripts made for the original wait for this line.
        _say(
            f"The broker[{config.broker_name}, {config.address}] boot success."
            f" serializeType=JSON{told}"
        )
        await stopping.wait()
        _say("stopping")
        broker.stop()


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


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="settings, usually broker.conf"
    )
    parser.add_argument(
        "-n",
        "--nameservers",
        metavar="HOST:PORT[;HOST:PORT]",
        help="nameservers to register with, instead of namesrvAddr or $NAMESRV_ADDR",
    )
    printing = parser.add_mutually_exclusive_group()
    printing.add_argument(
        "-p",
        "--print-config",
        action="store_true",
        help="print all settings as they would be used, and exit",
    )
    printing.add_argument(
        "-m",
        "--print-important",
        action="store_true",
        help="print the important settings as they would be used, and exit",
    )


def _say(line: str) -> None:
    print(line, flush=True)


COMMAND: Final = Command(
    name="broker",
    help="run a broker",
    description=(
        "Runs a broker until SIGTERM or Ctrl-C: takes messages, keeps them and gives them to"
        " consumers. Settings are those of RocketMQ 4.9.8, in the same file."
    ),
    add_arguments=add_arguments,
    run=run,
    is_service=True,
    examples=(
        "rmq broker -c broker.conf -n 127.0.0.1:9876",
        "rmq broker -c broker.conf -p",
        "rmq broker -m",
    ),
)
