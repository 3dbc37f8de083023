"""Commits and rolls back half messages as producers decide. Pure but for what it appends.

Checks, codes and remarks are those of RocketMQ 4.9.8 EndTransactionProcessor. A commit stores the
message and then the op message that closes the transaction: they are in one log in this order, so
that no crash can leave a transaction closed whose message is lost. The other way round the
transaction is still open, and its producer is asked again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

from rmq.broker.transactions import half
from rmq.errors import RefusedError
from rmq.model.names import HALF_TOPIC
from rmq.model.offsets import PhysicalOffset
from rmq.remoting.codes import ResponseCode
from rmq.store.append import AppendStatus

if TYPE_CHECKING:
    from rmq.broker.config import LiveConfig
    from rmq.broker.origin import Origin
    from rmq.broker.stats.broker import BrokerStats
    from rmq.broker.transactions.check_round import Store
    from rmq.broker.transactions.copies import HalfCopies
    from rmq.model.record import StoredRecord
    from rmq.remoting.headers import EndTransactionRequest
    from rmq.store.append import AppendResult

logger = logging.getLogger(__name__)

_NOT_FOUND: Final = "Find prepared transaction message failed"
_REFUSALS: Final = {
    AppendStatus.CREATE_MAPPED_FILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "Create mapped file failed.",
    ),
    AppendStatus.SERVICE_NOT_AVAILABLE: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "Service not available now.",
    ),
    AppendStatus.OS_PAGE_CACHE_BUSY: (
        ResponseCode.SYSTEM_ERROR,
        "OS page cache busy, please try another machine",
    ),
}
_ILLEGAL: Final = (AppendStatus.MESSAGE_ILLEGAL, AppendStatus.PROPERTIES_SIZE_EXCEEDED)


@final
class Decisions:
    """Ends transactions."""

    def __init__(
        self,
        live: LiveConfig,
        store: Store,
        copies: HalfCopies,
        stats: BrokerStats,
        origin: Origin,
    ) -> None:
        self._live = live
        self._store = store
        self._copies = copies
        self._stats = stats
        self._store_stats = stats.store
        self._store_host = origin.store_host
        self._now_ms = origin.now_ms

    def commit(self, header: EndTransactionRequest) -> None:
        """Give a half message to consumers; raise `RefusedError`."""
        record = self._find(header)
        transaction = self._copies.find(record.queue_offset)
        if transaction is not None and transaction.is_committed:
            logger.info(
                "the half message at offset %d of group %s was committed before",
                record.queue_offset,
                header.producer_group,
            )
            self._close(record)
            return
        home = half.home_of(record.properties)
        if home is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, "The prepared message does not say where it belongs"
            )
        levels = len(self._live.current.store.delay_levels_ms)
        message = half.committed(record, home, levels)
        (result,) = self._store.append([message])
        if result.status is not AppendStatus.PUT_OK:
            self._store_stats.put_failed()
            logger.error(
                "the half message at offset %d cannot be committed: %s %s",
                record.queue_offset,
                result.status.value,
                result.reason,
            )
            raise self._refusal(result)
        self._stats.put(message.topic, message.queue_id, 1, result.size)
        self._stats.broker_put(1)
        self._store_stats.put(1, result.size)
        self._stats.transactions.committed(home.topic, self._now_ms() - record.store_ms)
        if transaction is not None:
            transaction.is_committed = True
        self._close(record)

    def roll_back(self, header: EndTransactionRequest) -> None:
        """Roll a half message back; raise `RefusedError`."""
        record = self._find(header)
        self._close(record)
        home = half.home_of(record.properties)
        if home is not None:
            self._stats.transactions.rolled_back(home.topic)

    def _find(self, header: EndTransactionRequest) -> StoredRecord:
        offset = PhysicalOffset(header.commit_log_offset)
        record = self._store.reads.record_at(offset) if offset >= 0 else None
        # A message that was committed still has all the marks of a half one.
        if record is None or record.topic != HALF_TOPIC:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        if record.properties.get(half.PRODUCER_GROUP) != header.producer_group:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if record.queue_offset != header.tran_state_table_offset:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"
            )
        return record

    def _close(self, record: StoredRecord) -> None:
        """Note that a half message, or the copy that stands for it, is decided."""
        transaction = self._copies.find(record.queue_offset)
        offset = record.queue_offset if transaction is None else transaction.latest
        message = half.op_message(offset, self._now_ms(), self._store_host)
        (result,) = self._store.append([message])
        if result.status is AppendStatus.PUT_OK:
            self._store_stats.put(1, result.size)
        else:
            self._store_stats.put_failed()
            logger.error(
                "the half message at offset %d is decided, but that cannot be stored (%s %s);"
                " its producer will be asked again",
                offset,
                result.status.value,
                result.reason,
            )

    def _refusal(self, result: AppendResult) -> RefusedError:
        if result.status in _ILLEGAL:
            limit = self._live.current.store.message_bytes_max
            return RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                "The message is illegal, maybe msg body or properties length not matched."
                f" msg body length limit {limit}B, msg properties length limit 32KB.",
            )
        code, remark = _REFUSALS.get(
            result.status, (ResponseCode.SYSTEM_ERROR, AppendStatus.UNKNOWN_ERROR.value)
        )
        return RefusedError(code, remark)
