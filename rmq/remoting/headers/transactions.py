"""Headers of transactions: the producer's decision, and the broker's question when none came."""

from msgspec import field

from rmq.remoting.header import Header, Int32, Int64


class EndTransactionRequest(Header, frozen=True, kw_only=True):
    """37 END_TRANSACTION (one-way): commit or roll back a half message."""

    producer_group: str
    # Queue offset of the half message.
    tran_state_table_offset: Int64
    # Physical offset of the half message.
    commit_log_offset: Int64
    # 0 unknown, 8 commit, 12 rollback.
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    # The client's unique message id. Marked mandatory in Java, but no broker reads it.
    msg_id: str | None = None
    transaction_id: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class CheckTransactionStateRequest(Header, frozen=True, kw_only=True):
    """39 CHECK_TRANSACTION_STATE (one-way, to a producer): commit or roll back a half message?"""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class ResumeCheckHalfMessageRequest(Header, frozen=True, kw_only=True):
    """323 RESUME_CHECK_HALF_MESSAGE: start asking about a half message again, from count 0."""

    msg_id: str | None = None
