"""A Prometheus beside a cluster: faults are staged, alerts are waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from interop.support.cases import MismatchError, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from interop.checks.prometheus.prometheus_server import PrometheusServer
    from interop.checks.prometheus.watched_cluster import Watched
    from interop.support.results import Operations

LASTING: Final = frozenset({"RocketMQRecoveredAfterCrash"})
"""It fires for an hour after a crash."""
OF_THE_MACHINE: Final = frozenset(
    {"RocketMQEventLoopLag", "RocketMQPutLatencyHigh", "RocketMQSyncWaitSlow"}
)
"""With windows divided, a pause of a busy machine is like one of minutes."""
_POLL_S: Final = 0.3
_CLEARS_S: Final = 150.0
_LATER_S: Final = 30.0


@dataclass(frozen=True)
class Wanted:
    """An alert that is to fire."""

    name: str
    labels: tuple[tuple[str, str], ...]
    """Those it must have at least."""


@dataclass(frozen=True)
class Session:
    """What all cases share."""

    operations: Operations
    prometheus: PrometheusServer
    promtool: str
    watched: Watched
    begun_s: float
    nursery: trio.Nursery
    """For what goes on from one case to the next."""

    async def fault(
        self,
        name: str,
        wanted: Sequence[Wanted],
        stage: Callable[[], Awaitable[None]],
        repair: Callable[[], Awaitable[None]],
        *,
        within_s: float = 60.0,
    ) -> None:
        """Stage a fault, wait for its alerts, repair it, and wait until all is quiet."""
        names = ", ".join(dict.fromkeys(each.name.removeprefix("RocketMQ") for each in wanted))
        say(f"{name} ...")
        try:
            with self.operations.operation(
                "fires", f"{name}: {names}", timeout_s=within_s + 60
            ) as case:
                begun = trio.current_time()
                await stage()
                seen = await self._until_firing(wanted, within_s)
                times = [
                    f"{each.name.removeprefix('RocketMQ')} {seen[each] - begun:.0f} s"
                    for each in wanted
                ]
                await self._expect_readable()
                case.note(", ".join(times))
        finally:
            with self.operations.operation(
                "clears", f"{name}, repaired", timeout_s=_CLEARS_S + 60
            ) as case:
                begun = trio.current_time()
                await repair()
                await self.until_quiet()
                case.note(f"{trio.current_time() - begun:.0f} s")

    async def _until_firing(self, wanted: Sequence[Wanted], within_s: float) -> dict[Wanted, float]:
        """Return when each was first seen to fire, which need not be at one time."""
        seen: dict[Wanted, float] = {}
        with trio.move_on_after(within_s):
            while len(seen) < len(wanted):
                firing = await self.prometheus.firing()
                for each in wanted:
                    if each not in seen and any(
                        found.is_like(each.name, dict(each.labels)) for found in firing
                    ):
                        seen[each] = trio.current_time()
                await trio.sleep(_POLL_S)
            return seen
        missing = [each for each in wanted if each not in seen]
        firing_now = sorted(await self.unexpected())
        raise MismatchError(f"not firing within {within_s:g} s: {missing}; firing: {firing_now}")

    async def unexpected(self) -> set[str]:
        """Return what fires and has no reason to in a healthy cluster."""
        return {
            f"{each.name} {each.labels.get('instance', '')}".strip()
            for each in await self.prometheus.firing()
            if each.name not in LASTING | OF_THE_MACHINE
        }

    async def until_quiet(self, within_s: float = _CLEARS_S) -> None:
        """Wait until nothing fires that a healthy cluster has no reason for."""
        firing: set[str] = set()
        with trio.move_on_after(within_s):
            # What is waited for happens in other processes.
            while firing := await self.unexpected():  # noqa: ASYNC110
                await trio.sleep(_POLL_S)
            return
        raise MismatchError(f"still firing after {within_s:g} s: {sorted(firing)}")

    async def expect_firing(self, wanted: Wanted, name: str) -> None:
        """Wait for one that clears by itself, much later."""
        with self.operations.operation("fires", f"{name}: {wanted.name.removeprefix('RocketMQ')}"):
            await self._until_firing([wanted], _LATER_S)

    async def _expect_readable(self) -> None:
        for texts in await self.prometheus.rendered():
            for text in texts.values():
                if "<error" in text or "<no value>" in text or "%!" in text:
                    raise MismatchError(f"an annotation that cannot be filled in: {text}")
