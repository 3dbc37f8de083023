"""Messages as applications see them: what is sent, its results, and what is received. Pure.

Names and limits are those of RocketMQ 4.9.8. What a broker would refuse is refused here, before
anything is sent. The states of transactions, and what a producer tells brokers of them, are here
as well.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from rmq.errors import BadAnswerError, IllegalMessageError
from rmq.model.flags import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from rmq.model.name_rules import GROUP_CHARS_MAX, LEGAL, TOPIC_CHARS_MAX
from rmq.model.properties import KEY_SEPARATOR
from rmq.model.queues import MessageQueue
from rmq.model.record import parse_message_id
from rmq.remoting.headers import EndTransactionRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.remoting.headers import CheckTransactionStateRequest

BODY_BYTES_MAX: Final = 4 * 1024**2
"""As brokers have it when `maxMessageSize` is not set."""
DELAY_LEVEL_MAX: Final = 18

# fmt: off
RESERVED: Final = frozenset(
    (
        "TRACE_ON", "MSG_REGION", "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC",
        "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID",
        "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME",
        "UNIQ_KEY", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "INSTANCE_ID",
        "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER",
        "MSG_TYPE", "INNER_MULTI_QUEUE_OFFSET",
    )
)
# fmt: on
"""Properties that belong to the system; an application may not set them."""


class Message(msgspec.Struct, frozen=True):
    """A message to be sent. It is checked when it is made."""

    topic: str
    body: bytes
    tag: str | None = msgspec.field(default=None)
    """Consumers subscribe by it."""
    keys: Sequence[str] = ()
    """Operators find the message by them; a key has no blanks. Text alone is one key."""
    delay_level: int = 0
    """1 to 18 stand for 1 s to 2 h as the broker is configured; 0 delivers at once."""
    properties: dict[str, str] = {}
    """The application's own; SQL filters see them."""
    flag: int = 0
    """A number for the application, untouched by brokers."""
    waits_stored: bool = True
    """Whether the answer waits for disk and slaves as the broker is configured."""

    def __post_init__(self) -> None:
        check_topic(self.topic)
        if not isinstance(self.body, bytes):
            raise IllegalMessageError(
                f"the body is {type(self.body).__name__}, not bytes",
                hint="encode text yourself: text.encode()",
            )
        if not self.body:
            raise IllegalMessageError("the body is empty, which brokers refuse")
        if not 0 <= self.delay_level <= DELAY_LEVEL_MAX:
            raise IllegalMessageError(f"delay level {self.delay_level} is not 0 to 18")
        if self.tag is not None and "||" in self.tag:
            raise IllegalMessageError(
                f"tag {self.tag!r} has || in it, which subscriptions split at"
            )
        if type(self.keys) is not tuple:
            keys = (self.keys,) if isinstance(self.keys, str) else tuple(self.keys)
            msgspec.structs.force_setattr(self, "keys", keys)
        for key in self.keys:
            if not key or KEY_SEPARATOR in key:
                raise IllegalMessageError(
                    f"key {key!r} is empty or has a blank in it",
                    hint="several keys are given as a tuple",
                )
        if self.properties:
            check_properties(self.properties)


class SendStatus(enum.Enum):
    """How a message is stored. In all of these it is; see `docs/ha.md` for the last three."""

    OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendResult(msgspec.Struct, frozen=True):
    """What a broker answered to a send."""

    status: SendStatus
    message_id: str
    """The unique key of the message, of all its messages joined by commas for a batch."""
    offset_message_id: str
    """Where it was stored, likewise."""
    queue: MessageQueue
    queue_offset: int
    """Of the first message of a batch."""
    region: str = "DefaultRegion"
    is_trace_on: bool = True

    @property
    def is_ok(self) -> bool:
        return self.status is SendStatus.OK


def check_topic(topic: str) -> None:
    """Raise `IllegalMessageError` for a name that no topic can have."""
    _check_name("topic", topic, TOPIC_CHARS_MAX)


def check_group(group: str) -> None:
    """Raise `IllegalMessageError` for a name that no group can have."""
    _check_name("group", group, GROUP_CHARS_MAX)
    if group in ("DEFAULT_PRODUCER", "DEFAULT_CONSUMER"):
        raise IllegalMessageError(
            f"group {group} is RocketMQ's own default", hint="choose a name of your own"
        )


# Every message names its topic, and applications have few of them.
@lru_cache(maxsize=1024)
def _check_name(what: str, name: str, chars_max: int) -> None:
    if not name:
        raise IllegalMessageError(f"the {what} has no name")
    if len(name) > chars_max:
        raise IllegalMessageError(
            f"the {what}'s name has {len(name)} characters, above {chars_max}"
        )
    if not LEGAL.fullmatch(name):
        raise IllegalMessageError(
            f"{what} {name!r} has characters other than letters, digits, %, |, _ and -"
        )


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise `IllegalMessageError` for properties that cannot be carried or are not the user's."""
    for name, value in properties.items():
        if name in RESERVED:
            raise IllegalMessageError(f"property {name} belongs to the system")
        if not isinstance(value, str):
            raise IllegalMessageError(f"property {name} is {type(value).__name__}, not str")
        if not name or not value:
            raise IllegalMessageError(
                f"property {name!r}={value!r}: name and value must not be empty"
            )
        if "\x01" in name or "\x02" in name or "\x01" in value or "\x02" in value:
            raise IllegalMessageError(f"property {name!r} has a character 1 or 2 in it")


# --- transactions -------------------------------------------------------------------------------


class TransactionState(enum.Enum):
    """The state of a local transaction, as the listener or the caller sees it."""

    COMMIT = TRANSACTION_COMMIT
    """Consumers get the message."""
    ROLLBACK = TRANSACTION_ROLLBACK
    """The message is dropped."""
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
