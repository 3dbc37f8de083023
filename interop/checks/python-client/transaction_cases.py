"""Transactions: decided by ours, by a stock producer, and by whoever the broker asks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

from inbox import Inbox
from our_messages import as_received, ours

from interop.support.cases import expect, expect_true
from interop.support.expectations import expect_once, expect_same, numbered
from interop.support.java_messages import Outgoing
from interop.support.java_transactions import (
    CHECK_STATES,
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    transaction_producer,
)
from interop.support.waiting import wait_until
from rmq.client.core.messages import TransactionState
from rmq.client.trio.opening import open_transaction_producer
from rmq.model import flags

if TYPE_CHECKING:
    from python_session import PythonSession

    from interop.support.java_messages import Received
    from rmq.client.core.messages import Message, SendResult
    from rmq.client.core.received import ReceivedMessage

PART: Final = "transaction"
STATES: Final = {
    COMMIT: TransactionState.COMMIT,
    ROLLBACK: TransactionState.ROLLBACK,
    UNKNOWN: TransactionState.UNKNOWN,
}
# Brokers ask after 1 s, and look every 2 s.
CHECKED_WITHIN_S: Final = 20


@final
class Checker:
    """Answers brokers as the property `checkStates` of a message says, as the stock one does."""

    def __init__(self) -> None:
        self.asked: list[Received] = []
        self._times: Counter[str] = Counter()

    async def __call__(self, message: ReceivedMessage) -> TransactionState:
        self.asked.append(as_received(message))
        self._times[message.message_id] += 1
        states = message.properties[CHECK_STATES].split(",")
        return STATES[states[min(self._times[message.message_id], len(states)) - 1]]


async def run_transaction_cases(session: PythonSession) -> None:
    await _ours(session)
    await _ours_checked(session)
    await _theirs(session)
    await _for_each_other(session)


async def _ours(session: PythonSession) -> None:
    await session.create_topic("PyTransaction")
    committed, rolled_back, by_hand = numbered("PyTransaction", 3, tags="TagA")
    checker = Checker()
    async with (
        session.driver.push_consumer("tx", group="tx", topic="PyTransaction") as stock,
        open_transaction_producer(session.config(), "py-transactions", checker) as producer,
    ):
        with session.operation(PART, "ours commits: a stock consumer gets it, and only then"):

            async def execute(message: Message, result: SendResult) -> TransactionState:
                await stock.look()
                expect("before the decision", stock.received, [])
                expect_true("an answer", result.is_ok)
                return TransactionState.COMMIT

            result = await producer.send(ours(committed), execute)
            expect("error", result.error, None)
            expect("state", result.state, TransactionState.COMMIT)
            (found,) = await stock.wait_received(1)
            expect_same(found, committed)
            expect("unique id", found.message_id, result.message_id)
            expect("flag", found.sys_flag & flags.TRANSACTION_MASK, flags.TRANSACTION_COMMIT)

        with session.operation(PART, "ours rolls back: nobody gets it; and commits by hand"):
            half = await producer.begin(ours(rolled_back))
            await half.rollback()
            half = await producer.begin(ours(by_hand))
            await half.commit()
            expect_once(await stock.wait_received(2), [committed, by_hand])


async def _ours_checked(session: PythonSession) -> None:
    with session.operation(PART, "ours is asked by the broker: commit, rollback, later"):
        await session.create_topic("PyChecked")
        states = [COMMIT, ROLLBACK, f"{UNKNOWN},{COMMIT}"]
        messages = [
            Outgoing("PyChecked", states.encode(), "TagA", properties={CHECK_STATES: states})
            for states in states
        ]
        checker = Checker()
        async with (
            session.driver.push_consumer("checked", group="checked", topic="PyChecked") as stock,
            open_transaction_producer(session.config(), "py-checked", checker) as producer,
        ):
            for message in messages:
                result = await producer.send(ours(message), _undecided)
                expect("state", result.state, TransactionState.UNKNOWN)
            received = await stock.wait_received(2, timeout_s=CHECKED_WITHIN_S)
            expect_once(received, [messages[0], messages[2]])
            expect("times asked", len(checker.asked), 4)
            for asked in checker.asked:
                expect("topic", asked.topic, "PyChecked")
                expect("tag", asked.tags, "TagA")


def _undecided(message: Message, result: SendResult) -> TransactionState:
    return TransactionState.UNKNOWN


async def _theirs(session: PythonSession) -> None:
    await session.create_topic("PyStockTx")
    inbox = Inbox()
    async with (
        session.push_consumer("py-stock-tx", "PyStockTx", inbox),
        transaction_producer(session.driver, "stock-tx", group="stock-tx") as stock,
    ):
        with session.operation(PART, "a stock producer commits and rolls back, ours consumes"):
            rolled_back, committed = numbered("PyStockTx", 2)
            await stock.send(rolled_back, state=ROLLBACK)
            await stock.send(committed, state=COMMIT)
            (found,) = await inbox.wait(1)
            expect_same(found, committed)
            expect("flag", found.sys_flag & flags.TRANSACTION_MASK, flags.TRANSACTION_COMMIT)

        with session.operation(PART, "a stock producer is asked by the broker, ours consumes"):
            states = f"{UNKNOWN},{COMMIT}"
            message = Outgoing("PyStockTx", b"checked", properties={CHECK_STATES: states})
            await stock.send(message, state=UNKNOWN)
            received = await inbox.wait(2, timeout_s=CHECKED_WITHIN_S)
            expect_once(received, [committed, message])
            expect("times asked", len(await stock.checks()), 2)


async def _for_each_other(session: PythonSession) -> None:
    await session.create_topic("PyOrphans")
    inbox = Inbox()
    by_stock = Outgoing("PyOrphans", b"a stock producer's", properties={CHECK_STATES: COMMIT})
    by_ours = Outgoing("PyOrphans", b"ours", properties={CHECK_STATES: COMMIT})
    async with session.push_consumer("py-orphans", "PyOrphans", inbox):
        with session.operation(PART, "ours is asked about a stock producer's that is gone"):
            async with transaction_producer(session.driver, "orphans", group="orphans") as stock:
                await stock.send(by_stock, state=UNKNOWN)
            checker = Checker()
            # Brokers know a producer by its heartbeats, which go where its topics are.
            async with open_transaction_producer(session.config(), "orphans", checker) as heir:
                await heir.producer.prepare("PyOrphans")
                expect_once(await inbox.wait(1, timeout_s=CHECKED_WITHIN_S), [by_stock])
                expect("asked", [message.body for message in checker.asked], [by_stock.body])

        with session.operation(PART, "a stock producer is asked about ours that is gone"):
            async with open_transaction_producer(session.config(), "orphans", Checker()) as mine:
                await mine.send(ours(by_ours), _undecided)
            async with transaction_producer(session.driver, "heir", group="orphans") as stock_heir:
                # It has to send something to find the broker.
                last = Outgoing("PyOrphans", b"last", properties={CHECK_STATES: ROLLBACK})
                await stock_heir.send(last, state=ROLLBACK)
                received = await inbox.wait(2, timeout_s=CHECKED_WITHIN_S)
                expect_once(received, [by_stock, by_ours])

                async def was_asked() -> bool:
                    return any(m.body == by_ours.body for m in await stock_heir.checks())

                await wait_until("the question", was_asked)
