"""The fixture that runs all selected scenarios at once."""

from __future__ import annotations

import pytest
import trio

from tests.e2e.cpp_clients import why_missing
from tests.e2e.scenarios import Outcomes, play_all, selected_plays


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """How the scenarios of all selected tests went."""
    reason = why_missing()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("e2e")
    return trio.run(play_all, selected_plays(request.session.items), folder)
