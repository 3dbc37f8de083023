"""The actions of `rmq ha`: send the requests, print the results, return the exit code."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from rmq.cli.common.client_options import credentials, tls_config
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.shown import shown
from rmq.cli.common.usage import UsageError
from rmq.cli.ha import change as ha_change
from rmq.cli.ha.client import open_ha_client
from rmq.cli.ha.hand_over import plan_hand_over
from rmq.cli.ha.health import is_healthy
from rmq.cli.ha.members import MASTER, Target, find_groups, find_one
from rmq.cli.ha.saving import save_records
from rmq.cli.ha.status import status_json, status_text
from rmq.cli.ha.text import count_text, offset_text, size_text
from rmq.cli.ha.verify import Comparison, VerifyError, compare, find_pairs

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from rmq.cli.ha.client import HaClient
    from rmq.cli.ha.members import Group
    from rmq.remoting.bodies import Body, HaPromoteBody

_CLEAR: Final = "\x1b[H\x1b[2J"


def _open_client(args: argparse.Namespace) -> AbstractAsyncContextManager[HaClient]:
    return open_ha_client(
        args.timeout, credentials=credentials(args, os.environ), tls=tls_config(args)
    )


# --- status -----------------------------------------------------------------------------------


def status(args: argparse.Namespace) -> int:
    """Show the state of replication; 0 if it is healthy, else 1."""
    target = Target.of(args)

    async def ask() -> list[Group]:
        async with _open_client(args) as client:
            return await find_groups(client, target, with_neighbours=True)

    while True:
        groups = trio.run(ask)
        if args.watch is not None:
            print(_CLEAR if sys.stdout.isatty() else "", end="")
            if not args.json:
                print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        if sys.stdout.isatty() and not args.json:
            from rmq.cli.ha.screen import show_status

            show_status(groups)
        else:
            print(status_json(groups) if args.json else status_text(groups), flush=True)
        if args.watch is None:
            return ExitCode.OK if all(map(is_healthy, groups)) else ExitCode.FAILURE
        if not args.json:
            print()
        time.sleep(args.watch)


# --- changes ----------------------------------------------------------------------------------


def switch(args: argparse.Namespace) -> int:
    """Change what sends wait for."""
    target = Target.of(args)

    async def order() -> ha_change.Switched:
        async with _open_client(args) as client:
            return await ha_change.switch(client, target, args.mode, force=args.force)

    done = trio.run(order)
    _say(args, done.lines(), done.status)
    return ExitCode.OK


def promote(args: argparse.Namespace) -> int:
    """Make a slave the master."""
    target = Target.of(args)

    async def look() -> ha_change.Promotion:
        async with _open_client(args) as client:
            return await ha_change.plan_promotion(client, target)

    return _promote(args, trio.run(look), accept_loss=args.accept_loss, mode=args.mode)


def _promote(
    args: argparse.Namespace, plan: ha_change.Promotion, *, accept_loss: bool, mode: str | None
) -> int:
    _say(args, plan.lines())
    if not _confirmed(args, "promote it?"):
        return ExitCode.FAILURE

    async def order() -> HaPromoteBody:
        async with _open_client(args) as client:
            done = await ha_change.promote(client, plan, accept_loss=accept_loss, mode=mode)
            _say(args, ha_change.promoted_lines(plan, done), done)
            return done

    done = trio.run(order)
    return ExitCode.FAILURE if done.waits_for else ExitCode.OK


def hand_over(args: argparse.Namespace) -> int:
    """Have a slave in sync take the place of a master that is to stop."""
    target = Target.of(args)

    async def look() -> ha_change.Promotion | None:
        async with _open_client(args) as client:
            return await plan_hand_over(client, target)

    plan = trio.run(look)
    if plan is None:
        _say(args, [f"{args.broker} takes no messages as master: there is nothing to hand over"])
        return ExitCode.OK
    return _promote(args, plan, accept_loss=False, mode=None)


def forget(args: argparse.Namespace) -> int:
    """Have a master forget a slave that was taken out for good."""
    target = Target.of(args)

    async def order() -> None:
        async with _open_client(args) as client:
            master = await find_one(client, target, MASTER)
            status = await client.forget(master.address, args.slave)
            _say(args, [f"{master.address} has forgotten its slave {args.slave}"], status)

    trio.run(order)
    return ExitCode.OK


def demote(args: argparse.Namespace) -> int:
    """Make a master a slave."""
    target = Target.of(args)

    async def look() -> ha_change.Demotion:
        async with _open_client(args) as client:
            return await ha_change.plan_demotion(client, target)

    plan = trio.run(look)
    _say(args, plan.lines())
    if not _confirmed(args, "make it a slave?"):
        return ExitCode.FAILURE

    async def order() -> bool:
        async with _open_client(args) as client:
            done, slave = await ha_change.demote(client, plan, args.follow, force=args.force)
            _say(args, ha_change.demoted_lines(done, slave), done)
            return slave.is_following

    return ExitCode.OK if trio.run(order) else ExitCode.FAILURE


def resync(args: argparse.Namespace) -> int:
    """Cut off a slave's log what its master does not have."""
    target = Target.of(args)

    async def look() -> ha_change.Resync:
        async with _open_client(args) as client:
            return await ha_change.plan_resync(client, target)

    plan = trio.run(look)
    is_last = args.dry_run or not plan.is_needed
    _say(args, plan.lines(), plan.found if is_last else None)
    if is_last:
        return ExitCode.OK
    saved = "it is saved first" if args.save else "it cannot be brought back"
    if not _confirmed(args, f"cut it off? {saved}"):
        return ExitCode.FAILURE

    async def order() -> bool:
        async with _open_client(args) as client:
            if args.save is not None:
                count = await _save(client, plan, args.save)
                _say(args, [f"saved: {count_text(count, 'message')} in {args.save}"])
            done, follows = await ha_change.resync(client, plan)
            _say(args, ha_change.resynced_lines(plan, done, follows), done)
            return follows is not None

    return ExitCode.OK if trio.run(order) else ExitCode.FAILURE


