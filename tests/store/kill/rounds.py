"""Kills writing processes at random moments and proves after each that nothing was lost.

    python -m tests.store.kill.rounds --rounds 200 --seed 1 [--async | --transient]

A round starts a `victim` on a store, ends it by SIGKILL at a moment that the seed chooses (while it
opens, under load, between two calls of the system, while it closes) or now and then lets it stop
cleanly, and takes a copy of the directory. The copy is opened, which recovers it, and held against
all acknowledgements since the store was new; once more in another way, without some of the files
that can be built again. The next victim goes on with the directory as it was left. After some
rounds a new store of other sizes follows.

What the seed chooses is the same in every run; where exactly a kill strikes is up to the machine.
Nothing is promised of what was not acknowledged, except that it is sound, in order and not there
twice. With --async, `put` does not wait for the disk: a kill leaves the page cache alone, so that
nothing may be lost either. With --transient, what is in the pool is lost with the process.
"""

from __future__ import annotations

import argparse
import logging
import math
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from rmq.errors import StoreError
from rmq.store.core import StoreCore
from tests.paths import ROOT
from tests.store.kill.fate import Executioner, Fate
from tests.store.kill.ledger import Ledger, LostError
from tests.store.kill.victim import ACK, CLOSED, TROUBLE, Order
from tests.store.kill.workload import Ack, Geometry

PROJECT: Final = ROOT

_ROUNDS_PER_STORE_MAX: Final = 8
_REBUILT: Final = ("recovery-point", "checkpoint", "consumequeue", "index")


class Report(msgspec.Struct):
    """What a series of rounds did."""

    rounds: int = 0
    stores: int = 0
    killed: int = 0
    stopped: int = 0
    acknowledged: int = 0
    unacknowledged_found: int = 0
    given_up: int = 0
    """Acknowledged and gone with the transient pool."""
    messages_read: int = 0
    keys_asked: int = 0
    recoveries: int = 0
    recoveries_from_point: int = 0
    recovery_s_max: float = 0.0
    elapsed_s: float = 0.0
    deaths: Counter[str] = msgspec.field(default_factory=Counter)

    def __str__(self) -> str:
        deaths = ", ".join(f"{name} {count}" for name, count in sorted(self.deaths.items()))
        return (
            f"{self.rounds} rounds on {self.stores} stores in {self.elapsed_s:.1f} s:"
            f" {self.killed} killed, {self.stopped} stopped ({deaths});"
            f" {self.acknowledged} messages acknowledged, {self.given_up} of them given up,"
            f" {self.unacknowledged_found} others found at the ends;"
            f" {self.messages_read} messages read and {self.keys_asked} keys asked for in"
            f" {self.recoveries} recoveries, {self.recoveries_from_point} of them from a point,"
            f" none longer than {self.recovery_s_max:.3f} s"
        )


