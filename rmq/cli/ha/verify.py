"""Compares the logs of a master and its slaves while they run, by digests of ranges.

Ranges of 16 MiB are compared over all that both hold. The first that differs is divided further,
until the place is known to 64 KiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from rmq.cli.ha.members import find_groups
from rmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import TypeAlias

    from rmq.cli.ha.client import HaClient
    from rmq.cli.ha.members import Target
    from rmq.remoting.bodies import HaDigest, HaDigestsBody

    Ask: TypeAlias = Callable[[str, int, int, int], Awaitable[HaDigestsBody]]
    """Asks a broker for digests: address, start, stop, step."""

STEP_BYTES: Final = 16 * 1024**2
CLOSE_BYTES: Final = 64 * 1024
"""The size of the range in which a difference is reported."""
STEPS_MAX: Final = 16
"""Digests in one request: brokers read the log for them."""


class VerifyError(RmqError):
    """The two logs cannot be compared."""


class Range(NamedTuple):
    """A part of a log."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


class Pair(NamedTuple):
    """A slave, and the master it is to be the same as."""

    master: str
    slave: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing a pair."""

    pair: Pair
    compared: Range
    """All of it if nothing differs, else up to the difference."""
    difference: Range | None


async def find_pairs(client: HaClient, target: Target) -> tuple[list[Pair], list[str]]:
    """Return the pairs to compare, and why other brokers cannot be compared."""
    pairs: list[Pair] = []
    skipped: list[str] = []
    for group in await find_groups(client, target, with_neighbours=True):
        masters = [member for member in group.masters if member.status is not None]
        for member in group.members:
            if member.status is None:
                why = "it is not of rmq and knows no digests" if member.is_stock else member.problem
                skipped.append(f"{member.address}: {why}")
            elif not member.is_master and masters:
                pairs.append(Pair(masters[0].address, member.address))
            elif not member.is_master:
                skipped.append(f"{member.address}: its master cannot be asked")
        skipped += [
            f"{slave.address}: it is not of rmq and knows no digests"
            for member in masters
            for slave in (member.status.slaves if member.status is not None else ())
            if slave.connected and not slave.native
        ]
    return pairs, skipped


async def compare(
    client: HaClient, pair: Pair, on_progress: Callable[[int, int], None]
) -> Comparison:
    """Compare all that both of a pair hold now."""
    master, slave = await client.status(pair.master), await client.status(pair.slave)
    common = Range(max(master.begin, slave.begin), min(master.end, slave.end))
    if common.size <= 0:
        raise VerifyError(
            f"the logs have nothing in common to compare: {pair.master} holds {master.begin} to"
            f" {master.end}, {pair.slave} {slave.begin} to {slave.end}"
        )
    whole = await first_difference(client.digests, pair, common, STEP_BYTES, on_progress)
    if whole is None:
        return Comparison(pair, common, None)
    closer = await first_difference(client.digests, pair, whole, CLOSE_BYTES, _quiet)
    difference = closer or whole
    return Comparison(pair, Range(common.start, difference.start), difference)


async def first_difference(
    ask: Ask, pair: Pair, within: Range, step: int, on_progress: Callable[[int, int], None]
) -> Range | None:
    """Return the first range of `step` bytes that the two do not have in common."""
    position = within.start
    while position < within.stop:
        stop = min(within.stop, position + step * STEPS_MAX)
        answers = await _ask_both(ask, pair, position, stop, step)
        begin = max(answer.begin for answer in answers)
        if begin > position:
            # Old files went meanwhile: what is gone cannot differ.
            position = min(begin, within.stop)
            continue
        ranges = _common_ranges(answers[0].digests, answers[1].digests, position)
        if not ranges:
            raise VerifyError(
                f"{pair.master} and {pair.slave} gave no digests of the same range at offset"
                f" {position}; was a log cut meanwhile?"
            )
        for compared, is_equal in ranges:
            if not is_equal:
                return compared
            position = compared.stop
            on_progress(position - within.start, within.size)
    return None


def _common_ranges(
    ours: Sequence[HaDigest], theirs: Sequence[HaDigest], start: int
) -> list[tuple[Range, bool]]:
    """Return the ranges that both gave digests of, from `start` on, and whether they agree."""
    found: list[tuple[Range, bool]] = []
    for one, other in zip(ours, theirs, strict=False):
        if one.start != start or (one.start, one.stop) != (other.start, other.stop):
            break
        found.append((Range(one.start, one.stop), one.sha256 == other.sha256))
        start = one.stop
    return found


async def _ask_both(
    ask: Ask, pair: Pair, start: int, stop: int, step: int
) -> tuple[HaDigestsBody, HaDigestsBody]:
    answers: dict[str, HaDigestsBody] = {}
    failures: list[RmqError] = []

    async def ask_one(address: str) -> None:
        try:
            answers[address] = await ask(address, start, stop, step)
        except RmqError as exc:
            failures.append(exc)

    async with trio.open_nursery() as nursery:
        for address in pair:
            nursery.start_soon(ask_one, address)
    if failures:
        raise failures[0]
    return answers[pair.master], answers[pair.slave]


def _quiet(done: int, total: int) -> None:
    """Report no progress."""
