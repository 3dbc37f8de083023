"""The rules for a machine, and what Linux says of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.cli.doctor.checks import State
from rmq.cli.doctor.machine import Machine, machine_checks, read_machine

if TYPE_CHECKING:
    from pathlib import Path

TUNED = Machine(
    open_files=655_350,
    maps=655_360,
    swappiness=1,
    backlog=4_096,
    overcommit=1,
    huge_pages="madvise",
    dirty_bytes=1024**3,
    dirty_percent=0,
    memory_bytes=64 * 1024**3,
    swap_used_bytes=0,
)


def test_a_machine_that_is_tuned_has_nothing_wrong() -> None:
    checks = list(machine_checks(TUNED))
    assert len(checks) == 7
    assert {check.state for check in checks} == {State.OK}
    assert {check.todo for check in checks} == {None}


@pytest.mark.parametrize(
    ("machine", "what", "state", "todo"),
    [
        pytest.param(Machine(open_files=1024), "open files", State.BAD, "LimitNOFILE", id="few"),
        pytest.param(Machine(open_files=20_000), "open files", State.ODD, "LimitNOFILE", id="some"),
        pytest.param(
            Machine(open_files=65_536, maps=65_530), "mapped files", State.ODD, "655360", id="maps"
        ),
        pytest.param(
            Machine(open_files=65_536, swappiness=60, swap_used_bytes=0),
            "swapping",
            State.ODD,
            "vm.swappiness=1",
            id="swap",
        ),
        pytest.param(
            Machine(open_files=65_536, dirty_percent=20, memory_bytes=64 * 1024**3),
            "writing to disk",
            State.ODD,
            "vm.dirty_bytes",
            id="ratio of a large memory",
        ),
        pytest.param(
            Machine(open_files=65_536, huge_pages="always"),
            "huge pages",
            State.ODD,
            "madvise",
            id="huge pages",
        ),
    ],
)
def test_what_is_not_as_advised_is_told_with_what_to_do(
    machine: Machine, what: str, state: State, todo: str
) -> None:
    (check,) = (each for each in machine_checks(machine) if each.state is not State.OK)
    assert (check.what, check.state) == (what, state)
    assert todo in (check.todo or "")


def test_a_machine_is_read_as_linux_tells_it(tmp_path: Path) -> None:
    files = {
        "proc/sys/vm/max_map_count": "65530\n",
        "proc/sys/vm/swappiness": "60\n",
        "proc/sys/vm/dirty_bytes": "0\n",
        "proc/sys/vm/dirty_ratio": "20\n",
        "proc/sys/net/core/somaxconn": "4096\n",
        "proc/meminfo": "MemTotal:  1000 kB\nSwapTotal:   50 kB\nSwapFree:   20 kB\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    machine = read_machine(1024, tmp_path)
    assert (machine.maps, machine.huge_pages, machine.overcommit) == (65_530, "madvise", None)
    assert machine.swap_used_bytes == 30 * 1024
    assert machine.dirty_max_bytes == 1000 * 1024 // 5
    # Elsewhere nothing is known, and nothing judged.
    assert len(list(machine_checks(read_machine(655_350, tmp_path / "nowhere")))) == 1
