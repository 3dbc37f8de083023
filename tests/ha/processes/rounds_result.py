"""What came of all rounds: what was promised beside what is there, and what producers felt."""

# ruff: noqa: T201 - standard output is what it is for

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.ha.processes.rounds_account import Account, Trouble
    from tests.ha.processes.rounds_readers import Readers


class Result:
    """What came of all rounds."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.troubles: list[tuple[str, Trouble]] = []
        self.outcomes: Counter[str] = Counter()
        """How many times each thing that was done ended how."""
        self.faults: list[str] = []

    def judge(self, readers: Readers, stored: Counter[bytes], not_read: set[bytes]) -> None:
        """Compare what was promised with what is there."""
        account, bodies = self.account, readers.bodies
        self.faults += readers.faults
        found = {
            "answered SEND_OK or committed, and not in the log": account.promised - stored.keys(),
            "answered SEND_OK or committed, and never consumed": not_read,
            "rolled back, and in the log": account.rolled_back & stored.keys(),
            "rolled back, and consumed": account.rolled_back & bodies.keys(),
        }
        for what, which in found.items():
            kinds = Counter(body.split()[0].decode() for body in which)
            print(f"  {len(which):>7}  {what} {dict(kinds) or ''}")
            if which:
                self.faults.append(f"{len(which)} {what}: {sorted(which)[:10]}")
        again = sum(max(0, times - max(1, stored[body])) for body, times in bodies.items())
        print(f"  {sum(n - 1 for n in stored.values()):>7}  stored again by a producer's retry")
        print(f"  {again:>7}  consumed again after a failover")
        print(f"  {len(bodies.keys() - stored.keys()):>7}  consumed, never promised, and gone")
        print(f"  {readers.longest_step_back:>7}  messages that an offset went back by, at most")
        print(
            f"  {readers.latest_delay_ms / 1000:>7.1f}  s that a delayed message was late, at most"
        )

    def show(self) -> None:
        account = self.account
        print("SEND_OK:", {kind.value: number for kind, number in account.acknowledged.items()})
        print(f"  {len(account.committed)} committed, {len(account.rolled_back)} rolled back")
        print("answers:", dict(account.answers))
        for what, number in sorted(self.outcomes.items()):
            print(f"  {number:>5}  {what}")
        print("action, rounds, longest without an answer, without SEND_OK, failed sends (most):")
        for action in sorted({action for action, _ in self.troubles}):
            of = [trouble for name, trouble in self.troubles if name == action]
            print(
                f"  {action:<12} {len(of):>4} {max(t.longest_s for t in of):>7.2f} s"
                f" {max(t.longest_ok_s for t in of):>7.2f} s {sum(t.failed for t in of):>6}"
                f" ({max(t.failed for t in of)})"
            )
        for fault in self.faults:
            print("FAULT:", fault)
