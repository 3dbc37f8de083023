"""One history with a bit of everything, ended at calls of the storage in turn."""

from __future__ import annotations

from itertools import chain, islice

from tests.store.model.every_call import cases, cases_of_points, run
from tests.store.model.run_histories import silence

STRIDE = 19
POINT_STRIDE = 53


def test_a_store_survives_its_end_at_any_call_and_once_more_while_it_recovers() -> None:
    chosen = list(chain(cases(STRIDE), islice(cases_of_points(), 0, None, POINT_STRIDE)))
    assert len(chosen) > 90
    with silence():
        for case in chosen:
            try:
                run(case)
            except Exception as exc:
                exc.add_note(f"in {case}")
                raise
