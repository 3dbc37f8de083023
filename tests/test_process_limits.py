"""What the system allows: read in a process of its own, whose limits can be lowered."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from rmq.process_limits import memory_limit, open_files_limit, physical_memory_bytes

resource = pytest.importorskip("resource")

MIB: Final = 1024 * 1024


def said_by(code: str) -> list[int]:
    script = f"import resource\nfrom rmq.process_limits import *\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30
    )
    return [int(word) for word in done.stdout.split()]


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    before, now, seen = said_by(
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))\n"
        "print(*raise_open_files_limit(), open_files_limit())"
    )
    assert (before, now, seen) == (64, 128, 128)


def test_a_limit_that_cannot_be_raised_is_told_as_it_is() -> None:
    assert said_by(
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\nprint(*raise_open_files_limit())"
    ) == [100, 100]


def test_a_limit_of_the_address_space_counts_as_memory() -> None:
    (limit,) = said_by(
        f"resource.setrlimit(resource.RLIMIT_AS, ({300 * MIB}, {300 * MIB}))\nprint(memory_limit())"
    )
    assert limit == 300 * MIB


def test_limits_of_this_process_make_sense() -> None:
    assert 16 * MIB < memory_limit() <= physical_memory_bytes()
    assert open_files_limit() >= 64
