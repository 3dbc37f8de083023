"""How tests are dealt out to the workers of a run: `--dist loadfile`, with two changes.

Files whose tests share something that takes long to start are one unit, so that it is started once
and not by every worker; and what takes longest is dealt out first, so that no worker is busy alone
at the end.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer  # type: ignore[import-untyped]

SPARK: Final = "a session of Spark"
CPP_CLIENTS: Final = "scenarios of the C++ client"

TOGETHER: Final = {
    # All run at once, at the first of their tests.
    CPP_CLIENTS: ("tests/e2e/test_cpp_client_",),
    # Only what uses the session: this unit takes longest, and other workers wait for its end.
    SPARK: (
        "tests/spark/files/test_source.py",
        "tests/spark/pipelines/",
        "tests/spark/sink/test_spark_sink.py",
        "tests/spark/test_docs.py",
        "tests/spark/test_secured.py",
        "tests/spark/test_session.py",
        "tests/spark/wire/test_spark.py",
    ),
}
"""Units of several files, and what the names of these begin with; other files are units of their
own, and their names are those of the units."""

LONG: Final = (
    SPARK,
    "tests/cli/pipeline/test_demo.py",
    "tests/cli/dev/test_command.py",
    "tests/cli/consume/test_command.py",
    "tests/cli/test_produce.py",
    "tests/ha/test_simulation.py",
    "tests/spark/test_own_process.py",
    "tests/store/test_truncation_crashes.py",
    "tests/store/model/test_store_model.py",
    "tests/cli/ha/test_pair.py",
    CPP_CLIENTS,
    "tests/e2e/test_wire_replay.py",
    "tests/ha/processes/test_partitions.py",
    "tests/ha/processes/test_kills.py",
    "tests/ha/processes/test_verdicts.py",
    "tests/ha/processes/test_disks.py",
    "tests/ha/processes/test_promotion.py",
    "tests/ha/processes/test_pauses.py",
    "tests/ha/processes/test_switching.py",
    "tests/ha/test_roles.py",
    "tests/fuzz/test_fuzz_servers.py",
    "tests/fuzz/test_fuzz_short.py",
    "tests/store/kill/test_full_disk.py",
    "tests/store/kill/test_kill_short.py",
    "tests/store/model/test_every_call.py",
    "tests/client/tasks/push_consumer/test_orderly.py",
    "tests/client/tasks/push_consumer/test_retries.py",
    "tests/client/contract/test_failed_sends.py",
    "tests/client/blocking/test_outages.py",
    "tests/client/tasks/lite_pull/test_buffer.py",
    "tests/client/contract/test_pulls.py",
    "tests/client/contract/test_members.py",
    "tests/client/core/consuming/test_process_queue.py",
    "tests/ha/test_slave_cuts.py",
    "tests/store/golden/test_dispatch.py",
)
"""Units that take four seconds and more, roughly the longest first; the others follow.

What depends on time stands behind what can wait: at the beginning Spark leaves it no processor.
"""


def unit_of(nodeid: str) -> str:
    """Return the unit that a test belongs to."""
    file = nodeid.partition("::")[0]
    return next((unit for unit, starts in TOGETHER.items() if file.startswith(starts)), file)


def deal_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Sort tests by units: the long ones, then all others, those with most tests first."""
    sizes = Counter(unit_of(item.nodeid) for item in items)
    ranks = {unit: rank for rank, unit in enumerate(LONG)}

    def place(item: pytest.Item) -> tuple[int, int, str]:
        unit = unit_of(item.nodeid)
        return ranks.get(unit, len(ranks)), -sizes[unit], unit

    return sorted(items, key=place)


class Units(LoadFileScheduling):  # type: ignore[misc]
    """Deals out units in the order of their tests."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        # Not by the number of their tests.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
