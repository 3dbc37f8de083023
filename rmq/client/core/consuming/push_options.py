"""The settings of a `PushConsumerConfig` as keyword arguments, for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.client.core.consuming.allocation import Strategy
    from rmq.client.core.consuming.config import ConsumeFrom, MessageModel


class PushConsumerOptions(TypedDict, total=False):
    """All of them but the group. What they mean is said at `PushConsumerConfig`."""

    message_model: MessageModel
    is_orderly: bool
    consume_from: ConsumeFrom
    consume_from_ms: int | None
    strategy: Strategy
    listeners_max: int
    batch_messages_max: int
    consume_timeout_s: float
    reconsume_times_max: int | None
    suspend_queue_s: float
    pull_messages_max: int
    pull_interval_s: float
    pull_suspend_s: float
    pull_timeout_s: float
    pull_pause_s: float
    sends_expression: bool
    checks_crc: bool
    queue_messages_max: int
    queue_bytes_max: int
    queue_span_max: int
    topic_messages_max: int | None
    topic_bytes_max: int | None
    rebalance_s: float
    offset_commit_s: float
    offset_folder: Path | None
    lock_renewal_s: float
    close_wait_s: float
