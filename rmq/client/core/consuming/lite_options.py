"""The settings of a `LitePullConfig` as keyword arguments, for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.client.core.consuming.allocation import Strategy
    from rmq.client.core.consuming.config import ConsumeFrom, MessageModel


class LitePullOptions(TypedDict, total=False):
    """All of them but the group. What they mean is said at `LitePullConfig`."""

    message_model: MessageModel
    consume_from: ConsumeFrom
    consume_from_ms: int | None
    strategy: Strategy
    commits_itself: bool
    commit_interval_s: float
    poll_timeout_s: float
    pull_messages_max: int
    pull_suspend_s: float
    pull_timeout_s: float
    pull_pause_s: float
    checks_crc: bool
    messages_max: int
    queue_messages_max: int
    queue_bytes_max: int
    queue_span_max: int
    rebalance_s: float
    offset_folder: Path | None
