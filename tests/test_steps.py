"""Long work that leaves other tasks their turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rmq.steps import in_steps

if TYPE_CHECKING:
    from collections.abc import Generator


async def test_other_tasks_run_between_the_steps() -> None:
    seen: list[str] = []

    def work() -> Generator[None, None, str]:
        for number in range(3):
            seen.append(f"step {number}")
            yield
        return "result"

    async def other() -> None:
        while True:
            seen.append("other")
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert await in_steps(work()) == "result"
        nursery.cancel_scope.cancel()
    assert [s for s in seen if s != "other"] == ["step 0", "step 1", "step 2"]
    assert "other" in seen[seen.index("step 0") : seen.index("step 2")]


async def test_an_error_of_the_work_is_raised() -> None:
    def work() -> Generator[None, None, None]:
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await in_steps(work())
