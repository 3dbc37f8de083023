"""Transactions: a message that consumers get only if a local transaction succeeds.

    async with open_transaction_producer("10.0.0.5:9876", "orders", check) as producer:
        result = await producer.send(message, book_order)

A half message is stored first, which no consumer sees. Then the local transaction runs, and the
broker is told the outcome. That telling is one-way and may be lost with either side, so a
broker asks about half messages that stay undecided; `check` has to know the answer, from a
database say. It may be asked by any member of the group.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, Unpack, final

import anyio
import msgspec

from rmq.client.core.flows import Flow, Tell
from rmq.client.core.messages import (
    Message,
    SendResult,
    TransactionState,
    end_of_checked,
    end_of_own,
)
from rmq.client.core.producing.config import ProducerConfig, ProducerOptions
from rmq.client.core.producing.delivery import no_master
from rmq.client.core.received import ReceivedMessage, received
from rmq.client.core.trace import TransactionEnded
from rmq.client.tasks.client import open_client
from rmq.client.tasks.producer import Producer
from rmq.client.tasks.tracing import TraceRole, traced
from rmq.errors import ClientError
from rmq.model.clock import system_ms
from rmq.model.names import MASTER_ID
from rmq.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from anyio.abc import TaskGroup

    from rmq.client.core.config import ClientConfig
    from rmq.client.core.routes import TopicRoute
    from rmq.client.core.trace import Tracer
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.loop import Loop
    from rmq.model.record import StoredRecord
    from rmq.remoting.bodies import ProducerData
    from rmq.remoting.headers import CheckTransactionStateRequest, EndTransactionRequest

logger = logging.getLogger(__name__)

Check: TypeAlias = Callable[[ReceivedMessage], Awaitable[TransactionState] | TransactionState]
"""Returns the state of the transaction of a half message."""
Execute: TypeAlias = Callable[[Message, SendResult], Awaitable[TransactionState] | TransactionState]
"""Runs the local transaction of a half message, and returns its state."""

CHECKS_MAX: Final = 2000
"""Questions of brokers that wait for an answer; further ones are dropped and asked again later."""
CHECKS_AT_ONCE: Final = 16
CHECK_TIMEOUT_S: Final = 60.0
"""A check that takes longer counts as unknown: brokers ask again after about as long."""


class TransactionResult(msgspec.Struct, frozen=True):
    """The outcome of a transaction."""

    send: SendResult
    """Of the half message."""
    state: TransactionState
    error: Exception | None = None
    """What the local transaction raised; its state is unknown then."""

    @property
    def message_id(self) -> str:
        return self.send.message_id


@final
class HalfMessage:
    """A half message whose transaction the caller decides. Only the first decision is told."""

    def __init__(self, producer: TransactionProducer, message: Message, result: SendResult) -> None:
        self.message = message
        self.result = result
        self._producer = producer
        self._is_decided = False

    async def commit(self) -> None:
        """Commit: consumers get the message."""
        await self.end(TransactionState.COMMIT)

    async def rollback(self) -> None:
        """Roll back: the message is dropped."""
        await self.end(TransactionState.ROLLBACK)

    async def end(self, state: TransactionState, remark: str | None = None) -> None:
        """Tell the broker the state; if that cannot be told now, it will ask."""
        if not self._is_decided:
            self._is_decided = True
            await self._producer.end(self, state, remark)


# --- the producer ----------------------------------------------------------------------------


@final
class TransactionProducer:
    """Sends messages in transactions. Use `open_transaction_producer` or `transacting`."""

    def __init__(
        self,
        client: Client,
        config: ProducerConfig,
        check: Check,
        *,
        tracer: Tracer | None = None,
        check_timeout_s: float = CHECK_TIMEOUT_S,
    ) -> None:
        self.producer = Producer(client, config, tracer=tracer)
        """Sends messages without transactions, in the name of the same group."""
        self._client = client
        self._check = check
        self._check_timeout_s = check_timeout_s
        self._nursery: TaskGroup | None = None
        self._questions: dict[str, _Question] = {}
        """What brokers asked and is not answered yet, by message id."""
        self._unchecked: deque[str] = deque()
        """The ids of those whose check has not begun."""
        self._checkers = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run for the length of a block."""
        error: Exception | None = None
        async with anyio.create_task_group() as nursery:
            self._nursery = nursery
            try:
                async with self.producer.running(self):
                    yield
            except Exception as exc:  # noqa: BLE001 - raised again below, outside the nursery
                error = exc
            finally:
                self._nursery = None
                nursery.cancel_scope.cancel()
        if error is not None:
            raise error

    async def send(
        self, message: Message, execute: Execute, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """Store a half message, run `execute(message, result)`, and tell the broker its state.

        If the half message is not stored as well as it should be, nothing is run and it is rolled
        back. What `execute` raises, and what is no state, counts as unknown: it is logged, and the
        broker will ask. Raises what `Producer.send` raises if the half message was not stored.
        """
        half = await self.begin(message, timeout_s=timeout_s)
        result = half.result
        if not result.is_ok:
            return TransactionResult(result, TransactionState.ROLLBACK)
        state, error = await _state_of(
            f"the local transaction of message {result.message_id}",
            lambda: execute(message, result),
        )
        remark = None if error is None else f"executeLocalTransactionBranch exception: {error!r}"
        await half.end(state, remark)
        return TransactionResult(result, state, error)

    async def begin(self, message: Message, *, timeout_s: float | None = None) -> HalfMessage:
        """Store a half message for the caller to decide: `commit`, `rollback` or `end` it.

        One that is not stored as well as it should be is rolled back at once: look at
        `result.is_ok`.
        """
        now_ms = system_ms()
        outbound = self.producer.prepared_half(message, now_ms)
        result = await self.producer.send_outbound(
            outbound, now_ms, timeout_s=timeout_s, message=message
        )
        half = HalfMessage(self, message, result)
        if not result.is_ok:
            await half.rollback()
        return half

    async def end(self, half: HalfMessage, state: TransactionState, remark: str | None) -> None:
        """Report the state of a transaction to its broker; log failures."""
        result = half.result
        broker_name = result.queue.broker_name
        master = self._client.routes.address_of(broker_name)
        try:
            if master is None or master.broker_id != MASTER_ID:
                raise no_master("the routes known here", result.queue)
            header = end_of_own(self.group, result, state)
            await self._tell(master.address, header, remark)
        except ClientError as exc:
            logger.warning(
                "%s was not told that the transaction of message %s ended with %s, and will ask:"
                " %s",
                broker_name,
                result.message_id,
                state.java_name,
                exc,
            )
        self._trace(
            half.message.topic,
            half.message.tag,
            tuple(half.message.keys),
            result.message_id,
            "" if master is None else master.address,
            "",
            state,
            is_from_check=False,
        )

    async def _tell(self, address: str, header: EndTransactionRequest, remark: str | None) -> None:
        def flow() -> Flow[None]:
            yield Tell(address, RequestCode.END_TRANSACTION, header, None, remark)

        await self._client.run(flow())

    # --- what brokers ask --------------------------------------------------------------------

    @property
    def group(self) -> str:
        return self.producer.group

    def topics(self) -> Iterable[str]:
        return self.producer.topics()

    def presence(self) -> ProducerData:
        return self.producer.presence()

    def route_changed(self, route: TopicRoute) -> None:
        self.producer.route_changed(route)

    def check_transaction(
        self, address: str, header: CheckTransactionStateRequest, half: StoredRecord
    ) -> None:
        """Take a broker's question about the state of a transaction (39)."""
        if self._nursery is None:
            return
        message = received(half, header.broker_name or self._broker_at(address))
        message_id = message.message_id
        known = self._questions.get(message_id)
        if known is None and len(self._questions) >= CHECKS_MAX:
            logger.warning(
                "%s asks about the transaction of message %s while %d such questions wait;"
                " it will ask again",
                address,
                message_id,
                CHECKS_MAX,
            )
            return
        # A half message moves when it is asked about: the answer goes to the last question.
        self._questions[message_id] = _Question(address, header, message)
        if known is None:
            self._unchecked.append(message_id)
            if self._checkers < CHECKS_AT_ONCE:
                self._checkers += 1
                self._nursery.start_soon(self._answer_questions)

    async def _answer_questions(self) -> None:
        try:
            while self._unchecked:
                await self._answer(self._unchecked.popleft())
        finally:
            self._checkers -= 1

    async def _answer(self, message_id: str) -> None:
        message = self._questions[message_id].message
        what = f"the check of the transaction of message {message_id}"
        state, error = TransactionState.UNKNOWN, None
        with anyio.move_on_after(self._check_timeout_s) as scope:
            state, error = await _state_of(what, lambda: self._check(message))
        if scope.cancelled_caught:
            logger.error("%s took more than %g s", what, self._check_timeout_s)
        address, header, _ = self._questions.pop(message_id)
        remark = None if error is None else f"checkLocalTransactionState Exception: {error!r}"
        try:
            await self._tell(address, end_of_checked(self.group, header, message_id, state), remark)
        except ClientError as exc:
            logger.warning("%s was not told the state of message %s: %s", address, message_id, exc)
        self._trace(
            message.topic,
            message.tag,
            message.keys,
            message_id,
            address,
            header.transaction_id or "",
            state,
            is_from_check=True,
        )

    def _broker_at(self, address: str) -> str:
        for broker in self._client.routes.brokers():
            if broker.address == address:
                return broker.broker_name
        return ""

    def _trace(
        self,
        topic: str,
        tag: str | None,
        keys: tuple[str, ...],
        message_id: str,
        address: str,
        transaction_id: str,
        state: TransactionState,
        *,
        is_from_check: bool,
    ) -> None:
        tracer = self.producer.tracer
        if tracer is not None:
            tracer.transaction_ended(
                TransactionEnded(
                    group=self.group,
                    topic=topic,
                    message_id=message_id,
                    tag=tag,
                    keys=keys,
                    address=address,
                    transaction_id=transaction_id or message_id,
                    state=state,
                    is_from_check=is_from_check,
                    ended_at_ms=system_ms(),
                )
            )


class _Question(NamedTuple):
    """A broker's question about the state of a transaction."""

    address: str
    header: CheckTransactionStateRequest
    message: ReceivedMessage


async def _state_of(
    what: str, decide: Callable[[], Awaitable[TransactionState] | TransactionState]
) -> tuple[TransactionState, Exception | None]:
    """Return what the application decides; what it raises and what is no state is unknown."""
    try:
        state = decide()
        if inspect.isawaitable(state):
            state = await state
    except Exception as exc:
        logger.exception("%s failed: its state is unknown", what)
        return TransactionState.UNKNOWN, exc
    if not isinstance(state, TransactionState):
        logger.error("%s returned %r, which is no state: it is unknown", what, state)
        return TransactionState.UNKNOWN, None
    return state, None


@asynccontextmanager
async def transacting(
    client: Client, config: ProducerConfig, check: Check, *, tracer: Tracer | None = None
) -> AsyncIterator[TransactionProducer]:
    """Run a transaction producer on a client that others may share, for the length of a block."""
    producer = TransactionProducer(client, config, check, tracer=tracer)
    async with producer.running():
        yield producer


@asynccontextmanager
async def open_transaction_producer(
    loop: Loop,
    nameservers: ClientConfig | str,
    group: str,
    check: Check,
    *,
    tracer: Tracer | None = None,
    **options: Unpack[ProducerOptions],
) -> AsyncIterator[TransactionProducer]:
    """Run a transaction producer with a client of its own, for the length of a block."""
    config = ProducerConfig(group=group, **options)
    async with (
        traced(loop, nameservers, group, TraceRole.PRODUCE, tracer) as used,
        open_client(loop, nameservers) as client,
        transacting(client, config, check, tracer=used) as producer,
    ):
        yield producer
