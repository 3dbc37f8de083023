"""What a push consumer tells operators: its rates, its running info (307), what a listener makes of
one message (309). Names and meanings are those of RocketMQ 4.9.8, whose tools show them.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, final

import anyio

from rmq.client.core.consuming.results import ConsumeResult, Later, understood
from rmq.client.core.received import received
from rmq.model.names import retry_topic
from rmq.remoting.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    ConsumeType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmq.client.core.consuming.config import PushConsumerConfig
    from rmq.client.core.consuming.subscription_set import SubscriptionSet
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.tasks.assignment import AssignedQueue
    from rmq.client.tasks.listener_pool import Listener
    from rmq.model.queues import MessageQueue
    from rmq.model.record import StoredRecord

logger = logging.getLogger(__name__)

CLIENT_VERSION: Final = "V4_9_8"
SAMPLE_S: Final = 10.0
"""How often counters are looked at for the figures of the last minute."""
_SAMPLES: Final = 7
_SAMPLES_PER_LONG_ONE: Final = 60
"""One in this many samples is kept for the figures of the last hour."""


class _Counts(NamedTuple):
    """What happened in one topic since the start."""

    at: float
    pulls: int = 0
    pull_s: float = 0.0
    pulled: int = 0
    calls: int = 0
    call_s: float = 0.0
    succeeded: int = 0
    failed: int = 0


@final
class _TopicCounters:
    """Counters of one topic, and what they were a minute and an hour ago."""

    __slots__ = (
        "call_s",
        "calls",
        "failed",
        "hour",
        "minute",
        "pull_s",
        "pulled",
        "pulls",
        "succeeded",
    )

    def __init__(self, now: float) -> None:
        self.pulls = self.pulled = self.calls = self.succeeded = self.failed = 0
        self.pull_s = self.call_s = 0.0
        self.minute: deque[_Counts] = deque([_Counts(now)], maxlen=_SAMPLES)
        self.hour: deque[_Counts] = deque([_Counts(now)], maxlen=_SAMPLES)

    def counts(self, now: float) -> _Counts:
        return _Counts(
            now,
            self.pulls,
            self.pull_s,
            self.pulled,
            self.calls,
            self.call_s,
            self.succeeded,
            self.failed,
        )


@final
class ConsumeStatistics:
    """How fast topics are pulled and consumed."""

    def __init__(self) -> None:
        self._topics: dict[str, _TopicCounters] = {}
        self._samples = 0

    def watch(self, topic: str, now: float) -> None:
        """Count what happens in a topic."""
        self._topics.setdefault(topic, _TopicCounters(now))

    def pulled(self, topic: str, messages: int, took_s: float) -> None:
        """A pull has brought messages."""
        counters = self._topics.get(topic)
        if counters is not None:
            counters.pulls += 1
            counters.pulled += messages
            counters.pull_s += took_s

    def consumed(self, topic: str, succeeded: int, failed: int, took_s: float) -> None:
        """A call of the listener is over."""
        counters = self._topics.get(topic)
        if counters is not None:
            counters.calls += 1
            counters.call_s += took_s
            counters.succeeded += succeeded
            counters.failed += failed

    def sample(self, now: float) -> None:
        """Keep what was counted so far, to compare with later. To be called every `SAMPLE_S`."""
        self._samples += 1
        for counters in self._topics.values():
            counts = counters.counts(now)
            counters.minute.append(counts)
            if self._samples % _SAMPLES_PER_LONG_ONE == 0:
                counters.hour.append(counts)

    def status(self, topic: str, now: float) -> ConsumeStatus:
        """Return the figures of the last minute; of failures the number of the last hour."""
        counters = self._topics.get(topic)
        if counters is None:
            return ConsumeStatus()
        counts, before, long_before = counters.counts(now), counters.minute[0], counters.hour[0]
        seconds = max(now - before.at, 1e-9)
        call_s = _mean(counts.call_s - before.call_s, counts.calls - before.calls) or _mean(
            counts.call_s - long_before.call_s, counts.calls - long_before.calls
        )
        pull_s = _mean(counts.pull_s - before.pull_s, counts.pulls - before.pulls)
        return ConsumeStatus(
            pull_rt=pull_s * 1000,
            pull_tps=(counts.pulled - before.pulled) / seconds,
            consume_rt=call_s * 1000,
            consume_ok_tps=(counts.succeeded - before.succeeded) / seconds,
            consume_failed_tps=(counts.failed - before.failed) / seconds,
            consume_failed_msgs=counts.failed - long_before.failed,
        )


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0


# --- how it is (307) -------------------------------------------------------------------------


def running_info(
    config: PushConsumerConfig,
    subscriptions: SubscriptionSet,
    queues: Iterable[AssignedQueue],
    offsets: Mapping[MessageQueue, int],
    statistics: ConsumeStatistics,
    *,
    nameservers: Iterable[str],
    started_at_ms: int,
    now: float,
    now_ms: int,
) -> ConsumerRunningInfo:
    """Return the running info of a consumer (307)."""
    return ConsumerRunningInfo(
        properties={
            **_settings(config, now_ms),
            "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in nameservers),
            "PROP_CONSUME_TYPE": ConsumeType.CONSUME_PASSIVELY.value,
            "PROP_CLIENT_VERSION": CLIENT_VERSION,
            "PROP_CONSUMEORDERLY": _java(config.is_orderly),
            "PROP_THREADPOOL_CORE_SIZE": str(config.listeners_max),
            "PROP_CONSUMER_START_TIMESTAMP": str(started_at_ms),
        },
        subscription_set=tuple(sorted(subscriptions, key=lambda data: data.topic)),
        mq_table={
            assigned.queue: assigned.process.info(
                now=now, now_ms=now_ms, stored_offset=offsets.get(assigned.queue, -1)
            )
            for assigned in sorted(queues, key=lambda assigned: assigned.queue)
        },
        status_table={
            topic: statistics.status(topic, now) for topic in sorted(subscriptions.topics)
        },
    )


def _settings(config: PushConsumerConfig, now_ms: int) -> dict[str, str]:
    """Return the settings by their names in a stock client, as far as it has them."""
    start = time.localtime(config.start_ms(now_ms) / 1000)
    return {
        "consumerGroup": config.group,
        "messageModel": config.message_model.value,
        "consumeFromWhere": config.consume_from.wire.value,
        "consumeTimestamp": time.strftime("%Y%m%d%H%M%S", start),
        "allocateMessageQueueStrategy": config.strategy.name,
        "consumeThreadMin": str(config.listeners_max),
        "consumeThreadMax": str(config.listeners_max),
        "consumeConcurrentlyMaxSpan": str(config.queue_span_max),
        "pullThresholdForQueue": str(config.queue_messages_max),
        "pullThresholdSizeForQueue": str(config.queue_bytes_max // 1024**2),
        "pullThresholdForTopic": _or_minus_1(config.topic_messages_max),
        "pullThresholdSizeForTopic": _or_minus_1(
            None if config.topic_bytes_max is None else config.topic_bytes_max // 1024**2
        ),
        "pullInterval": str(round(config.pull_interval_s * 1000)),
        "consumeMessageBatchMaxSize": str(config.batch_messages_max),
        "pullBatchSize": str(config.pull_messages_max),
        "postSubscriptionWhenPull": _java(config.sends_expression),
        "maxReconsumeTimes": _or_minus_1(config.reconsume_times_max),
        "suspendCurrentQueueTimeMillis": str(round(config.suspend_queue_s * 1000)),
        "consumeTimeout": str(round(config.consume_timeout_s / 60)),
        "awaitTerminationMillisWhenShutdown": str(round(min(config.close_wait_s, 1e9) * 1000)),
    }


def _or_minus_1(value: int | None) -> str:
    return str(-1 if value is None else value)


def _java(value: bool) -> str:
    return "true" if value else "false"


# --- one message for an operator (309) -------------------------------------------------------


async def consume_directly(
    listener: Listener, record: StoredRecord, broker_name: str, *, config: PushConsumerConfig
) -> ConsumeMessageDirectlyResult:
    """Give one message to a listener and tell what it made of it. No offset moves."""
    message = received(record, broker_name)
    if message.topic == retry_topic(config.group):
        message.topic = message.properties.get("RETRY_TOPIC", message.topic)
    logger.info("group %s: an operator has %r consumed", config.group, message)
    started = anyio.current_time()
    result = CMResult.CR_LATER
    remark: str | None = f"no result within {config.consume_timeout_s:g} s"
    with anyio.move_on_after(config.consume_timeout_s):
        result, remark = await _call(listener, message)
    return ConsumeMessageDirectlyResult(
        order=config.is_orderly,
        auto_commit=True,
        consume_result=result,
        remark=remark,
        spent_time_mills=round((anyio.current_time() - started) * 1000),
    )


async def _call(listener: Listener, message: ReceivedMessage) -> tuple[CMResult, str | None]:
    try:
        returned = await listener([message])
    except Exception as exc:
        logger.warning("the listener raised for %r", message, exc_info=True)
        return CMResult.CR_THROW_EXCEPTION, f"{type(exc).__name__}: {exc}"
    outcome = understood(returned)
    if outcome.is_success:
        return CMResult.CR_SUCCESS, None
    if outcome.nonsense is not None:
        return CMResult.CR_RETURN_NULL, f"the listener returned {outcome.nonsense}"
    assert returned is ConsumeResult.LATER or isinstance(returned, Later)
    return CMResult.CR_LATER, None
