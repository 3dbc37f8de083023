"""What each request needs of the account that signed it: one line for every request code. Pure.

`NEEDS` holds them by code. What RocketMQ 4.9.8 asks for is asked for here, with the same resources.
Where that would let one account change or destroy what belongs to others, more is asked, and
`stock` says what 4.9.8 asks for. Accounts of tools (`mqadmin`, dashboards) have admin rights by
RocketMQ's own manual, so stock tools and clients work unchanged.

Resources are read from the fields and bodies that the handlers read, by the same readers.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from rmq.access.permissions import PUB, SUB
from rmq.model.names import REPLY_SUFFIX, RETRY_PREFIX, retry_topic
from rmq.remoting.bodies import HeartbeatData, LockBatchRequestBody, UnlockBatchRequestBody
from rmq.remoting.bodies.base import REQUEST_LENIENT_BYTES_MAX, Body
from rmq.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq.access.accounts import Resource

B = TypeVar("B", bound=Body)

_Resources: TypeAlias = "Callable[[Mapping[str, str], bytes | None], tuple[Resource, ...]]"
"""Finds what a request needs permission for, in its header fields and its body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a request needs beside an account and its signature."""

    is_admin: bool = False
    """Whether the account must have admin rights."""
    resources: _Resources | None = None
    fields: tuple[str, ...] = ()
    """The header fields that say what the resources are; none if the body says it, too."""
    shown: str = ""
    """The resources in words, for the documentation."""
    stock: str | None = None
    """What 4.9.8 asks for, where that is less."""
    is_for_clients: bool = False
    """Whether brokers send it to clients: no server serves it, and it needs nothing."""

    @property
    def is_told_by_fields(self) -> bool:
        """Whether `fields` alone decide, for an account, whether it may make the request."""
        return not self.is_admin and (self.resources is None or bool(self.fields))


def _send(topic_field: str) -> _Resources:
    def resources(fields: Mapping[str, str], body: bytes | None) -> tuple[Resource, ...]:
        topic = fields.get(topic_field)
        if topic is None:
            return ()
        return ((topic, SUB if topic.startswith(RETRY_PREFIX) else PUB),)

    return resources


def _reply(topic_field: str) -> _Resources:
    """A reply is stored in the topic it names: in one for replies by any account, as in 4.9.8."""
    send = _send(topic_field)

    def resources(fields: Mapping[str, str], body: bytes | None) -> tuple[Resource, ...]:
        is_plain = fields.get(topic_field, "").endswith(REPLY_SUFFIX)
        return () if is_plain else send(fields, body)

    return resources


def _reads(*, topic: str | None = None, group: str | None = None) -> _Resources:
    """SUB on what the fields of these names say; a field that is not there needs nothing."""

    def resources(fields: Mapping[str, str], body: bytes | None) -> tuple[Resource, ...]:
        found: list[Resource] = []
        if topic is not None and (name := fields.get(topic)) is not None:
            found.append((name, SUB))
        if group is not None and (name := fields.get(group)) is not None:
            found.append((retry_topic(name), SUB))
        return tuple(found)

    return resources


def _heartbeat(fields: Mapping[str, str], body: bytes | None) -> tuple[Resource, ...]:
    found: dict[str, int] = {}
    for consumer in _read(HeartbeatData, body).consumer_data_set:
        found[retry_topic(consumer.group_name)] = SUB
        for subscription in consumer.subscription_data_set:
            found[subscription.topic] = SUB
    return tuple(found.items())


def _lock(fields: Mapping[str, str], body: bytes | None) -> tuple[Resource, ...]:
    return ((retry_topic(_read(LockBatchRequestBody, body).consumer_group), SUB),)


def _unlock(fields: Mapping[str, str], body: bytes | None) -> tuple[Resource, ...]:
    return ((retry_topic(_read(UnlockBatchRequestBody, body).consumer_group), SUB),)


def _read(kind: type[B], body: bytes | None) -> B:
    return kind.decode(body, lenient_bytes_max=REQUEST_LENIENT_BYTES_MAX)


_STOCK_ACCOUNT: Final = "an account"
_STOCK_UNKNOWN: Final = "does not know it"
_STOCK_NAMESERVER: Final = "nothing: its nameserver has no access control"

_ACCOUNT: Final = Need()
_NAMESERVER_ACCOUNT: Final = Need(stock=_STOCK_NAMESERVER)
_STOCK_ADMIN: Final = Need(is_admin=True)
_ADMIN: Final = Need(is_admin=True, stock=_STOCK_ACCOUNT)
_NAMESERVER_ADMIN: Final = Need(is_admin=True, stock=_STOCK_NAMESERVER)
_OWN: Final = Need(stock=_STOCK_UNKNOWN)
_OWN_ADMIN: Final = Need(is_admin=True, stock=_STOCK_UNKNOWN)
_NOT_SERVED: Final = Need(is_admin=True, stock="serves it nowhere, and nor does rmq")
_FOR_CLIENTS: Final = Need(is_for_clients=True)

_SEND_SHOWN: Final = "PUB on the topic; on a retry topic SUB on its group"
_SEND_STOCK: Final = "the same; on a retry topic SUB on the group that the sender names"

_REPLY_SHOWN: Final = f"PUB on the topic, unless its name ends in {REPLY_SUFFIX}"


def _send_need(topic: str, *, stock: str) -> Need:
    return Need(resources=_send(topic), fields=(topic,), shown=_SEND_SHOWN, stock=stock)


def _reply_need(topic: str) -> Need:
    return Need(resources=_reply(topic), fields=(topic,), shown=_REPLY_SHOWN, stock=_STOCK_ACCOUNT)


def _read_need(shown: str, *, topic: str | None = None, group: str | None = None) -> Need:
    fields = tuple(name for name in (topic, group) if name is not None)
    return Need(resources=_reads(topic=topic, group=group), fields=fields, shown=shown)


_C: Final = RequestCode
_TABLE: Final[dict[int, Need]] = {
    _C.SEND_MESSAGE: _send_need("topic", stock=_SEND_STOCK),
    _C.PULL_MESSAGE: _read_need("SUB on topic and group", topic="topic", group="consumerGroup"),
    _C.QUERY_MESSAGE: _read_need("SUB on the topic", topic="topic"),
    _C.QUERY_BROKER_OFFSET: _NOT_SERVED,
    _C.QUERY_CONSUMER_OFFSET: _ACCOUNT,
    _C.UPDATE_CONSUMER_OFFSET: _read_need(
        "SUB on topic and group", topic="topic", group="consumerGroup"
    ),
    _C.UPDATE_AND_CREATE_TOPIC: _STOCK_ADMIN,
    _C.GET_ALL_TOPIC_CONFIG: _ACCOUNT,
    _C.GET_TOPIC_CONFIG_LIST: _NOT_SERVED,
    _C.GET_TOPIC_NAME_LIST: _NOT_SERVED,
    _C.UPDATE_BROKER_CONFIG: _STOCK_ADMIN,
    _C.GET_BROKER_CONFIG: _ACCOUNT,
    _C.TRIGGER_DELETE_FILES: _NOT_SERVED,
    _C.GET_BROKER_RUNTIME_INFO: _ACCOUNT,
    _C.SEARCH_OFFSET_BY_TIMESTAMP: _ACCOUNT,
    _C.GET_MAX_OFFSET: _ACCOUNT,
    _C.GET_MIN_OFFSET: _ACCOUNT,
    _C.GET_EARLIEST_MSG_STORETIME: _ACCOUNT,
    _C.VIEW_MESSAGE_BY_ID: _ACCOUNT,
    _C.HEART_BEAT: Need(
        resources=_heartbeat, shown="SUB on every consumer group and its topics in the body"
    ),
    _C.UNREGISTER_CLIENT: _read_need(
        "SUB on the consumer group, if one is named", group="consumerGroup"
    ),
    _C.CONSUMER_SEND_MSG_BACK: _read_need("SUB on the group", group="group"),
    _C.END_TRANSACTION: _ACCOUNT,
    _C.GET_CONSUMER_LIST_BY_GROUP: _read_need("SUB on the group", group="consumerGroup"),
    _C.CHECK_TRANSACTION_STATE: _FOR_CLIENTS,
    _C.NOTIFY_CONSUMER_IDS_CHANGED: _FOR_CLIENTS,
    _C.LOCK_BATCH_MQ: Need(resources=_lock, shown="SUB on the group", stock=_STOCK_ACCOUNT),
    _C.UNLOCK_BATCH_MQ: Need(resources=_unlock, shown="SUB on the group", stock=_STOCK_ACCOUNT),
    _C.GET_ALL_CONSUMER_OFFSET: _ACCOUNT,
    _C.GET_ALL_DELAY_OFFSET: _ACCOUNT,
    _C.CHECK_CLIENT_CONFIG: _ACCOUNT,
    _C.UPDATE_AND_CREATE_ACL_CONFIG: _ADMIN,
    _C.DELETE_ACL_CONFIG: _ADMIN,
    _C.GET_BROKER_CLUSTER_ACL_INFO: _ACCOUNT,
    _C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _ADMIN,
    _C.PUT_KV_CONFIG: _NAMESERVER_ADMIN,
    _C.GET_KV_CONFIG: _NAMESERVER_ACCOUNT,
    _C.DELETE_KV_CONFIG: _NAMESERVER_ADMIN,
    _C.REGISTER_BROKER: _NAMESERVER_ADMIN,
    _C.UNREGISTER_BROKER: _NAMESERVER_ADMIN,
    _C.GET_ROUTEINFO_BY_TOPIC: _NAMESERVER_ACCOUNT,
    _C.GET_BROKER_CLUSTER_INFO: _NAMESERVER_ACCOUNT,
    _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _STOCK_ADMIN,
    _C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _ACCOUNT,
    _C.GET_TOPIC_STATS_INFO: _ACCOUNT,
    _C.GET_CONSUMER_CONNECTION_LIST: _ACCOUNT,
    _C.GET_PRODUCER_CONNECTION_LIST: _ACCOUNT,
    _C.WIPE_WRITE_PERM_OF_BROKER: _NAMESERVER_ADMIN,
    _C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _NAMESERVER_ACCOUNT,
    _C.DELETE_SUBSCRIPTIONGROUP: _STOCK_ADMIN,
    _C.GET_CONSUME_STATS: _ACCOUNT,
    _C.SUSPEND_CONSUMER: _NOT_SERVED,
    _C.RESUME_CONSUMER: _NOT_SERVED,
    _C.RESET_CONSUMER_OFFSET_IN_CONSUMER: _NOT_SERVED,
    _C.RESET_CONSUMER_OFFSET_IN_BROKER: _NOT_SERVED,
    _C.ADJUST_CONSUMER_THREAD_POOL: _NOT_SERVED,
    _C.WHO_CONSUME_THE_MESSAGE: _NOT_SERVED,
    _C.DELETE_TOPIC_IN_BROKER: _STOCK_ADMIN,
    _C.DELETE_TOPIC_IN_NAMESRV: _NAMESERVER_ADMIN,
    _C.GET_KVLIST_BY_NAMESPACE: _NAMESERVER_ACCOUNT,
    _C.RESET_CONSUMER_CLIENT_OFFSET: _FOR_CLIENTS,
    _C.GET_CONSUMER_STATUS_FROM_CLIENT: _FOR_CLIENTS,
    _C.INVOKE_BROKER_TO_RESET_OFFSET: _ADMIN,
    _C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _ACCOUNT,
    _C.GET_TOPICS_BY_CLUSTER: _NAMESERVER_ACCOUNT,
    _C.QUERY_TOPIC_CONSUME_BY_WHO: _ACCOUNT,
    _C.REGISTER_FILTER_SERVER: _ADMIN,
    _C.REGISTER_MESSAGE_FILTER_CLASS: _NOT_SERVED,
    _C.QUERY_CONSUME_TIME_SPAN: _ACCOUNT,
    _C.GET_SYSTEM_TOPIC_LIST_FROM_NS: _NAMESERVER_ACCOUNT,
    _C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _ACCOUNT,
    _C.CLEAN_EXPIRED_CONSUMEQUEUE: _ADMIN,
    _C.GET_CONSUMER_RUNNING_INFO: _ACCOUNT,
    _C.QUERY_CORRECTION_OFFSET: _ACCOUNT,
    _C.CONSUME_MESSAGE_DIRECTLY: _ADMIN,
    _C.SEND_MESSAGE_V2: _send_need("b", stock=_SEND_STOCK),
    _C.GET_UNIT_TOPIC_LIST: _NAMESERVER_ACCOUNT,
    _C.GET_HAS_UNIT_SUB_TOPIC_LIST: _NAMESERVER_ACCOUNT,
    _C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _NAMESERVER_ACCOUNT,
    _C.CLONE_GROUP_OFFSET: _ADMIN,
    _C.VIEW_BROKER_STATS_DATA: _ACCOUNT,
    _C.CLEAN_UNUSED_TOPIC: _ADMIN,
    _C.GET_BROKER_CONSUME_STATS: _ACCOUNT,
    _C.UPDATE_NAMESRV_CONFIG: _NAMESERVER_ADMIN,
    _C.GET_NAMESRV_CONFIG: _NAMESERVER_ACCOUNT,
    _C.SEND_BATCH_MESSAGE: _send_need("b", stock=_STOCK_ACCOUNT),
    _C.QUERY_CONSUME_QUEUE: _ACCOUNT,
    _C.QUERY_DATA_VERSION: _NAMESERVER_ADMIN,
    _C.RESUME_CHECK_HALF_MESSAGE: _ADMIN,
    _C.SEND_REPLY_MESSAGE: _reply_need("topic"),
    _C.SEND_REPLY_MESSAGE_V2: _reply_need("b"),
    _C.PUSH_REPLY_MESSAGE_TO_CLIENT: _FOR_CLIENTS,
    _C.ADD_WRITE_PERM_OF_BROKER: _NAMESERVER_ADMIN,
    _C.GET_ALL_PRODUCER_INFO: _ACCOUNT,
    _C.DELETE_EXPIRED_COMMITLOG: _ADMIN,
    _C.HA_STATUS: _OWN,
    _C.HA_PROMOTE: _OWN_ADMIN,
    _C.HA_DEMOTE: _OWN_ADMIN,
    _C.HA_RESYNC: _OWN_ADMIN,
    _C.HA_DIGESTS: _OWN_ADMIN,
    _C.HA_STEP_DOWN: _OWN_ADMIN,
    _C.HA_FENCE: _OWN_ADMIN,
    _C.HA_RENOUNCE: _OWN_ADMIN,
    _C.HA_FORGET: _OWN_ADMIN,
    _C.HA_RECORDS: _OWN_ADMIN,
}

NEEDS: Final[Mapping[int, Need]] = MappingProxyType(_TABLE)
"""What each request needs, by code."""
