"""From a send to the message that the store appends: where it goes, and in which form.

A message may wait elsewhere than it was sent to: a half message until its transaction is decided, a
delayed one until its time has come, and one that came back too often with the dead letters of its
group. The rules are those of RocketMQ 4.9.8 SendMessageProcessor, except that a message which a
client sent to its retry topic once too often goes to the dead-letter topic at once; 4.9.8 means to,
but loses the cleared delay level.

Nothing here does I/O or knows a request. A group that is new may come into being, by the rules of
the table that is asked for it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias, final

import msgspec

from rmq.broker.sending import checks as send_checks
from rmq.broker.sending import properties as inbound
from rmq.errors import RefusedError
from rmq.model import flags
from rmq.model.names import RETRY_PREFIX, dlq_topic
from rmq.model.properties import CLUSTER, PAIR, WAIT, decode_properties, encode_properties
from rmq.model.record import NewMessage, pack_host
from rmq.remoting.bodies import BatchError, BatchMessage, TopicFilterType, decode_batch
from rmq.remoting.codes import ResponseCode
from rmq.remoting.headers import SendMessageRequest, SendMessageRequestV2

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.config.service import ServiceSettings
    from rmq.remoting.bodies import SubscriptionGroupConfig, TopicConfig
    from rmq.store.config import StoreConfig

SendHeader: TypeAlias = SendMessageRequest | SendMessageRequestV2


class ReceivedSend(msgspec.Struct, frozen=True, gc=False):
    """A send, and what is known about its producer."""

    header: SendHeader
    body: bytes | None
    client_version: int
    producer: str
    """Its address as text."""
    born_host: bytes
    """Its address as records hold it."""
    entries: Sequence[BatchMessage] | None = None
    """The messages of a batch, if its body was read already."""


class PreparedSend(msgspec.Struct, frozen=True, gc=False):
    """A send that may be stored."""

    message: NewMessage
    """The message, or what all messages of a batch share."""
    queue_id: int
    """What the response says; the message itself may be stored elsewhere."""
    waits: bool
    entries: Sequence[tuple[int, bytes, bytes]] | None = None
    """Of a batch: flag, body and properties of each message."""
    is_dead_letter: bool = False
    """Its topic is not the one sent to, and may not exist yet."""


@final
class SendPreparation:
    """Prepares sends by the settings of one moment."""

    def __init__(
        self,
        config: ServiceSettings,
        store_config: StoreConfig,
        find_group: Callable[[str], SubscriptionGroupConfig | None],
    ) -> None:
        self._config = config
        self._body_max = store_config.message_bytes_max
        self._level_max = len(store_config.delay_levels_ms)
        self._find_group = find_group
        self._cluster_pair = inbound.cluster_pair(config.cluster_name)

    def prepare(self, send: ReceivedSend, topic: TopicConfig) -> PreparedSend:
        """Return what to store of a send to `topic`; raise `RefusedError`."""
        header = send.header
        queue_id = header.queue_id
        send_checks.check_queue_id(queue_id, topic, send.producer)
        if queue_id < 0:
            if topic.write_queue_nums < 1:
                raise send_checks.illegal_queue(queue_id, topic, send.producer)
            queue_id = random.randrange(topic.write_queue_nums)
        waits = inbound.waits_until_safe(header.properties)
        if header.batch:
            shared, entries = self._batch(send, topic, queue_id)
            return PreparedSend(shared, queue_id, waits, entries)
        received = (header.properties or "").encode("utf-8", "replace")
        message = NewMessage(
            header.topic,
            queue_id,
            send.body or b"",
            inbound.stored_properties(header.properties, self._cluster_pair),
            header.flag,
            header.sys_flag | tag_flag(topic),
            header.born_timestamp,
            send.born_host,
            header.reconsume_times or 0,
        )
        pairs = decode_properties(received)
        if header.topic.startswith(RETRY_PREFIX):
            group = header.topic.removeprefix(RETRY_PREFIX)
            if self._is_given_up(send, group):
                dead = self._dead_letter(message, group, pairs)
                return PreparedSend(dead, queue_id, waits, is_dead_letter=True)
        with_cluster = inbound.joined_properties(received, self._cluster_pair)
        # Clients before 4.6.1 leave the mark on messages that they send again themselves.
        is_retry = message.reconsume_times > 0 and _delay_level(received) > 0
        if pairs.get("TRAN_MSG", "").lower() == "true" and not is_retry:
            if self._config.reject_transaction_messages:
                raise RefusedError(
                    ResponseCode.NO_PERMISSION,
                    f"the broker[{self._config.broker_ip1}] sending transaction message is"
                    " forbidden",
                )
            return PreparedSend(inbound.half(message, with_cluster), queue_id, waits)
        level = _delay_level(received)
        if level > 0 and inbound.is_delayable(message.sys_flag):
            message = inbound.parked(message, level, self._level_max, with_cluster)
        return PreparedSend(message, queue_id, waits)

    def _is_given_up(self, send: ReceivedSend, group_name: str) -> bool:
        """Tell whether a message came back to its group too often."""
        group = self._find_group(group_name)
        if group is None:
            raise send_checks.no_such_group(group_name)
        header = send.header
        times_max = send_checks.attempts_max(group, header.max_reconsume_times, send.client_version)
        return (header.reconsume_times or 0) >= times_max

    def _dead_letter(self, message: NewMessage, group: str, pairs: dict[str, str]) -> NewMessage:
        kept = {name: value for name, value in pairs.items() if name != WAIT}
        kept["DELAY"] = "0"
        kept[CLUSTER] = self._config.cluster_name
        return NewMessage(
            dlq_topic(group),
            0,
            message.body,
            encode_properties(kept),
            message.flag,
            message.sys_flag,
            message.born_ms,
            message.born_host,
            message.reconsume_times,
        )

    def _batch(
        self, send: ReceivedSend, topic: TopicConfig, queue_id: int
    ) -> tuple[NewMessage, Sequence[tuple[int, bytes, bytes]]]:
        """Return what the messages of a batch share, and what each of them has."""
        header, entries = send.header, send.entries
        outer = self.batch_properties(header, send.body)
        if entries is None:
            try:
                entries = decode_batch(send.body)
            except BatchError as exc:
                raise refused_batch(exc) from None
        shared = NewMessage(
            header.topic,
            queue_id,
            b"",
            inbound.joined_properties(outer, self._cluster_pair),
            0,
            header.sys_flag | tag_flag(topic),
            header.born_timestamp,
            send.born_host,
            header.reconsume_times or 0,
        )
        return shared, entries

    def batch_properties(self, header: SendHeader, body: bytes | None) -> bytes:
        """Return what is added to each message of a batch; raise `RefusedError` for what is refused
        before its messages are read.
        """
        outer = (header.properties or "").encode("utf-8", "replace").rstrip(PAIR)
        if header.sys_flag & flags.TRANSACTION_MASK or _delay_level(outer) > 0:
            raise send_checks.illegal_message(self._body_max)
        if body is not None and len(body) > self._body_max:
            raise send_checks.illegal_message(self._body_max)
        return outer


def refused_batch(why: BatchError) -> RefusedError:
    """Return the refusal of a batch that cannot be read."""
    return RefusedError(ResponseCode.MESSAGE_ILLEGAL, str(why))


def pack_peer(peer: str) -> bytes:
    """Return the address of a connection's other end as records hold it."""
    host, _, port = peer.rpartition(":")
    try:
        return pack_host(host.strip("[]").partition("%")[0], int(port))
    except ValueError:
        # A connection within the process has no address.
        return pack_host("127.0.0.1", 0)


def tag_flag(topic: TopicConfig) -> int:
    """Return what a topic adds to the sys flags of its messages."""
    is_multi = topic.topic_filter_type is TopicFilterType.MULTI_TAG
    return flags.MULTI_TAGS if is_multi else 0


def _delay_level(properties: bytes) -> int:
    try:
        return inbound.delay_level(properties)
    except ValueError as exc:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, f"DELAY is no number: {exc}") from None
