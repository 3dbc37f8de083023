"""What consumers are told before they start. Values only: they can be compared and pickled.

Defaults and bounds are those of RocketMQ 4.9.8, except where it is said.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

from rmq.client.core.consuming.allocation import Average, Strategy
from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.client.core.messages import check_group
from rmq.errors import ConfigError
from rmq.remoting.bodies import MessageModel

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BlockingConsumerConfig",
    "BlockingConsumerOptions",
    "ConsumeFrom",
    "LitePullConfig",
    "LitePullOptions",
    "MessageModel",
    "PushConsumerConfig",
    "PushConsumerOptions",
]

MIB: Final = 1024**2

START_BEFORE_MS: Final = 30 * 60 * 1000
"""`ConsumeFrom.TIMESTAMP` without a time starts with what was stored half an hour ago."""
RECONSUME_TIMES_MAX: Final = 16
"""How often a message is retried before it goes to the dead letters."""
SUSPEND_QUEUE_S_MIN: Final = 0.01
SUSPEND_QUEUE_S_MAX: Final = 30.0


def default_offset_folder() -> Path:
    """Return where consumers of broadcasts keep their offsets, stock ones too."""
    return Path.home() / ".rocketmq_offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConsumerConfig:
    """How a push consumer behaves."""

    group: str
    message_model: MessageModel = MessageModel.CLUSTERING
    """CLUSTERING: members share the messages. BROADCASTING: each gets all of them."""
    is_orderly: bool = False
    """Whether messages of a queue are consumed one after the other, in their order."""
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    """Where the group starts in queues that it has no offset in."""
    consume_from_ms: int | None = None
    """The time for `ConsumeFrom.TIMESTAMP`, in ms since 1970; None: half an hour before the
    start.
    """
    strategy: Strategy = field(default_factory=Average)
    """Who consumes which queues. All members of a group must have the same."""

    listeners_max: int = 20
    """How many calls of the listener run at once."""
    batch_messages_max: int = 1
    """How many messages the listener is given at once, at most."""
    consume_timeout_s: float = 15 * 60.0
    """A message that the listener has had for longer is sent back to be retried elsewhere. Not when
    consumed in order.
    """
    reconsume_times_max: int | None = None
    """How often a message is retried before it goes to the dead letters. None: 16 times, and
    without end when consumed in order.
    """
    suspend_queue_s: float = 1.0
    """How long a queue consumed in order pauses after a failure; 0.01 to 30."""

    pull_messages_max: int = 32
    """How many messages one pull may bring."""
    pull_interval_s: float = 0.0
    """The least time from one pull of a queue to the next."""
    pull_suspend_s: float = 15.0
    """How long brokers may wait for messages before they answer a pull."""
    pull_timeout_s: float = 30.0
    """How long a pull is waited for."""
    pull_pause_s: float = 1.0
    """How long a queue is left alone after a pull failed."""
    sends_expression: bool = False
    """Whether each pull says what is subscribed to; else brokers know it from heartbeats."""
    checks_crc: bool = True
    """Whether bodies are compared with their checksums. (4.9.8 does not.)"""

    queue_messages_max: int = 1000
    """No more is pulled from a queue with more unfinished messages than this."""
    queue_bytes_max: int = 100 * MIB
    """Likewise, by their size."""
    queue_span_max: int = 2000
    """Likewise, by how far the first and the last of them are apart. Not when consumed in order."""
    topic_messages_max: int | None = None
    """Shared evenly by the queues of a topic, in place of `queue_messages_max`."""
    topic_bytes_max: int | None = None
    """Shared evenly by the queues of a topic, in place of `queue_bytes_max`."""

    rebalance_s: float = 20.0
    """How often queues are shared out again, besides when brokers tell of a change."""
    offset_commit_s: float = 5.0
    """How often offsets are stored."""
    offset_folder: Path | None = None
    """Where offsets of broadcasts are kept; None: `~/.rocketmq_offsets`, as stock clients do."""
    lock_renewal_s: float = 20.0
    """How often the locks of queues consumed in order are renewed; brokers keep them for 60 s."""
    close_wait_s: float = 10.0
    """How long closing waits for listeners that are busy. (4.9.8 does not wait.)"""

    def __post_init__(self) -> None:
        check_group(self.group)
        _check_common(self)
        _check_range(
            self,
            {
                "listeners_max": (1, 1000),
                "batch_messages_max": (1, 1024),
                "pull_messages_max": (1, 1024),
                "pull_interval_s": (0, 65.535),
                "queue_messages_max": (1, 65_535),
                "queue_bytes_max": (1, 1024 * MIB),
                "queue_span_max": (1, 65_535),
                "topic_messages_max": (1, 6_553_500),
                "topic_bytes_max": (1, 102_400 * MIB),
                "reconsume_times_max": (0, 2**31 - 1),
                "suspend_queue_s": (SUSPEND_QUEUE_S_MIN, SUSPEND_QUEUE_S_MAX),
                "close_wait_s": (0, float("inf")),
            },
        )
        _check_above_0(
            self,
            "consume_timeout_s",
            "pull_suspend_s",
            "pull_pause_s",
            "rebalance_s",
            "offset_commit_s",
            "lock_renewal_s",
        )
        if self.pull_timeout_s <= self.pull_suspend_s:
            raise ConfigError(
                "pull_timeout_s",
                f"{self.pull_timeout_s:g} is not above pull_suspend_s, {self.pull_suspend_s:g}",
                hint="a pull that found nothing would always fail",
            )

    @property
    def is_broadcast(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING

    @property
    def needs_lock(self) -> bool:
        """Whether a queue is locked at its broker before it is pulled: one member has it then."""
        return self.is_orderly and not self.is_broadcast

    @property
    def retries_max(self) -> int | None:
        """How often a message is retried; None: without end."""
        if self.reconsume_times_max is not None:
            return self.reconsume_times_max
        return None if self.is_orderly else RECONSUME_TIMES_MAX

    def start_ms(self, now_ms: int) -> int:
        """Return the time that `ConsumeFrom.TIMESTAMP` means for a consumer started now."""
        return _start_ms(self.consume_from_ms, now_ms)

    def queue_limits(self, queues_of_topic: int) -> tuple[int, int]:
        """Return how many messages and bytes a queue may have unfinished.

        `queues_of_topic` is how many of its topic's queues this consumer has.
        """
        queues = max(1, queues_of_topic)
        messages, size = self.queue_messages_max, self.queue_bytes_max
        if self.topic_messages_max is not None:
            messages = max(1, self.topic_messages_max // queues)
        if self.topic_bytes_max is not None:
            size = max(1, self.topic_bytes_max // queues)
        return messages, size


class PushConsumerOptions(TypedDict, total=False):
    """The settings of a `PushConsumerConfig` but the group, as keyword arguments."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullConfig:
    """How a lite pull consumer behaves."""

    group: str
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    """Where the group starts in queues that it has no offset in."""
    consume_from_ms: int | None = None
    """The time for `ConsumeFrom.TIMESTAMP`, in ms since 1970; None: half an hour before the
    start.
    """
    strategy: Strategy = field(default_factory=Average)
    """Who consumes which queues. All members of a group must have the same."""

    commits_itself: bool = True
    """Whether what was polled is committed from time to time without being asked to."""
    commit_interval_s: float = 5.0
    """How often, at least 1 s apart."""
    poll_timeout_s: float = 5.0
    """How long `poll` waits for messages unless it is told."""

    pull_messages_max: int = 10
    """How many messages one pull may bring."""
    pull_suspend_s: float = 20.0
    """How long brokers may wait for messages before they answer a pull."""
    pull_timeout_s: float = 30.0
    """How long a pull that may wait is waited for."""
    pull_pause_s: float = 1.0
    """How long a queue is left alone after a pull failed."""
    checks_crc: bool = True
    """Whether bodies are compared with their checksums. (4.9.8 does not.)"""

    messages_max: int = 10_000
    """No more is pulled while more messages than this are waiting to be polled."""
    queue_messages_max: int = 1000
    """Likewise, per queue."""
    queue_bytes_max: int = 100 * MIB
    """Likewise, by their size."""
    queue_span_max: int = 2000
    """Likewise, by how far the first and the last of them are apart."""

    rebalance_s: float = 20.0
    """How often queues are shared out again, besides when brokers tell of a change."""
    offset_folder: Path | None = None
    """Where offsets of broadcasts are kept; None: `~/.rocketmq_offsets`, as stock clients do."""

    def __post_init__(self) -> None:
        check_group(self.group)
        _check_common(self)
        _check_range(
            self,
            {
                "commit_interval_s": (1, float("inf")),
                "poll_timeout_s": (0, float("inf")),
                "pull_messages_max": (1, 1024),
                "messages_max": (1, 2**31 - 1),
                "queue_messages_max": (1, 65_535),
                "queue_bytes_max": (1, 1024 * MIB),
                "queue_span_max": (1, 65_535),
            },
        )
        _check_above_0(self, "pull_suspend_s", "pull_pause_s", "rebalance_s")
        if self.pull_timeout_s < self.pull_suspend_s:
            raise ConfigError(
                "pull_timeout_s",
                f"{self.pull_timeout_s:g} is below pull_suspend_s, {self.pull_suspend_s:g}",
                hint="a pull that found nothing would always fail",
            )

    @property
    def is_broadcast(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING

    def start_ms(self, now_ms: int) -> int:
        """Return the time that `ConsumeFrom.TIMESTAMP` means for a consumer started now."""
        return _start_ms(self.consume_from_ms, now_ms)


class LitePullOptions(TypedDict, total=False):
    """The settings of a `LitePullConfig` but the group, as keyword arguments."""

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
    """Pulls pause while this many messages wait to be polled."""
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
    """The settings of a `BlockingConsumerConfig` but the group, as keyword arguments."""

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


def _start_ms(asked_ms: int | None, now_ms: int) -> int:
    return now_ms - START_BEFORE_MS if asked_ms is None else asked_ms


def _check_common(config: PushConsumerConfig | LitePullConfig) -> None:
    if not isinstance(config.message_model, MessageModel):
        raise ConfigError("message_model", f"{config.message_model!r} is no MessageModel")
    if not isinstance(config.consume_from, ConsumeFrom):
        raise ConfigError("consume_from", f"{config.consume_from!r} is no ConsumeFrom")
    if config.consume_from_ms is not None and config.consume_from_ms < 0:
        raise ConfigError("consume_from_ms", f"{config.consume_from_ms} is below 0")
    if not callable(config.strategy):
        raise ConfigError("strategy", f"{config.strategy!r} is no strategy")
    if config.offset_folder is not None:
        object.__setattr__(config, "offset_folder", Path(config.offset_folder))


def _check_range(config: object, bounds: Mapping[str, tuple[float, float]]) -> None:
    for name, (low, high) in bounds.items():
        value = getattr(config, name)
        if value is not None and not low <= value <= high:
            raise ConfigError(name, f"{value} is not {low:g} to {high:g}")


def _check_above_0(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not value > 0:
            raise ConfigError(name, f"{value} is not above 0")
