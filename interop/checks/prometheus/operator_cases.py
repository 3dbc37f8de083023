"""What operators and applications do that dashboards show: switches, transactions, delays."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import trio

from interop.checks.prometheus.watched_cluster import LAST_DELAY_LEVEL, TOPIC
from interop.support.cases import expect, say
from interop.support.tools import run_tool
from rmq.client import Message, TransactionState, open_producer, open_transaction_producer

if TYPE_CHECKING:
    from interop.checks.prometheus.prometheus_session import Session
    from rmq.client import ReceivedMessage, SendResult

_SEEN_S: Final = 10
_DECISIONS: Final = {
    b"yes": TransactionState.COMMIT,
    b"no": TransactionState.ROLLBACK,
}


async def run_operator_cases(session: Session) -> None:
    watched = session.watched
    master = watched.master.address
    say("transactions, switches and a hand-over ...")
    with session.operations.operation("planned", "transactions, committed and rolled back"):
        async with open_transaction_producer(
            watched.cluster.nameserver, "booking", _checked
        ) as producer:
            for body in (*_DECISIONS, *_DECISIONS):
                await producer.send(Message(TOPIC, body), _decided)
    with session.operations.operation("planned", "delayed messages"):
        async with open_producer(watched.cluster.nameserver, "delaying") as producer:
            for _ in range(5):
                await producer.send(Message(TOPIC, b"later", delay_level=LAST_DELAY_LEVEL))
    with session.operations.operation(
        "planned", "two switches of the mode and a hand-over: quiet afterwards", timeout_s=240
    ):
        await _rmq("ha", "switch", "async", "-b", master)
        await _rmq("ha", "switch", "sync", "-b", master)
        await _rmq("ha", "hand-over", "-b", master, "--yes")
        # Until Prometheus has seen both sides of it several times.
        await trio.sleep(_SEEN_S)
        await session.until_quiet()


async def _decided(message: Message, _result: SendResult) -> TransactionState:
    return _DECISIONS[message.body]


async def _checked(message: ReceivedMessage) -> TransactionState:
    return _DECISIONS[message.body]


async def _rmq(*arguments: str) -> None:
    command = [sys.executable, "-m", "rmq", *arguments]
    done = await run_tool(*command, timeout_s=60, environment=dict(os.environ))
    expect(f"exit code of {' '.join(arguments)} ({done.text[-300:]})", done.code, 0)
