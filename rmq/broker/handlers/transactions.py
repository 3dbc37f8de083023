"""Ends of transactions: END_TRANSACTION (37), and RESUME_CHECK_HALF_MESSAGE (323).

Producers send their decisions one-way, so responses are for clients that want one, and refusals are
logged. Codes and remarks are those of RocketMQ 4.9.8 EndTransactionProcessor and
AdminBrokerProcessor.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

from rmq.broker.config import BrokerRole
from rmq.broker.transactions import half
from rmq.errors import RefusedError
from rmq.model import flags
from rmq.model.names import HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC
from rmq.model.record import parse_message_id
from rmq.remoting.codes import ResponseCode
from rmq.remoting.groups import HandlerGroup
from rmq.remoting.protocol import Requests
from rmq.store.append import AppendStatus

if TYPE_CHECKING:
    from rmq.broker.config import LiveConfig
    from rmq.broker.sending.acknowledgement import Acknowledger
    from rmq.broker.stats.store import StoreStats
    from rmq.broker.transactions.decisions import Decisions
    from rmq.model.record import StoredRecord
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.headers import EndTransactionRequest, ResumeCheckHalfMessageRequest
    from rmq.remoting.request import Request
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)

END_TRANSACTION: Final = HandlerGroup(
    name="end_transaction", concurrency=1, capacity=100_000, per_connection=50_000
)

_NO_HALF: Final = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
_NOT_PUT: Final = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
_HALF_TOPICS: Final = (HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC)


@final
class TransactionHandlers:
    """Takes decisions about half messages, and orders to ask about them again."""

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        decisions: Decisions,
        acknowledger: Acknowledger,
        store_stats: StoreStats,
    ) -> None:
        self._live = live
        self._store = store
        self._decisions = decisions
        self._acknowledger = acknowledger
        self._store_stats = store_stats

    def add_to(self, table: HandlerTable) -> None:
        table.add(Requests.END_TRANSACTION, self.end_transaction, group=END_TRANSACTION)
        table.add(Requests.RESUME_CHECK_HALF_MESSAGE, self.resume_check)

    def end_transaction(self, request: Request[EndTransactionRequest]) -> None:
        """37 END_TRANSACTION: a producer's decision, or that it cannot decide yet."""
        header = request.header
        decision = header.commit_or_rollback
        if self._live.current.role is BrokerRole.SLAVE:
            request.channel.warn(
                "transaction", "%s ends a transaction at a slave", request.channel.peer
            )
            request.reply(code=ResponseCode.SLAVE_NOT_AVAILABLE)
            return
        if decision == flags.TRANSACTION_NONE:
            request.channel.log(
                logging.INFO,
                "unknown outcome",
                "%s does not know the outcome of half message %d yet: %s",
                request.channel.peer,
                header.tran_state_table_offset,
                request.command.remark,
            )
            return
        try:
            if decision == flags.TRANSACTION_COMMIT:
                self._decisions.commit(header)
            elif decision == flags.TRANSACTION_ROLLBACK:
                self._decisions.roll_back(header)
            else:
                return
        except RefusedError as exc:
            request.channel.warn(
                "transaction",
                "%s of group %s cannot end half message %d at physical offset %d: %s",
                request.channel.peer,
                header.producer_group,
                header.tran_state_table_offset,
                header.commit_log_offset,
                exc.remark,
            )
            raise
        request.reply()

    def resume_check(self, request: Request[ResumeCheckHalfMessageRequest]) -> None:
        """323 RESUME_CHECK_HALF_MESSAGE: ask about a half message again, as if for the first time.

        It may be one that was given up. Unlike 4.9.8 no other message is taken: it could never be
        ended as a transaction.
        """
        if self._live.current.role is BrokerRole.SLAVE:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, _NOT_PUT)
        record = self._find(request.header.msg_id)
        if record is None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, _NO_HALF)
        (result,) = self._store.append([half.resumed(record)])
        if result.status is not AppendStatus.PUT_OK:
            self._store_stats.put_failed()
            logger.error("half message not put back: %s %s", result.status.value, result.reason)
            raise RefusedError(ResponseCode.SYSTEM_ERROR, _NOT_PUT)
        self._store_stats.put(1, result.size)
        logger.info("half message %s is asked about again", request.header.msg_id)
        if self._acknowledger.is_immediate:
            request.reply()
            return
        request.defer()

        def answer(status: AppendStatus) -> None:
            if status is AppendStatus.PUT_OK:
                request.reply()
            else:
                request.reply(code=ResponseCode.SYSTEM_ERROR, remark=_NOT_PUT)

        self._acknowledger.when_safe(result.end_offset, answer)

    def _find(self, message_id: str | None) -> StoredRecord | None:
        try:
            _, offset = parse_message_id(message_id or "")
        except ValueError:
            return None
        record = self._store.reads.record_at(offset) if offset >= 0 else None
        return record if record is not None and record.topic in _HALF_TOPICS else None
