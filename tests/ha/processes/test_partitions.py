"""A bad network between master and slave, in namespaces; `partitions` tells figures of it."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.ha.processes.cluster import NOT_ALLOWED
from tests.ha.processes.partitions import READY
from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT: Final = ROOT
ANSWER_S: Final = 60.0


class Scenarios:
    """A process that plays them: a network is of a whole process, which is not to be this one."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, name: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        stream = self._process.stdout
        assert stream is not None
        assert select.select([stream], [], [], ANSWER_S)[0], f"no answer in {ANSWER_S:g} s"
        return stream.readline().rstrip("\n")


@pytest.fixture(scope="module")
def scenarios() -> Iterator[Scenarios]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.ha.processes.partitions", "--asked"],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        it = Scenarios(process)
        said = it.answer()
        if said != READY and process.wait(ANSWER_S) == NOT_ALLOWED:
            pytest.skip(said)
        assert said == READY
        yield it
        process.communicate(timeout=ANSWER_S)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "name", ["cut", "cut-from-master", "cut-from-slave", "half-open", "delay-50ms-short", "loss-1%"]
)
def test_replication_survives_a_bad_network(scenarios: Scenarios, name: str) -> None:
    scenarios.ask(name)
    told, has_failed = json.loads(scenarios.answer())
    assert not has_failed, told
