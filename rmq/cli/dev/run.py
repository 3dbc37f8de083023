"""A nameserver, a master and its slave as processes of their own, for as long as something runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import trio

from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.stopping import STOP_SIGNALS
from rmq.cli.dev.pair import METRICS_ABOVE, SLAVE_ABOVE, write_pair
from rmq.cli.dev.processes import Child, ChildFailedError, free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from rmq.cli.dev.pair import DevBroker

    OnEnd: TypeAlias = "Callable[[DevBroker, tuple[DevBroker, DevBroker], ChildFailedError], None]"

PORTS_BESIDE: Final = (-2, 1, METRICS_ABOVE)
"""Relative to a broker's port: the second one for clients, those for slaves and for metrics."""


class RunningPair(NamedTuple):
    """A nameserver and two brokers that run."""

    nameserver: str
    pair: tuple[DevBroker, DevBroker]
    pids: tuple[int, ...]
    """Of the brokers."""


async def run_pair(
    host: str,
    port: int,
    broker_port: int,
    data: Path,
    mode: str,
    work: Callable[[RunningPair], Awaitable[None]],
    say: Callable[[str], None],
    on_end: OnEnd | None = None,
) -> bool:
    """Start all three, do `work`, stop them; return whether a signal ended the work.

    A port of 0 stands for a free one. `on_end` is told of a broker that ends by itself; without
    it, and if it raises, all of them end.
    """
    nameserver = f"{host}:{port or free_port(host)}"
    pair = write_pair(data, host, broker_port or _free_broker_port(host), nameserver, mode)
    nameserver_child = Child(
        "nameserver",
        ["--log-level", "warning", "namesrv", "-c", str(_nameserver_conf(data, nameserver))],
    )
    brokers = [
        Child(broker.role, ["--log-level", "warning", "broker", "-c", str(broker.conf)])
        for broker in pair
    ]
    children = [nameserver_child, *brokers]

    async def run_broker(
        index: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        child = brokers[index]
        try:
            await child.run(task_status=task_status)
        except ChildFailedError as error:
            if on_end is None or not child.has_served:
                raise
            on_end(pair[index], pair, error)

    # Signals are taken over before anything starts: from then on none of them kills. Ctrl-C reaches
    # the children, too, as they are of the same process group.
    with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            working = trio.CancelScope()
            nursery.start_soon(_stop_on_signal, signals, children, working, say)
            with working:
                await nursery.start(nameserver_child.run)
                for index in range(len(brokers)):
                    await nursery.start(run_broker, index)
                say(f"nameserver  {nameserver}")
                for broker in pair:
                    say(f"{broker.role:<11} {broker.address}  data in {broker.folder}")
                pids = tuple(child.pid for child in brokers)
                await work(RunningPair(nameserver, pair, pids))
            for child in reversed(children):
                # The slave first, and the nameserver last: the brokers unregister from it.
                await child.stop()
            nursery.cancel_scope.cancel()
    return working.cancelled_caught


def run_with_children(main: Callable[[], Awaitable[object]]) -> int:
    """Run a program that has child processes; return its exit code, or that of a failed child."""

    async def run() -> None:
        await main()

    try:
        trio.run(run)
    except BaseExceptionGroup as errors:
        # A child that failed has said why itself.
        failed, rest = errors.split(ChildFailedError)
        if failed is None or rest is not None:
            raise
        return next(iter(_exit_codes(failed)))
    return ExitCode.OK


def _free_broker_port(host: str) -> int:
    """Return a free port for a master, with those of its slave."""
    beside = [SLAVE_ABOVE + offset for offset in (0, *PORTS_BESIDE)]
    return free_port(host, *PORTS_BESIDE, *beside)


async def _stop_on_signal(
    signals: AsyncIterator[int],
    children: Sequence[Child],
    working: trio.CancelScope,
    say: Callable[[str], None],
) -> None:
    async for _ in signals:
        for child in children:
            child.expect_end()
        say("stopping")
        working.cancel()
        return


def _nameserver_conf(data: Path, address: str) -> Path:
    host, _, port = address.rpartition(":")
    path = data / "namesrv.conf"
    path.write_text(
        f"bindAddress={host}\nlistenPort={port}\nmetricsPort=0\n"
        f"kvConfigPath={data / 'kvConfig.json'}\n"
    )
    return path


def _exit_codes(errors: BaseExceptionGroup[ChildFailedError]) -> list[int]:
    codes: list[int] = []
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            codes += _exit_codes(error)
        else:
            codes.append(error.exit_code if error.exit_code > 0 else ExitCode.FAILURE)
    return codes
