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
    from collections.abc import Iterator

    from rmq.testing.disk_model import Choose

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
    call_of_start: int
    """Where the start after that is interrupted, if it gets so far."""
    seed: int


def everything(machine: StoreMachine) -> None:
    """Do a bit of everything; it goes on after an interruption with what comes next."""
    machine.append(drawn=SOME, tick=1)
    machine.flush(phases=3, meanwhile=None)
    machine.append_many(drawn=MANY, repeats=1)
    machine.save_point(phases=3, meanwhile=(3, SOME))
    machine.work_in_the_background(what="create a spare")
    machine.append_batch(drawn=SOME, queue=1, tick=5000)
    machine.save_point(phases=2, meanwhile=None)
    machine.append_many(drawn=MANY, repeats=1)
    machine.save_point(phases=1, meanwhile=None)
    machine.expire(
        used_ratio=0.88, hour=DELETE_HOUR, hours_passed=1, is_saved=True, is_followed=True
    )
    machine.append(drawn=SOME, tick=-10)
    machine.flush(phases=3, meanwhile=None)
    machine.append(drawn=MANY, tick=0)


def count_calls() -> int:
    """Return how many calls the history makes when nothing comes between."""
    machine = StoreMachine()
    machine.begin(geometry=GEOMETRY)
    storage = machine.subject.world.storage
    before = storage.calls.total()
    everything(machine)
    return storage.calls.total() - before


def cases(calls: int, stride: int = 1) -> Iterator[Case]:
    """Yield cases: each call comes up, or each `stride`-th, and starts are ended somewhere."""
    for call in range(1, calls + 1, stride):
        for ending in (Ending.CUT, Ending.KILL, None):
            yield Case(call, ending, 1 + call * 7 % 83, call)
        yield Case(call, Ending.CUT, NEVER, 0)


def run(case: Case) -> None:
    """Go through the history, and check the store at each start and at the end."""
    choose = _chooser(case.seed)
    machine = StoreMachine()
    machine.begin(geometry=GEOMETRY)
    again = Trap(case.call_of_start, None, Ending.CUT, CODES[0], choose)
    machine.subject.world.trap = Trap(case.call, None, case.ending, CODES[0], choose, again)
    everything(machine)
    machine.subject.world.trap = None
    machine.subject.end(Ending.CUT, choose)
    machine.teardown()


def _chooser(seed: int) -> Choose:
    """Return choices that follow from a seed; 0 loses all that can be lost."""
    return random.Random(seed).randrange if seed else lambda n: 0
