"""One history, ended at each call of the storage in turn, and once more while it recovers.

Histories drawn at random come by most moments, but not by all. This one has a bit of everything
in it, and goes wrong at every place it can.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.store.model.machine import StoreMachine
from tests.store.model.messages import Sketch
from tests.store.model.world import CODES, DELETE_HOUR, Ending, Geometry, Trap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rmq.testing.disk_model import Choose
    from rmq.testing.faults import Operation

GEOMETRY: Final = Geometry(
    segment_bytes=4096,
    queue_entries=10,
    index_slots=8,
    index_entries=24,
    log_paths=2,
    has_pool=False,
    sector_bytes=64,
)
SOME: Final = [Sketch(queue=n % 3, body=40 + 60 * n, look=7 * n, keys=n % 32) for n in range(8)]
MANY: Final = [Sketch(queue=n % 4, body=30, look=n, keys=5) for n in range(24)]
NEVER: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Case:
    """Where the history is interrupted, and what is left each time."""

    call: int
    ending: Ending | None
    """None: the call fails."""
    call_of_start: int
    """Where the start after that is interrupted, if it gets so far."""
    seed: int
    is_short: bool
    """What comes after the interruption is left out."""


def steps(machine: StoreMachine) -> list[Callable[[], None]]:
    """Return a history that has a bit of everything in it."""
    return [
        lambda: machine.append(drawn=SOME, tick=1),
        lambda: machine.flush(phases=3, meanwhile=None),
        lambda: machine.append_many(drawn=MANY, repeats=1),
        lambda: machine.save_point(phases=3, meanwhile=(3, SOME)),
        lambda: machine.work_in_the_background(what="create a spare"),
        lambda: machine.append_batch(drawn=SOME, queue=1, tick=5000),
        lambda: machine.save_point(phases=2, meanwhile=None),
        lambda: machine.append_many(drawn=MANY, repeats=1),
        lambda: machine.save_point(phases=1, meanwhile=None),
        lambda: machine.expire(
            used_ratio=0.88, hour=DELETE_HOUR, hours_passed=1, is_saved=True, is_followed=True
        ),
        lambda: machine.append(drawn=SOME, tick=-10),
        lambda: machine.flush(phases=3, meanwhile=None),
        lambda: machine.append(drawn=MANY, tick=0),
    ]


def trace() -> list[tuple[Operation, Path]]:
    """Return the calls the history makes when nothing comes between."""
    machine = StoreMachine()
    machine.begin(geometry=GEOMETRY)
    calls: list[tuple[Operation, Path]] = []
    machine.subject.world.storage.faults.watch(lambda *call: calls.append(call))
    for step in steps(machine):
        step()
    return calls


def cases(stride: int = 1) -> Iterator[Case]:
    """Yield cases for each call of the history, or for each `stride`-th."""
    calls = trace()
    for call in range(1, len(calls) + 1, stride):
        for ending in (Ending.CUT, Ending.KILL, None):
            for is_short in (True, False):
                yield Case(call, ending, 1 + call * 7 % 83, 2 * call + is_short, is_short)
        for seed in range(3):
            yield Case(call, Ending.CUT, NEVER, seed, is_short=True)
            yield Case(call, Ending.KILL, NEVER, seed, is_short=True)


def cases_of_points() -> Iterator[Case]:
    """Yield cases in which a recovery point was half saved, and the next one is, too."""
    for call, (operation, path) in enumerate(trace(), 1):
        if operation == "sync" and path.name in ("checkpoint", "recovery-point"):
            for call_of_start in range(1, 90):
                yield Case(call, Ending.CUT, call_of_start, call_of_start, is_short=True)


def run(case: Case) -> None:
    """Go through the history; the store is checked at each start and at the end."""
    choose = _chooser(case.seed)
    machine = StoreMachine()
    machine.begin(geometry=GEOMETRY)
    subject = machine.subject
    again = Trap(case.call_of_start, None, Ending.CUT, CODES[0], choose)
    subject.world.trap = Trap(case.call, None, case.ending, CODES[0], choose, again)
    first_store = subject.store
    for step in steps(machine):
        step()
        if case.is_short and subject.store is not first_store:
            break
    subject.world.trap = None
    if not subject.is_failed:
        machine.append(drawn=SOME[:2], tick=1)
        machine.flush(phases=3, meanwhile=None)
    subject.end(Ending.CUT, choose)
    machine.teardown()


def _chooser(seed: int) -> Choose:
    """Return choices that follow from a seed; 0 loses all that can be lost."""
    return random.Random(seed).randrange if seed else lambda n: 0
