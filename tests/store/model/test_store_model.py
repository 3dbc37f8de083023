"""A few hundred histories of a store, and of a slave, against plain lists.

`python -m tests.store.model.run_histories --histories 10000` runs many more.
"""

from __future__ import annotations

import pytest

from tests.store.model.machine import StoreMachine
from tests.store.model.run_histories import run_row, silence
from tests.store.model.slave_machine import SlaveMachine
from tests.store.model.subject import Subject

STORE_HISTORIES = 260
SLAVE_HISTORIES = 40


@pytest.mark.parametrize("row_seed", [1, 2], ids=["first seed", "second seed"])
def test_a_store_is_a_list_of_messages_whatever_happens_to_it(row_seed: int) -> None:
    cuts = Subject.tally["the power is cut"]
    kills = Subject.tally["the process is killed"]
    with silence():
        run_row(StoreMachine, row_seed, STORE_HISTORIES // 2)
    # A model that nothing happens to would prove nothing.
    assert Subject.tally["the power is cut"] > cuts + STORE_HISTORIES // 8
    assert Subject.tally["the process is killed"] > kills + STORE_HISTORIES // 8


def test_a_slave_is_its_master_again_whatever_happens_to_either() -> None:
    shipped = Subject.tally["pieces shipped"]
    with silence():
        run_row(SlaveMachine, 8, SLAVE_HISTORIES)
    assert Subject.tally["pieces shipped"] > shipped + SLAVE_HISTORIES // 2
