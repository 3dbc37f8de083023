"""What an operator sees who asks a consumer for its stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
import trio.testing

from rmq.client.trio import stacks as module
from rmq.client.trio.opening import open_admin, open_push_consumer
from rmq.client.trio.stacks import task_stacks
from tests.client.cluster_kit import cluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from rmq.client.core.received import ReceivedMessage


async def waiting_for_nothing() -> None:
    await trio.sleep_forever()


async def test_shows_every_task_and_where_it_waits() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting_for_nothing)
        nursery.start_soon(waiting_for_nothing)
        await trio.testing.wait_all_tasks_blocked()
        text = task_stacks()
        nursery.cancel_scope.cancel()
    assert text.count("waiting_for_nothing (") == 2
    assert "sleep_forever" in text
    assert __file__ in text


async def test_many_tasks_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TASKS_MAX", 5)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(waiting_for_nothing)
        await trio.testing.wait_all_tasks_blocked()
        text = task_stacks()
        nursery.cancel_scope.cancel()
    assert "more tasks" in text
    assert text.count("waiting_for_nothing (") <= 5


async def deep(levels: int) -> None:
    if levels:
        await deep(levels - 1)
    else:
        await trio.sleep_forever()


async def test_a_deep_stack_is_cut() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deep, 200)
        await trio.testing.wait_all_tasks_blocked()
        text = task_stacks()
        nursery.cancel_scope.cancel()
    assert text.count("at deep") == module.FRAMES_MAX
    assert "..." in text


async def test_only_who_asks_for_stacks_gets_them(tmp_path: Path) -> None:
    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        return None

    async with cluster(tmp_path) as it:
        await it.create_topic("Orders")
        async with (
            open_push_consumer(it.nameserver, "billing", "Orders", listener) as consumer,
            open_admin(it.nameserver) as admin,
        ):
            client_id = consumer.client.client_id
            plain = await admin.running_info("billing", client_id)
            asked = await admin.running_info("billing", client_id, with_stacks=True)
    assert plain.jstack is None
    assert asked.jstack is not None
    assert "rmq/client/tasks/rebalance.py" in asked.jstack
