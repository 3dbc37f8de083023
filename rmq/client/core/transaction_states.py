"""What a producer says of a transaction. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from rmq.errors import BadAnswerError
from rmq.model.flags import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from rmq.model.record import parse_message_id
from rmq.remoting.headers import EndTransactionRequest

if TYPE_CHECKING:
    from rmq.client.core.messages import SendResult
    from rmq.remoting.headers import CheckTransactionStateRequest


class TransactionState(enum.Enum):
    """The state of a local transaction, as the listener or the caller sees it."""

    COMMIT = TRANSACTION_COMMIT
    """Consumers get the message."""
    ROLLBACK = TRANSACTION_ROLLBACK
    """Nobody gets it."""
    UNKNOWN = TRANSACTION_NONE
    """Not decided yet: the broker asks again later."""

    @property
    def java_name(self) -> str:
        """The name that stock clients and traces use."""
        return _JAVA_NAMES[self]


_JAVA_NAMES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}


def end_of_own(group: str, result: SendResult, state: TransactionState) -> EndTransactionRequest:
    """Return a producer's own decision about its half message; raise `BadAnswerError`."""
    try:
        _, physical_offset = parse_message_id(result.offset_message_id)
    except ValueError as exc:
        raise BadAnswerError(result.queue.broker_name, "a half message", str(exc)) from exc
    return EndTransactionRequest(
        producer_group=group,
        tran_state_table_offset=result.queue_offset,
        commit_log_offset=physical_offset,
        commit_or_rollback=state.value,
        msg_id=result.message_id,
        broker_name=result.queue.broker_name,
    )


def end_of_checked(
    group: str,
    header: CheckTransactionStateRequest,
    message_id: str,
    state: TransactionState,
) -> EndTransactionRequest:
    """Return the answer to a broker's question."""
    return EndTransactionRequest(
        producer_group=group,
        tran_state_table_offset=header.tran_state_table_offset,
        commit_log_offset=header.commit_log_offset,
        commit_or_rollback=state.value,
        from_transaction_check=True,
        msg_id=message_id,
        transaction_id=header.transaction_id,
        broker_name=header.broker_name,
    )
