"""How the victims end: chosen at random, carried out by timers, or by the victim itself."""

from __future__ import annotations

import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from tests.store.kill.victim import CLOSING, OPENING, READY

if TYPE_CHECKING:
    import random
    import subprocess
    from collections.abc import Callable

_HANGS_AFTER_S: Final = 60.0


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """How a victim ends."""

    name: str
    stage: str = READY
    """What it has said before its time begins to run."""
    acks: int = 0
    """How many acknowledgements it gives before."""
    delay_s: float = 0.0
    """How long after both of them it is killed."""
    die_at: int = 0
    """Before which call of the system since `stage` it kills itself."""
    stop_after_s: float | None = None
    """How long after it was ready it is told to stop."""
    is_killed: bool = True

    @classmethod
    def draw(cls, rng: random.Random) -> Fate:
        stop_after_s = rng.uniform(0.0, 0.15)
        # If it makes fewer calls than that, it is killed under load.
        late_s = 0.3
        fates: tuple[tuple[int, Fate], ...] = (
            (3, cls(name="opening", stage=OPENING, delay_s=rng.uniform(0.0, 0.03))),
            (
                4,
                cls(
                    name="call while opening",
                    stage=OPENING,
                    die_at=rng.randint(1, 80),
                    delay_s=late_s,
                ),
            ),
            (5, cls(name="load", delay_s=rng.uniform(0.0, 0.25))),
            (3, cls(name="acknowledgement", acks=rng.randint(1, 300))),
            (4, cls(name="call under load", die_at=rng.randint(1, 150), delay_s=late_s)),
            (
                3,
                cls(
                    name="closing",
                    stage=CLOSING,
                    stop_after_s=stop_after_s,
                    delay_s=rng.uniform(0.0, 0.01),
                ),
            ),
            (
                2,
                cls(
                    name="call while closing",
                    stage=CLOSING,
                    stop_after_s=stop_after_s,
                    die_at=rng.randint(1, 6),
                    delay_s=late_s,
                ),
            ),
            (2, cls(name="clean stop", stop_after_s=stop_after_s, is_killed=False)),
        )
        return rng.choices([fate for _, fate in fates], [weight for weight, _ in fates])[0]


class Executioner:
    """Ends a victim as its fate says."""

    def __init__(self, victim: subprocess.Popen[bytes], fate: Fate) -> None:
        self.stage = ""
        self._victim = victim
        self._fate = fate
        self._acks_left = fate.acks
        self._is_stage_reached = False
        # This one shows where it hangs: the victim prints its stacks.
        self._timers = [self._start(_HANGS_AFTER_S, partial(victim.send_signal, signal.SIGABRT))]

    def entered(self, stage: str) -> None:
        self.stage = stage
        if stage == READY and self._fate.stop_after_s is not None:
            assert self._victim.stdin is not None
            self._timers.append(self._start(self._fate.stop_after_s, self._victim.stdin.close))
        if stage == self._fate.stage:
            self._is_stage_reached = True
            self._strike_if_due()

    def acknowledged(self) -> None:
        if self._acks_left:
            self._acks_left -= 1
            self._strike_if_due()

    def _strike_if_due(self) -> None:
        if not self._fate.is_killed or not self._is_stage_reached or self._acks_left:
            return
        if self._fate.delay_s:
            self._timers.append(self._start(self._fate.delay_s, self._victim.kill))
        else:
            self._victim.kill()

    def end(self) -> None:
        for timer in self._timers:
            timer.cancel()
            timer.join()

    @staticmethod
    def _start(delay_s: float, action: Callable[[], None]) -> threading.Timer:
        timer = threading.Timer(delay_s, action)
        timer.start()
        return timer
