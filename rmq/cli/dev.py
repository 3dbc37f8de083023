"""`rmq dev`: a nameserver, a master and its slave on this machine, with a self-check.

All are processes of their own, as in earnest: what is shown here is what `rmq namesrv` and
`rmq broker` do.
"""

from __future__ import annotations

import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from rmq.cli.command import Command
from rmq.cli.dev_check import check
from rmq.cli.dev_metrics import check_metrics
from rmq.cli.dev_pair import METRICS_ABOVE, SLAVE_ABOVE, write_pair
from rmq.cli.dev_processes import Child, ChildFailedError, free_port
from rmq.cli.exit_codes import ExitCode
from rmq.cli.ha_change import MODES
from rmq.errors import ConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import AsyncIterator, Sequence

    from rmq.cli.dev_pair import DevBroker

MESSAGES: Final = 10_000
BROKER_PORT: Final = 10911
PORTS_BESIDE: Final = (-2, 1, METRICS_ABOVE)
"""Relative to a broker's port: the second one for clients, those for slaves and for metrics."""

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
    nameserver = f"{host}:{port or free_port(host)}"
    pair = write_pair(data, host, broker_port or _free_broker_port(host), nameserver, mode)
    children = [
        Child(
            "nameserver",
            ["--log-level", "warning", "namesrv", "-c", str(_nameserver_conf(data, nameserver))],
        ),
        *(
            Child(broker.role, ["--log-level", "warning", "broker", "-c", str(broker.conf)])
            for broker in pair
        ),
    ]
    # Signals are taken over before anything starts: from then on none of them kills. Ctrl-C reaches
    # the children, too, as they are of the same process group.
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            working = trio.CancelScope()
            nursery.start_soon(_stop_on_signal, signals, children, working)
            with working:
                for child in children:
                    await nursery.start(child.run)
                _say(f"nameserver  {nameserver}")
                for broker in pair:
                    _say(f"{broker.role:<11} {broker.address}  data in {broker.folder}")
                for broker in pair:
                    _say(f"metrics     {broker.metrics}")
                _say(f"self-check: {MESSAGES} messages through all of them, {mode}")
                await check(nameserver, mode, MESSAGES, _say)
                _say(f"  {await check_metrics(pair)}")
                _say("self-check passed")
                if not only_check:
                    _say(_advice(nameserver, mode, pair))
                    await trio.sleep_forever()
            for child in reversed(children):
                # The slave first, and the nameserver last: the brokers say goodbye to it.
                await child.stop()
            nursery.cancel_scope.cancel()
    if working.cancelled_caught and only_check:
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


def _free_broker_port(host: str) -> int:
    """Return a free port for a master, with those of its slave."""
    beside = [SLAVE_ABOVE + offset for offset in (0, *PORTS_BESIDE)]
    return free_port(host, *PORTS_BESIDE, *beside)


async def _stop_on_signal(
    signals: AsyncIterator[int], children: Sequence[Child], working: trio.CancelScope
) -> None:
    async for _ in signals:
        for child in children:
            child.expect_end()
        _say("stopping")
        working.cancel()
        return


def _nameserver_conf(data: Path, address: str) -> Path:
    host, _, port = address.rpartition(":")
    path = data / "namesrv.conf"
    path.write_text(
        f"bindAddress={host}\nlistenPort={port}\nkvConfigPath={data / 'kvConfig.json'}\n"
    )
    return path


def run(args: Namespace) -> int:
    for name, port in (("--port", args.port), ("--broker-port", args.broker_port)):
        if not 0 <= port <= 65_535:
            raise ConfigError(name, f"{port} is not between 0 and 65535")
    broker_port = args.broker_port
    if broker_port > 65_535 - SLAVE_ABOVE - max(PORTS_BESIDE):
        raise ConfigError("--broker-port", f"{broker_port} leaves no room for the slave's ports")
    if args.port == 0 and broker_port == BROKER_PORT:
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
        try:
            trio.run(
                lambda: _run(
                    args.host, args.port, broker_port, data, args.mode, only_check=args.check
                )
            )
        except BaseExceptionGroup as errors:
            # A child that failed has said why itself.
            failed, rest = errors.split(ChildFailedError)
            if failed is None or rest is not None:
                raise
            return next(iter(_exit_codes(failed)))
    return ExitCode.OK


def _exit_codes(errors: BaseExceptionGroup[ChildFailedError]) -> list[int]:
    codes: list[int] = []
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            codes += _exit_codes(error)
        else:
            codes.append(error.exit_code if error.exit_code > 0 else ExitCode.FAILURE)
    return codes


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument(
        "--port",
        type=int,
        default=9876,
        help="port of the nameserver; 0 takes free ones for all (%(default)s)",
    )
    parser.add_argument(
        "--broker-port",
        type=int,
        default=BROKER_PORT,
        help="port of the master; the slave is 10 above, and each uses its neighbours 2 below and"
        " 1 above, too (%(default)s)",
    )
    parser.add_argument(
        "--mode",
        choices=tuple(MODES),
        default="sync",
        help="whether the master answers when the slave has a message, too (%(default)s)",
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="keep data here (default: gone at the end)"
    )
    parser.add_argument("--check", action="store_true", help="exit after the self-check")


def _say(line: str) -> None:
    print(line, flush=True)


COMMAND: Final = Command(
    name="dev",
    help="run rmq on this machine and check that it works",
    description=(
        "Starts a nameserver, a master and its slave, sends 10,000 messages, reads them back from"
        " both, compares their logs, and stays up until Ctrl-C."
    ),
    add_arguments=add_arguments,
    run=run,
    examples=(
        "rmq dev",
        "rmq dev --check",
        "rmq dev --mode async",
        "rmq dev --port 0",
        "rmq dev --data data",
    ),
)
