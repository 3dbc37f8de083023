"""`rmq pipeline audit` on the workers of a cluster."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from formats_cases import expect_both

from interop.support.cases import expect, expect_true
from interop.support.spark import flip_a_bit

if TYPE_CHECKING:
    from pathlib import Path

    from cluster_session import ClusterSession

PART: Final = "audit"


async def run_audit_cases(session: ClusterSession) -> None:
    master, slave = session.master.folder / "store", session.slave.folder / "store"

    with session.operation(PART, "the slave has what the master has: exit code 0") as case:
        await session.wait_copied()
        done = await session.submit("audit", *_stores(master, slave))
        done.expect("holds")
        case.note(expect_both(done))

    await run_audit_of_flipped_bit(session)

    with session.operation(PART, "a store that is not there: why, and exit code 2"):
        nowhere = session.table("nowhere")
        done = await session.submit("audit", *_stores(master, nowhere))
        done.expect("unknown")
        expect_true(f"its name in {done.output}", str(nowhere) in done.output)


async def run_audit_of_flipped_bit(session: ClusterSession) -> None:
    """Audit a copy of the slave's store."""
    with session.operation(PART, "one flipped bit is found and named: exit code 1") as case:
        await session.wait_copied()
        copy, out = session.table("flipped"), session.table("audit")
        shutil.copytree(session.slave.folder / "store", copy)
        offset = flip_a_bit(copy)
        stores = _stores(session.master.folder / "store", copy)
        done = await session.submit("audit", *stores, "--out", str(out))
        done.expect("fails")
        found = [each.get("physical_offset") for each in done.result["findings"]]
        expect(f"offsets of records that differ ({done.result['verdict']})", found, [offset])
        for name in ("differences/_SUCCESS", "audit.json", "audit.html"):
            expect_true(f"a file {name}", (out / name).is_file())
        case.note(f"physical offset {offset}; {expect_both(done)}")


def _stores(master: Path, slave: Path) -> tuple[str, ...]:
    return "--master-store", str(master), "--slave-store", str(slave)
