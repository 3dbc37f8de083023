"""Conditions under which a broker takes a message, and the remarks of refusals. Pure.

Shared by all requests that bring a message: sends, replies, and messages that consumers send back.
Codes and remarks are those of RocketMQ 4.9.8 AbstractSendMessageProcessor and SendMessageProcessor.
All input is given as values, among them the time; nothing here knows a request or answers one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from rmq.broker.tables.topic_names import is_send_forbidden
from rmq.errors import RefusedError
from rmq.model.name_rules import topic_refusal
from rmq.model.topic_flags import PERM_WRITE
from rmq.remoting.codes import ResponseCode
from rmq.remoting.headers import SendMessageErrorResponse
from rmq.store.append import AppendResult, AppendStatus

if TYPE_CHECKING:
    from rmq.broker.config.service import ServiceSettings
    from rmq.remoting.bodies import SubscriptionGroupConfig, TopicConfig
    from rmq.store.append import BatchResult

SEE_FAQ: Final = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
SLAVE: Final = AppendResult(
    AppendStatus.SERVICE_NOT_AVAILABLE, reason="this broker is a slave, only its master takes them"
)
"""The outcome of a message that is sent to a slave."""

_VERSION_3_4_9: Final = 121
"""Clients of this version and later say themselves how often a message may come back."""


# --- checks --------------------------------------------------------------------------------------


def check_send(name: str, topic: TopicConfig | None, config: ServiceSettings, now_ms: int) -> None:
    """Raise `RefusedError` if nothing may be sent to a topic, whether it exists or not."""
    if now_ms < config.start_accept_send_ms:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"broker unable to service, until {_human_time(config.start_accept_send_ms)}",
        )
    if not config.permission & PERM_WRITE and topic is not None and topic.order:
        raise broker_forbids(config)
    reason = topic_refusal(name)
    if reason is not None:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, reason)
    if is_send_forbidden(name):
        raise RefusedError(
            ResponseCode.NO_PERMISSION, f"Sending message to topic [{name}] is forbidden."
        )


def takes_sends(name: str) -> bool:
    """Tell whether a topic of this name may be sent to, as far as the name decides it."""
    return not is_send_forbidden(name) and topic_refusal(name) is None


def check_queue_id(queue_id: int, topic: TopicConfig, producer: str) -> None:
    """Raise `RefusedError` for a queue that a topic does not have; any one (-1) will do."""
    if queue_id >= queues_of(topic):
        raise illegal_queue(queue_id, topic, producer)


def queues_of(topic: TopicConfig) -> int:
    """Return how many queues of a topic may be sent to."""
    return max(topic.write_queue_nums, topic.read_queue_nums)


def attempts_max(group: SubscriptionGroupConfig, wanted: int | None, client_version: int) -> int:
    """Return how often a message may come back: what the client wants, or else what its group has.

    `wanted` is what the client's request says, of which only newer ones know the meaning.
    """
    if wanted is not None and client_version >= _VERSION_3_4_9:
        return wanted
    return group.retry_max_times


# --- refusals ------------------------------------------------------------------------------------


def error_header(config: ServiceSettings) -> SendMessageErrorResponse:
    """Return what goes with every refusal of a send."""
    return SendMessageErrorResponse(trace_on=config.trace_on, msg_region=config.region_id)


def broker_forbids(config: ServiceSettings) -> RefusedError:
    return RefusedError(
        ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] sending message is forbidden"
    )


def no_such_topic(name: str) -> RefusedError:
    return RefusedError(
        ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!{SEE_FAQ}"
    )


def no_such_group(name: str) -> RefusedError:
    return RefusedError(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} {SEE_FAQ}"
    )


def illegal_queue(queue_id: int, topic: TopicConfig, producer: str) -> RefusedError:
    return RefusedError(
        ResponseCode.SYSTEM_ERROR,
        f"request queueId[{queue_id}] is illegal, {_describe(topic)} Producer: {producer}",
    )


def illegal_message(body_max: int) -> RefusedError:
    return RefusedError(
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched."
        f" msg body length limit {body_max}B, msg properties length limit 32KB.",
    )


def not_stored(
    result: AppendResult | BatchResult, body_max: int, master: str | None = None
) -> RefusedError:
    """Return the refusal for a message that the store did not take.

    `master` is the address of the master, if this is another known broker.
    """
    status = result.status
    if status is AppendStatus.CREATE_MAPPED_FILE_FAILED:
        return RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"create mapped file failed, server is busy or broken. {result.reason}",
        )
    if status in (AppendStatus.MESSAGE_ILLEGAL, AppendStatus.PROPERTIES_SIZE_EXCEEDED):
        illegal = illegal_message(body_max)
        return RefusedError(illegal.code, f"{illegal.remark} {result.reason}")
    if status is AppendStatus.SERVICE_NOT_AVAILABLE:
        return RefusedError(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "service not available now. It may be caused by one of the following reasons:"
            " the broker's disk is full, messages are put to the slave, message store has been"
            f" shut down, etc. Here: {result.reason}"
            f"{'' if master is None else f'; the master is {master}'}",
        )
    if status is AppendStatus.OS_PAGE_CACHE_BUSY:
        return RefusedError(
            ResponseCode.SYSTEM_ERROR,
            "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
        )
    return RefusedError(ResponseCode.SYSTEM_ERROR, f"{status.value} {result.reason}".rstrip())


def _describe(topic: TopicConfig) -> str:
    """Return a topic in the words of Java's TopicConfig."""
    perm = "".join(
        letter if topic.perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1))
    )
    filter_type = topic.topic_filter_type
    return (
        f"TopicConfig [topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums},"
        f" writeQueueNums={topic.write_queue_nums}, perm={perm},"
        f" topicFilterType={filter_type.value if filter_type else 'null'},"
        f" topicSysFlag={topic.topic_sys_flag}, order={'true' if topic.order else 'false'}]"
    )


def _human_time(time_ms: int) -> str:
    parts = time.localtime(time_ms / 1000)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', parts)},{time_ms % 1000:03d}"
