"""Both formats on the workers of a cluster, which have rmq from the zip file alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
from cluster_session import COPIES
from formats_job import REGISTERED
from standalone import WORKERS
from worker_python import packages_of

from interop.support.cases import expect, expect_true

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster_session import ClusterSession
    from standalone import Submitted

PART: Final = "formats"
RESULTS: Final = ["driver", "places", "store", "streamed", "wire", "written"]
JOB: Final = Path(__file__).with_name("formats_job.py")


async def run_formats_cases(session: ClusterSession) -> None:
    with session.operation(PART, "the Python of the workers has no rmq of its own"):
        found = await packages_of(session.spark.python, session.folder)
        ours = {name for name in found if "rmq" in name}
        expect("packages", {name for name, is_there in found.items() if is_there}, {*found} - ours)

    with session.operation(PART, "without the zip file nobody has rmq"):
        # What shows that the next cases are about the zip file.
        done = await session.spark.submit(JOB, *_arguments(session, REGISTERED), py_files=None)
        expect_true(f"a failure, not {done.output!r}", done.code)
        expect_true(f"why in {done.output[:1500]!r}", "No module named 'rmq'" in done.output)

    looked = await _look(session)
    if looked is None:
        return  # the other cases are about what this job has printed
    result = looked.result
    with session.operation(PART, "rmq comes from the zip file, on both workers") as case:
        workers = {_worker_of(session, Path(place[0])) for place in result["places"]}
        expect("workers", len(workers), WORKERS)
        zip_name = session.bundle.name
        expect_true(f"not {result['driver']}", zip_name in Path(result["driver"]).parts)
        for place, *modules in result["places"]:
            for module in modules:
                expect_true(
                    f"a file of {zip_name} below {place}, not {module}",
                    zip_name in Path(module).parts and module.startswith(place),
                )
        case.note(" and ".join(sorted(workers)))

    with session.operation(PART, "both workers have done tasks of the queries") as case:
        case.note(expect_both(looked))

    wanted = _sums(session.ledger["Orders"])
    for name, title in (
        ("wire", "a topic over the wire"),
        ("store", "the store of the master"),
        ("written", "a table written to a topic"),
        ("streamed", "a stream with availableNow"),
    ):
        with session.operation(PART, f"{title}: every message once"):
            got = result[name]
            expect("rows and sum", {key: got[key] for key in wanted}, wanted)
            expect("contents", got["hash"], result["wire"]["hash"])

    with session.operation(PART, "found by their names alone, the zip file being on PYTHONPATH"):
        done = await session.spark.submit(
            JOB,
            *_arguments(session, "found"),
            py_files=session.bundle,
            python_path=session.bundle,
        )
        expect("contents", done.result["wire"], result["wire"])
        expect_both(done)

    with session.operation(PART, "what was written is what our client reads"):
        copies = await trio.to_thread.run_sync(session.read, COPIES)
        numbers = sorted(int(body.split()[0]) for body in copies.values())
        expect("numbers", numbers == list(range(session.ledger["Orders"])), True)


def _arguments(session: ClusterSession, mode: str) -> tuple[str, ...]:
    store = session.master.folder / "store"
    return mode, session.nameserver, "Orders", COPIES, str(store), str(session.table("stream"))


async def _look(session: ClusterSession) -> Submitted | None:
    """Run the job; return how it ended, or None if it has failed or has printed nothing."""
    with session.operation(PART, "a job that registers both formats runs to its end") as case:
        done = await session.spark.submit(
            JOB, *_arguments(session, REGISTERED), py_files=session.bundle
        )
        expect(f"exit code ({done.output[-3000:]})", done.code, 0)
        expect("what it has printed", sorted(done.result), RESULTS)
    return done if case.passed else None


def _worker_of(session: ClusterSession, place: Path) -> str:
    """Return the name of the worker whose folder a place is in."""
    return place.relative_to(session.spark.folder).parts[0]


def _sums(count: int) -> Mapping[str, int]:
    return {"rows": count, "places": count, "total": sum(range(count))}


def expect_both(done: Submitted) -> str:
    """Both workers must have done some of the tasks; return how many each."""
    expect("executors", len(done.tasks), WORKERS)
    expect_true(f"tasks of both: {done.tasks}", all(done.tasks.values()))
    return "tasks: " + " and ".join(str(tasks) for tasks in done.tasks.values())