class Siege:
    """The rounds of one store."""

    def __init__(self, folder: Path, geometry: Geometry, report: Report) -> None:
        self._folder = folder
        self._root = folder / "store"
        self._geometry = geometry
        self._ledger = Ledger(geometry)
        self._report = report
        self._run = 0

    def round(self, rng: random.Random) -> None:
        """Let one victim live and die, and prove that nothing is lost."""
        fate = Fate.draw(rng)
        order = Order(
            root=str(self._root),
            geometry=self._geometry,
            run=self._run,
            producers=rng.randint(1, 9),
            die_after=fate.stage if fate.die_at else "",
            die_at=fate.die_at,
        )
        self._run += 1
        since = self._live(order, fate)
        if since and not self._geometry.is_transient:
            self._ledger.check_unrecovered(self._root, since)
        seen = self._check("copy", (), rng)
        self._report.unacknowledged_found += seen
        lacking = rng.choice((*((name,) for name in _REBUILT), _REBUILT))
        self._check(f"copy without {' and '.join(lacking)}", lacking, rng)

    def _live(self, order: Order, fate: Fate) -> set[str]:
        """Run a victim to its end; return what it acknowledged."""
        names: set[str] = set()
        with (self._folder / "victim.log").open("ab") as log:
            victim = subprocess.Popen(
                [sys.executable, "-m", "tests.store.kill.victim", msgspec.json.encode(order)],
                cwd=PROJECT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        executioner = Executioner(victim, fate)
        trouble: list[str] = []
        assert victim.stdout is not None
        with victim:
            try:
                for line in victim.stdout:
                    words = line.decode().split()
                    if words[0] == ACK:
                        ack = Ack.parse(words[1:])
                        self._ledger.add(ack)
                        names.add(ack.name)
                        executioner.acknowledged()
                    elif words[0] == TROUBLE:
                        trouble.append(line.decode().strip())
                    else:
                        executioner.entered(words[0])
            finally:
                executioner.end()
        if trouble:
            raise LostError(trouble)
        # One that was to be killed may be faster and close; none ends in any other way.
        if victim.returncode not in ({-signal.SIGKILL, 0} if fate.is_killed else {0}):
            raise LostError([f"the victim ended with {victim.returncode}, not by {fate.name}"])
        if victim.returncode == 0 and executioner.stage != CLOSED:
            raise LostError([f"the victim ended by itself when it was {executioner.stage}"])
        is_killed = victim.returncode != 0
        report = self._report
        report.rounds += 1
        report.killed += is_killed
        report.stopped += not is_killed
        report.deaths[fate.name if is_killed == fate.is_killed else f"too late: {fate.name}"] += 1
        report.acknowledged += len(names)
        return names

    def _check(self, name: str, lacking: tuple[str, ...], rng: random.Random) -> int:
        """Recover a copy and check it; return how much was found that was not acknowledged."""
        if not self._root.exists():
            return 0
        report = self._report
        copy = self._folder / name
        # A log in several folders names them by their paths, which a copy keeps under its own root.
        shutil.copytree(self._root, copy)
        for file in lacking:
            path = copy / file
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        try:
            core = StoreCore(self._geometry.config(copy))
            try:
                if self._geometry.is_transient:
                    report.given_up += self._ledger.forget_from(core.log.written)
                seen = self._ledger.check(core, rng)
            finally:
                core.close()
            if len(core.log.segments):
                self._ledger.verify(copy)
        except StoreError as exc:
            raise LostError([f"{name}: {exc}; {exc.hint or ''}"]) from exc
        except LostError as exc:
            raise LostError([f"{name}: {core.recovery}", *exc.args]) from exc
        shutil.rmtree(copy)
        report.recoveries += 1
        report.recoveries_from_point += core.recovery.used_point
        report.recovery_s_max = max(report.recovery_s_max, core.recovery.elapsed_s)
        report.messages_read += seen.messages
        report.keys_asked += seen.keys
        return seen.unacknowledged


class RoundsError(Exception):
    """A round failed; the text says which, and where the files are."""


def run_rounds(
    count: int,
    seed: int,
    folder: Path,
    *,
    is_async: bool = False,
    is_transient: bool = False,
    time_max_s: float = math.inf,
) -> Report:
    """Run rounds until there were enough or the time is up; raise `RoundsError` at a loss."""
    report = Report()
    started = time.monotonic()
    while report.rounds < count:
        rng = random.Random(f"{seed}/{report.stores}")
        geometry = Geometry.draw(rng, is_async=is_async, is_transient=is_transient)
        store_folder = folder / f"store-{report.stores}"
        store_folder.mkdir()
        siege = Siege(store_folder, geometry, report)
        report.stores += 1
        for _ in range(min(rng.randint(2, _ROUNDS_PER_STORE_MAX), count - report.rounds)):
            try:
                siege.round(rng)
            except LostError as exc:
                raise RoundsError(
                    f"seed {seed}, store {report.stores - 1}, round {report.rounds}:"
                    f" {exc}\n{geometry}\nthe files are in {store_folder}"
                ) from exc
            report.elapsed_s = time.monotonic() - started
            if report.elapsed_s > time_max_s:
                return report
        shutil.rmtree(store_folder)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description="kill writing processes and look for losses")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--async", dest="is_async", action="store_true", help="ASYNC_FLUSH")
    modes.add_argument(
        "--transient", dest="is_transient", action="store_true", help="with the transient pool"
    )
    options = parser.parse_args()
    # Recoveries tell what they find; that the rounds cause it is known.
    logging.basicConfig(level=logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="rmq-kill-"))
    try:
        report = run_rounds(
            options.rounds,
            options.seed,
            folder,
            is_async=options.is_async or options.is_transient,
            is_transient=options.is_transient,
        )
    except RoundsError as exc:
        sys.stdout.write(f"{exc}\n")
        return 1
    shutil.rmtree(folder)
    sys.stdout.write(f"{report}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
