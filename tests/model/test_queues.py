"""The address of a queue."""

from __future__ import annotations

from rmq.model.queues import MessageQueue


def test_queues_sort_by_topic_then_broker_then_number() -> None:
    in_order = [
        MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)
        for topic in ("A", "B")
        for broker_name in ("a", "b")
        for queue_id in (0, 2, 10)
    ]

    shuffled = in_order[::2] + in_order[1::2]

    assert sorted(shuffled) == in_order


def test_equal_queues_are_one_key() -> None:
    queue = MessageQueue(topic="T", broker_name="b", queue_id=0)

    assert {queue: 1}[MessageQueue(topic="T", broker_name="b", queue_id=0)] == 1
