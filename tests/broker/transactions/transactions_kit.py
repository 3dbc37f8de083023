"""Half messages in a store in memory, decided and checked by calls; nothing waits.

`Transactions` is the pure part of `rmq.broker.transactions` on a real store: a producer that sends
half messages and decides about them, and rounds of checks one after the other. Time stands still
until a test moves the clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.broker.config import LiveConfig, load_broker_config
from rmq.broker.origin import Origin
from rmq.broker.sending import properties as inbound
from rmq.broker.stats.broker import BrokerStats
from rmq.broker.transactions.check_round import (
    CheckRound,
    CheckRules,
    Progress,
    RoundCounts,
    RoundStart,
)
from rmq.broker.transactions.copies import HalfCopies
from rmq.broker.transactions.decisions import Decisions
from rmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC
from rmq.model.offsets import QueueOffset
from rmq.model.properties import encode_properties
from rmq.model.record import NewMessage, StoredRecord, decode_records, pack_host
from rmq.remoting.headers import EndTransactionRequest
from rmq.store.append import AppendResult, AppendStatus
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import START_MS, Clock, open_core, small_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.broker.transactions.question import Question
    from rmq.store.config import StoreConfig
    from rmq.store.core import StoreCore

TOPIC: Final = "Orders"
GROUP: Final = "order-service"
BORN_HOST: Final = pack_host("192.0.2.7", 40_000)
STORE_HOST: Final = pack_host("192.0.2.1", 10911)
TIMEOUT_MS: Final = 6_000
ROUND_MS: Final = 60_000
RULES: Final = CheckRules(timeout_ms=TIMEOUT_MS, times_max=15, reserved_hours=72)


def half_message(
    body: bytes = b"order",
    *,
    topic: str = TOPIC,
    queue_id: int = 3,
    born_ms: int = START_MS,
    flag: int = 0,
    sys_flag: int = 0,
    properties: Mapping[str, str] | None = None,
) -> NewMessage:
    """Return a half message as a send leaves it in the store."""
    pairs = {"UNIQ_KEY": body.hex(), "TRAN_MSG": "true", "WAIT": "true", "PGROUP": GROUP}
    sent = NewMessage(
        topic, queue_id, body, b"", flag, sys_flag, born_ms, BORN_HOST, reconsume_times=0
    )
    return inbound.half(sent, encode_properties(pairs | dict(properties or {})))


class Transactions:
    """A producer, a store and the rounds."""

    def __init__(
        self,
        storage: MemoryStorage | None = None,
        *,
        config: StoreConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or Clock()
        self.storage = storage if storage is not None else MemoryStorage(now_ms=self.clock)
        self.core: StoreCore = open_core(
            self.storage, config or small_config(segment_bytes=64 * 1024), clock=self.clock
        )
        self.copies = HalfCopies()
        live = LiveConfig(load_broker_config(None, {"storePathRootDir": "/store"}, {}), now_ms=1)
        self.stats = BrokerStats("cluster")
        self.decisions = Decisions(
            live,
            self.core,
            self.copies,
            self.stats,
            Origin(STORE_HOST, self.clock),
        )
        self.rules = RULES
        self.can_give_up = True
        self.progress = Progress(QueueOffset(0), QueueOffset(0))
        self.questions: list[Question] = []
        self.reads: list[tuple[str, int]] = []

    # --- the producer ------------------------------------------------------------------------

    def put(self, message: NewMessage) -> AppendResult:
        (result,) = self.core.append([message])
        assert result.status is AppendStatus.PUT_OK, result
        return result

    def send(
        self,
        body: bytes = b"order",
        *,
        age_ms: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
        **properties: str,
    ) -> int:
        """Send a half message; return its queue offset."""
        born_ms = self.clock.ms - age_ms
        message = half_message(
            body, born_ms=born_ms, flag=flag, sys_flag=sys_flag, properties=properties
        )
        return self.put(message).queue_offset

    def end(self, half_offset: int) -> EndTransactionRequest:
        """Return the header with which a producer ends the transaction of a half message."""
        record = self.halves()[half_offset]
        return EndTransactionRequest(
            producer_group=GROUP,
            tran_state_table_offset=half_offset,
            commit_log_offset=record.physical_offset,
            commit_or_rollback=8,
        )

    def commit(self, half_offset: int) -> None:
        self.decisions.commit(self.end(half_offset))

    def roll_back(self, half_offset: int) -> None:
        self.decisions.roll_back(self.end(half_offset))

    # --- rounds ------------------------------------------------------------------------------

    def begin(self) -> CheckRound:
        return CheckRound(
            self.core,
            self.copies,
            self.rules,
            RoundStart(self.progress, at_ms=self.clock.ms, can_give_up=self.can_give_up),
            store_host=STORE_HOST,
            ask=self.questions.append,
            counted=lambda topic, count, _size: self.reads.append((topic, count)),
        )

    def check(self) -> RoundCounts:
        """Make a round; tell what it did."""
        checking = self.begin()
        while checking.step(self.clock.ms):
            pass
        self.progress = checking.progress
        return checking.counts

    def check_later(self, ms: int = ROUND_MS) -> RoundCounts:
        """Let time pass and make a round."""
        self.clock.ms += ms
        return self.check()

    def asked(self) -> list[tuple[str | None, int]]:
        """Return the unique keys and half offsets that producers were asked about since."""
        found = [
            (each.header.msg_id, each.header.tran_state_table_offset) for each in self.questions
        ]
        self.questions.clear()
        return found

    # --- the store ---------------------------------------------------------------------------

    def records(self, topic: str, queue_id: int = 0) -> list[StoredRecord]:
        found: list[StoredRecord] = []
        while views := self.core.reads.get(topic, queue_id, QueueOffset(len(found)), 32).records:
            found += (record for view in views for record in decode_records(view))
        return found

    def halves(self) -> list[StoredRecord]:
        return self.records(HALF_TOPIC)

    def ops(self) -> list[bytes]:
        """Return the half offsets that are noted as decided, as texts."""
        return [record.body for record in self.records(OP_HALF_TOPIC)]

    def delivered(self) -> list[bytes]:
        return [record.body for record in self.records(TOPIC, 3)]

    def given_up(self) -> list[bytes]:
        return [record.body for record in self.records(TRANSACTION_CHECK_MAX_TOPIC)]
