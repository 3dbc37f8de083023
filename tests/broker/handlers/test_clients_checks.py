"""Locks of queues and the check of expressions, over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rmq.remoting.codes import RequestCode
from tests.broker.client_broker import check_expression, client_broker, frame

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.remoting.server_kit import Frame

# ---- locks ---------------------------------------------------------------------------------------


def queues(*numbers: int) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(topic="T", broker_name="broker-a", queue_id=number) for number in numbers
    )


def lock(client_id: str, *numbers: int) -> bytes:
    body = LockBatchRequestBody(
        consumer_group="group", client_id=client_id, mq_set=queues(*numbers)
    )
    return frame(RequestCode.LOCK_BATCH_MQ, body=body.encode())


def unlock(client_id: str, *numbers: int, oneway: bool = False) -> bytes:
    body = UnlockBatchRequestBody(
        consumer_group="group", client_id=client_id, mq_set=queues(*numbers)
    )
    return frame(RequestCode.UNLOCK_BATCH_MQ, body=body.encode(), oneway=oneway)


def locked(answer: Frame) -> tuple[MessageQueue, ...]:
    assert (answer.code, answer.fields) == (0, None)
    return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set


async def test_queues_are_locked_for_one_client_and_given_back() -> None:
    async with client_broker() as broker:
        peer = broker.attach()
        assert locked(await peer.request(lock("a", 0, 1))) == queues(0, 1)
        assert locked(await peer.request(lock("b", 1, 2))) == queues(2)
        answer = await peer.request(unlock("a", 1))
        assert (answer.code, answer.fields, answer.body) == (0, None, b"")
        assert locked(await peer.request(lock("b", 1, 1, 0))) == queues(1)


async def test_who_knows_the_id_of_a_client_has_its_queues_as_in_4_9_8() -> None:
    # A lock belongs to an id, not to a connection: a client may come again over another one.
    async with client_broker() as broker:
        owner, other = broker.attach("owner"), broker.attach("other")
        assert locked(await owner.request(lock("10.0.0.7@41", 0, 1))) == queues(0, 1)
        assert locked(await other.request(lock("a guess", 0, 1))) == ()
        assert locked(await other.request(lock("10.0.0.7@41", 0))) == queues(0)
        await other.request(unlock("10.0.0.7@41", 1))
        assert locked(await other.request(lock("a guess", 0, 1))) == queues(1)


async def test_a_oneway_unlock_counts_and_is_not_answered() -> None:
    async with client_broker() as broker:
        peer = broker.attach()
        await peer.request(lock("a", 0))
        await peer.send(unlock("a", 0, oneway=True))
        assert await peer.ping() == []
        assert locked(await peer.request(lock("b", 0))) == queues(0)


async def test_a_lock_that_is_not_renewed_lapses(autojump_clock: MockClock) -> None:
    async with client_broker() as broker:
        peer = broker.attach()
        await peer.request(lock("a", 0))
        await trio.sleep(61)
        assert locked(await peer.request(lock("b", 0))) == queues(0)


@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
async def test_a_lock_request_that_cannot_be_read_is_refused(code: RequestCode) -> None:
    async with client_broker() as broker:
        answer = await broker.attach().request(frame(code, body=b'{"clientId":"a"}'))
        assert answer.code == 1


# ---- the check of expressions --------------------------------------------------------------------


def compile_short(kind: str, text: str) -> None:
    """Stand for a compiler that understands short conditions."""
    if kind != "SQL92":
        raise ValueError(f"no compiler for {kind}")
    if len(text) > 10:
        raise ValueError("too long")


@pytest.mark.parametrize(
    ("settings", "request_frame", "code", "remark"),
    [
        pytest.param({}, check_expression("TAG", "a || b"), 0, None, id="tags"),
        pytest.param({}, check_expression(None), 0, None, id="no-type"),
        pytest.param({}, frame(RequestCode.CHECK_CLIENT_CONFIG), 0, None, id="no-body"),
        pytest.param(
            {},
            frame(RequestCode.CHECK_CLIENT_CONFIG, body=b'{"clientId":"a"}'),
            0,
            None,
            id="no-subscription",
        ),
        pytest.param(
            {},
            check_expression("SQL92"),
            1,
            "The broker does not support consumer to filter message by SQL92",
            id="filters-are-off",
        ),
        pytest.param(
            {"enablePropertyFilter": "true"}, check_expression("SQL92"), 0, None, id="sql"
        ),
        pytest.param(
            {"enablePropertyFilter": "true"},
            check_expression("SQL92", "a > 1 AND b > 1"),
            23,
            "too long",
            id="not-understood",
        ),
        pytest.param(
            {"enablePropertyFilter": "true"},
            check_expression("JS"),
            23,
            "no compiler for JS",
            id="unknown-type",
        ),
    ],
)
async def test_an_expression_is_checked_before_a_consumer_starts(
    settings: dict[str, str], request_frame: bytes, code: int, remark: str | None
) -> None:
    async with client_broker(settings, compile_filter=compile_short) as broker:
        answer = await broker.attach().request(request_frame)
        assert (answer.code, answer.remark) == (code, remark)


async def test_without_a_compiler_only_tags_are_taken() -> None:
    async with client_broker({"enablePropertyFilter": "true"}) as broker:
        peer = broker.attach()
        assert (await peer.request(check_expression("SQL92"))).code == 1
        assert (await peer.request(check_expression("TAG"))).code == 0
