"""Keys and ids of rows: the same for the same row, others for all others."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmq.spark.sink.identity import RowIdentity


def ids(identity: RowIdentity, *rows: int) -> list[str]:
    return [bytes(line).decode() for line in identity.ids(np.array(rows, np.int64))]


def test_a_row_has_the_same_id_whenever_and_wherever_it_is_sent() -> None:
    # Written down: another release must not make other ids of the rows of a run.
    identity = RowIdentity("3efdf9b1", 12, 3)
    assert identity.key(7) == "3efdf9b1/12/3/7"
    first, eighth = "66EF8CB84376C60386FB000000000000", "66EF8CB84376C60386FB000000000007"
    assert ids(identity, 0, 7) == [first, eighth]
    assert ids(RowIdentity("3efdf9b1", "12", "3"), 7, 0) == [eighth, first]
    assert ids(identity, 2**32 + 7) == ["66EF8CB84376C60386FC000000000007"]


@given(
    st.lists(st.integers(0, 2**63 - 1), unique=True, min_size=2, max_size=20),
    st.lists(st.text(max_size=4), min_size=1, max_size=3),
)
def test_no_two_rows_have_the_same_id(rows: list[int], parts: list[str]) -> None:
    found = ids(RowIdentity(*parts), *rows)
    assert len(set(found)) == len(rows)
    for each in found:
        assert re.fullmatch("[0-9A-F]{32}", each)
        # Stock tools take this for milliseconds since the month began: less than a minute or so.
        assert int(each[20:28], 16) < 65_536


def test_no_two_tasks_share_ids() -> None:
    tasks = [RowIdentity("run", partition) for partition in range(100)]
    tasks += [
        RowIdentity("query", batch, partition) for batch in range(30) for partition in (1, 11)
    ]
    found = [each for task in tasks for each in ids(task, *range(100))]
    assert len(set(found)) == len(found)
