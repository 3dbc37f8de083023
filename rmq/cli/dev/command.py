"""`rmq dev`: a nameserver, a master and its slave on this machine, with a self-check.

All are processes of their own, as in production: they run `rmq namesrv` and `rmq broker`.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from rmq.cli.dev.check import check
from rmq.cli.dev.metrics import check_metrics
from rmq.cli.dev.pair import SLAVE_ABOVE
from rmq.cli.dev.run import PORTS_BESIDE, run_pair, run_with_children
from rmq.errors import ConfigError

if TYPE_CHECKING:
    from argparse import Namespace

    from rmq.cli.dev.pair import DevBroker

MESSAGES: Final = 10_000
BROKER_PORT: Final = 10911

_WHAT_TO_TRY: Final = """
Point any RocketMQ 4.x client at the nameserver {nameserver}, or try
  echo 'good morning' | rmq produce -n {nameserver} Hello
  rmq consume -n {nameserver} Hello
  rmq ha status -n {nameserver}
  rmq ha switch {other_mode} -b {master}
  rmq ha promote -b {slave}
  mqadmin clusterList -n {nameserver}
Settings of the brokers: {confs}
Ctrl-C stops."""


async def _run(
    host: str, port: int, broker_port: int, data: Path, mode: str, *, only_check: bool
) -> None:
    async def work(nameserver: str, pair: tuple[DevBroker, DevBroker]) -> None:
        for broker in pair:
            _say(f"metrics     {broker.metrics}")
        _say(f"self-check: {MESSAGES} messages through all of them, {mode}")
        await check(nameserver, mode, MESSAGES, _say)
        _say(f"  {await check_metrics(pair)}")
        _say("self-check passed")
        if not only_check:
            _say(_advice(nameserver, mode, pair))
            await trio.sleep_forever()

    was_interrupted = await run_pair(host, port, broker_port, data, mode, work, _say)
    if was_interrupted and only_check:
        raise KeyboardInterrupt


def _advice(nameserver: str, mode: str, pair: tuple[DevBroker, DevBroker]) -> str:
    master, slave = pair
    return _WHAT_TO_TRY.format(
        nameserver=nameserver,
        other_mode="async" if mode == "sync" else "sync",
        master=master.address,
        slave=slave.address,
        confs=" ".join(str(broker.conf) for broker in pair),
    )


def run(args: Namespace) -> int:
    broker_port = BROKER_PORT if args.broker_port is None else args.broker_port
    for name, port in (("--port", args.port), ("--broker-port", broker_port)):
        if not 0 <= port <= 65_535:
            raise ConfigError(name, f"{port} is not between 0 and 65535")
    if broker_port > 65_535 - SLAVE_ABOVE - max(PORTS_BESIDE):
        raise ConfigError("--broker-port", f"{broker_port} leaves no room for the slave's ports")
    if args.port == 0 and args.broker_port is None:
        broker_port = 0
    with ExitStack() as stack:
        if args.data is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rmq-dev-"))
            data = Path(folder)
        else:
            data = args.data.absolute()
            try:
                data.mkdir(parents=True, exist_ok=True)
            except OSError as exc:
                raise ConfigError("--data", f"{data}: {exc.strerror}") from exc
        return run_with_children(
            lambda: _run(args.host, args.port, broker_port, data, args.mode, only_check=args.check)
        )


def _say(line: str) -> None:
    print(line, flush=True)
