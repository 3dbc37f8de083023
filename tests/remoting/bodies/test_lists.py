"""Long lists are encoded in steps, to the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.model import fastjson
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies.lists import ITEMS_PER_STEP, list_in_steps

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    "count", [0, 1, ITEMS_PER_STEP - 1, ITEMS_PER_STEP, 10 * ITEMS_PER_STEP + 3]
)
def test_a_list_is_encoded_some_items_at_a_time(count: int) -> None:
    made: list[int] = []

    def queues() -> Iterator[MessageQueue]:
        for number in range(count):
            made.append(number)
            yield MessageQueue(topic='"\u00e4', broker_name="b", queue_id=number)

    steps = list_in_steps(queues())
    at_steps: list[int] = []
    while True:
        try:
            next(steps)
        except StopIteration as end:
            encoded = end.value
            break
        at_steps.append(len(made))
    assert at_steps == list(range(ITEMS_PER_STEP, count + 1, ITEMS_PER_STEP))
    assert encoded == fastjson.dumps(list(queues()))