async def _save(client: HaClient, plan: ha_change.Resync, path: Path) -> int:
    found = plan.found
    name = ha_change.status_of(plan.slave).broker_name
    start = found.local_end - found.cut_bytes
    return await save_records(client, plan.slave.address, name, start, found.local_end, path)


def _confirmed(args: argparse.Namespace, question: str) -> bool:
    if args.yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask at: --yes does it without asking")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("nothing was changed", file=sys.stderr)
    return False


# --- verify -----------------------------------------------------------------------------------


def verify(args: argparse.Namespace) -> int:
    """Compare the logs of master and slaves; 0 if they are the same, else 1."""
    target = Target.of(args)
    progress = _Progress()

    async def look() -> tuple[list[Comparison], list[str]]:
        async with _open_client(args) as client:
            pairs, skipped = await find_pairs(client, target)
            return [await compare(client, pair, progress.show) for pair in pairs], skipped

    comparisons, skipped = trio.run(look)
    progress.clear()
    if args.json:
        print(json.dumps(_verified(comparisons, skipped), indent=2))
    else:
        for line in skipped:
            print(shown(f"not compared: {line}"))
        for comparison in comparisons:
            print("\n".join(map(shown, _verdict(comparison))))
    if not comparisons:
        raise VerifyError("no slave could be compared with its master")
    is_same = all(comparison.difference is None for comparison in comparisons)
    return ExitCode.OK if is_same else ExitCode.FAILURE


def _verdict(comparison: Comparison) -> list[str]:
    (master, slave), compared = comparison.pair, comparison.compared
    pair = f"{master} and {slave}"
    found = comparison.difference
    if found is None:
        return [
            f"the same: {pair}, from {offset_text(compared.start)} to"
            f" {offset_text(compared.stop)} ({size_text(compared.size)})"
        ]
    return [
        f"DIFFERENT: {pair}, first between {offset_text(found.start)} and"
        f" {offset_text(found.stop)} ({size_text(found.size)});"
        f" {size_text(compared.size)} before that are the same",
        f"  -> look at both: rmq store dump DIR --from-offset {found.start}"
        f" --to-offset {found.stop}",
        f"  -> if the master is right: rmq ha resync -b {slave} --dry-run shows what would be cut",
    ]


def _verified(comparisons: Sequence[Comparison], skipped: Sequence[str]) -> dict[str, object]:
    return {
        "same": bool(comparisons) and all(each.difference is None for each in comparisons),
        "comparisons": [
            {
                "master": each.pair.master,
                "slave": each.pair.slave,
                "start": each.compared.start,
                "stop": each.compared.stop,
                "difference": None
                if each.difference is None
                else {"start": each.difference.start, "stop": each.difference.stop},
            }
            for each in comparisons
        ],
        "skipped": list(skipped),
    }


class _Progress:
    """Progress of a comparison, on standard error if that is a terminal."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._width = 0

    def show(self, done: int, total: int) -> None:
        if self._is_terminal:
            line = f"{done * 100 // max(total, 1)} % of {size_text(total)} compared"
            sys.stderr.write(f"\r{line.ljust(self._width)}")
            sys.stderr.flush()
            self._width = len(line)

    def clear(self) -> None:
        """Make room for the result."""
        if self._width:
            sys.stderr.write(f"\r{' ' * self._width}\r")
            self._width = 0


def _say(args: argparse.Namespace, lines: Sequence[str], body: Body | None = None) -> None:
    """Print lines of text; or, for scripts, only the response of the broker as JSON."""
    if not args.json:
        for line in lines:
            print(shown(line), flush=True)
    elif body is not None:
        print(json.dumps(msgspec.to_builtins(body), indent=2), flush=True)
