"""A bad network between master and slave, in namespaces; `partitions` tells figures of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.ha.processes.cluster import NOT_ALLOWED

PROJECT: Final = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "name", ["cut", "cut-from-master", "cut-from-slave", "half-open", "delay-50ms-short", "loss-1%"]
)
def test_replication_survives_a_bad_network(name: str) -> None:
    # The network is of a whole process, which is not this one.
    done = subprocess.run(
        [sys.executable, "-m", "tests.ha.processes.partitions", name],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode == NOT_ALLOWED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith(f"{name}: ")
