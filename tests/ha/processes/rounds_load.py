"""The load of our own client: plain, delayed and transactional messages."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Final

import trio

from rmq.client import Message, TransactionState, open_producer, open_transaction_producer
from rmq.errors import RmqError
from tests.ha.processes.load import TOPIC
from tests.ha.processes.rounds_account import DELAYS_MS, OK, Kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from rmq.client import ReceivedMessage, SendResult
    from rmq.client.tasks.producer import Producer
    from rmq.client.tasks.transactions import TransactionProducer
    from tests.ha.processes.rounds_account import Account

SENDERS: Final = {Kind.PLAIN: 8, Kind.DELAYED: 2, Kind.TRANSACTION: 2}
_PAUSE_S: Final = 0.005
_PAUSE_NOT_OK_S: Final = 0.02


class OurLoad:
    """Producers of our client in this process, with its default settings."""

    @asynccontextmanager
    async def running(
        self, nameserver: str, account: Account
    ) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """See `Load.running`."""
        transactions = _Transactions(account)
        async with (
            open_producer(nameserver, "rounds") as producer,
            open_transaction_producer(
                nameserver, "rounds-transactions", transactions.check
            ) as transacting,
            trio.open_nursery() as nursery,
        ):
            sending = _Sending(account, producer, transacting, transactions)
            for kind, senders in SENDERS.items():
                for _ in range(senders):
                    nursery.start_soon(sending.send_all_the_time, kind)
            yield sending.stop
            nursery.cancel_scope.cancel()


class _Transactions:
    """Remembers how each local transaction ended: every third one is rolled back."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._states: dict[bytes, TransactionState] = {}
        self._count = 0

    def execute(self, message: Message, _result: SendResult) -> TransactionState:
        self._count += 1
        is_committed = self._count % 3 != 0
        state = TransactionState.COMMIT if is_committed else TransactionState.ROLLBACK
        self._states[message.body] = state
        self._account.decided(message.body, is_committed=is_committed)
        return state

    def give_up(self, body: bytes) -> None:
        """Roll back a half message that was not answered SEND_OK."""
        if self._states.setdefault(body, TransactionState.ROLLBACK) is TransactionState.ROLLBACK:
            self._account.decided(body, is_committed=False)

    def check(self, half: ReceivedMessage) -> TransactionState:
        return self._states.get(half.body, TransactionState.UNKNOWN)


class _Sending:
    def __init__(
        self,
        account: Account,
        producer: Producer,
        transacting: TransactionProducer,
        transactions: _Transactions,
    ) -> None:
        self._account = account
        self._producer = producer
        self._transacting = transacting
        self._transactions = transactions
        self._numbers = count(1)
        self._is_over = False
        self._under_way = 0

    async def send_all_the_time(self, kind: Kind) -> None:
        self._under_way += 1
        while not self._is_over:
            number = next(self._numbers)
            body = kind.body(number)
            try:
                result = await self._send(kind, number, body)
            except RmqError as exc:
                self._account.failed(type(exc).__name__)
                if kind is Kind.TRANSACTION:
                    self._transactions.give_up(body)
                pause_s = _PAUSE_NOT_OK_S
            else:
                status = result.status.value
                self._account.sent(kind, body, status, time.monotonic())
                pause_s = _PAUSE_S if status == OK else _PAUSE_NOT_OK_S
            await trio.sleep(pause_s)
        self._under_way -= 1

    async def stop(self) -> None:
        """Send no more, and wait for the answers."""
        self._is_over = True
        while self._under_way:  # noqa: ASYNC110 - told by other tasks of this one
            await trio.sleep(0.01)

    async def _send(self, kind: Kind, number: int, body: bytes) -> SendResult:
        if kind is not Kind.TRANSACTION:
            level = 1 + number % len(DELAYS_MS) if kind is Kind.DELAYED else 0
            return await self._producer.send(Message(TOPIC, body, delay_level=level))
        outcome = await self._transacting.send(Message(TOPIC, body), self._transactions.execute)
        if not outcome.send.is_ok:
            self._transactions.give_up(body)
        return outcome.send
