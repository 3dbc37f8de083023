"""What a blocking consumer is told before it starts: values that can be compared and pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.client.core.messages import check_group
from rmq.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingConsumerConfig:
    """How a blocking consumer reads."""

    group: str
    """Whose offsets are read and committed."""
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    """Where the group starts in queues that it has no offset in."""
    consume_from_ms: int | None = None
    """The time for `ConsumeFrom.TIMESTAMP`, in ms since 1970."""
    commits_itself: bool = True
    """Whether what was polled is committed from time to time and at the end, without being asked
    to."""
    commit_interval_s: float = 5.0
    """How often, while messages are polled."""
    poll_timeout_s: float = 5.0
    """How long `poll` waits for messages unless it is told."""
    pull_messages_max: int = 32
    """How many messages one pull may bring. Brokers have a limit of their own, which is 32 unless
    it was changed there."""
    pull_suspend_s: float = 20.0
    """How long brokers may wait for messages before they answer a pull."""
    pull_timeout_s: float = 30.0
    """How long a pull that may wait is waited for."""
    pull_now_timeout_s: float = 10.0
    """How long a pull that may not wait is waited for."""
    pull_pause_s: float = 1.0
    """How long a queue is left alone after a pull failed."""
    pull_retries: int = 3
    """How often `read_range` tries again, in a row, before it gives up."""
    messages_max: int = 2_000
    """No more is pulled while so many messages wait to be polled."""
    sends_heartbeats: bool = True
    """Whether brokers are told that it is a member of the group. Other members that share queues
    among themselves would leave some of them to it, so who only reads ranges is better not."""

    def __post_init__(self) -> None:
        check_group(self.group)
        for name in ("pull_messages_max", "messages_max"):
            if getattr(self, name) < 1:
                raise ConfigError(name, f"{getattr(self, name)} is below 1")
        for name in ("poll_timeout_s", "pull_retries"):
            if not getattr(self, name) >= 0:
                raise ConfigError(name, f"{getattr(self, name)} is below 0")
        for name in ("commit_interval_s", "pull_suspend_s", "pull_now_timeout_s", "pull_pause_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(name, f"{getattr(self, name)} is not above 0")
        if self.pull_timeout_s <= self.pull_suspend_s:
            raise ConfigError(
                "pull_timeout_s",
                f"{self.pull_timeout_s:g} is not above pull_suspend_s, {self.pull_suspend_s:g}",
                hint="a pull that found nothing would always fail",
            )
        if self.consume_from is ConsumeFrom.TIMESTAMP and self.consume_from_ms is None:
            raise ConfigError("consume_from_ms", "a start by time needs the time")


class BlockingConsumerOptions(TypedDict, total=False):
    """The settings of a `BlockingConsumerConfig` beside its group, as keyword arguments."""

    consume_from: ConsumeFrom
    consume_from_ms: int | None
    commits_itself: bool
    commit_interval_s: float
    poll_timeout_s: float
    pull_messages_max: int
    pull_suspend_s: float
    pull_timeout_s: float
    pull_now_timeout_s: float
    pull_pause_s: float
    pull_retries: int
    messages_max: int
    sends_heartbeats: bool
