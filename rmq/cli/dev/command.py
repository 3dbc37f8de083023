"""`rmq dev`: a nameserver, a master and its slave on this machine, with a self-check.

All are processes of their own, as in production: they run `rmq namesrv` and `rmq broker`.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from rmq.cli.dev.advice import what_now, what_to_try
from rmq.cli.dev.check import check
from rmq.cli.dev.metrics import check_metrics
from rmq.cli.dev.pair import SLAVE_ABOVE
from rmq.cli.dev.run import PORTS_BESIDE, run_pair, run_with_children
from rmq.errors import ConfigError

if TYPE_CHECKING:
    from argparse import Namespace

    from rmq.cli.dev.pair import DevBroker
    from rmq.cli.dev.processes import ChildFailedError
    from rmq.cli.dev.run import RunningPair

MESSAGES: Final = 10_000
NAMESERVER_PORT: Final = 9876
BROKER_PORT: Final = 10911

_BROKER_ABOVE: Final = BROKER_PORT - NAMESERVER_PORT
"""The port of the master, counted from that of the nameserver."""


async def _run(
    host: str, port: int, broker_port: int, data: Path, mode: str, *, only_check: bool
) -> None:
    is_up = False

    async def work(running: RunningPair) -> None:
        nonlocal is_up
        for broker in running.pair:
            _say(f"metrics     {broker.metrics}")
        _say(f"self-check: {MESSAGES} messages through all of them, {mode}")
        await check(running.nameserver, mode, MESSAGES, _say)
        _say(f"  {await check_metrics(running.pair)}")
        _say("self-check passed")
        if not only_check:
            is_up = True
            _say(what_to_try(running.nameserver, mode, running.pair, running.pids[0]))
            await trio.sleep_forever()

    def ended(
        broker: DevBroker, pair: tuple[DevBroker, DevBroker], error: ChildFailedError
    ) -> None:
        if not is_up:
            raise error
        _say(what_now(broker, error.exit_code, mode, pair))

    was_interrupted = await run_pair(host, port, broker_port, data, mode, work, _say, ended)
    if was_interrupted and only_check:
        raise KeyboardInterrupt


def run(args: Namespace) -> int:
    broker_port = args.broker_port
    if broker_port is None:
        # One option moves all ports.
        broker_port = args.port + _BROKER_ABOVE if args.port else 0
    if not 0 <= args.port <= 65_535:
        raise ConfigError("--port", f"{args.port} is not between 0 and 65535")
    if not 0 <= broker_port <= 65_535 - SLAVE_ABOVE - max(PORTS_BESIDE):
        raise ConfigError("--broker-port", f"{broker_port} leaves no room for the slave's ports")
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
