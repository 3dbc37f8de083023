"""Registrations refused for want of the in-sync record: it is brought, and they are made again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rmq.broker.config import BrokerRole
from rmq.remoting.codes import ResponseCode
from rmq.remoting.headers import RegisterBrokerResponse
from tests.broker.registration.registration_kit import PERIOD_S, A, cluster, settled
from tests.remoting.client_kit import in_virtual_time

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.remoting.headers import RegisterBrokerRequest
    from rmq.remoting.request import Request


def _leaps(request: Request[RegisterBrokerRequest]) -> None:
    """Answer as a nameserver does that has missed promotions."""
    request.reply(RegisterBrokerResponse(), code=ResponseCode.SYSTEM_ERROR, remark="not yet")


@in_virtual_time(100_000)
async def test_a_nameserver_is_in_doubt_once_for_each_connection(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_listener()
        it.epoch = 3
        async with it.running():
            assert it.doubts == [A]
            await trio.sleep(3 * PERIOD_S)
            assert it.doubts == [A]
            it.cut()
            await trio.sleep(2)
            assert it.doubts == [A, A]


@in_virtual_time(100_000)
@pytest.mark.parametrize("kind", ["slave", "stock"])
async def test_who_has_no_record_to_bring_doubts_nobody(tmp_path: Path, kind: str) -> None:
    async with cluster(tmp_path) as it:
        await it.start_listener()
        it.epoch = 0 if kind == "stock" else 3
        if kind == "slave":
            it.assume(BrokerRole.SLAVE, 1)
        async with it.running():
            assert it.doubts == []


@in_virtual_time(100_000)
async def test_a_refused_registration_is_made_again_at_once_when_the_record_is_there(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        listener.answer = _leaps
        it.epoch = 5
        async with it.running():
            await trio.sleep(8)
            # With pauses that double.
            assert listener.times == [0, 1, 3, 7]
            assert it.doubts == [A] * 4
            listener.answer = listener.take
            it.registration.retry(A)
            await settled()
            assert listener.times[-1] == 8
            assert it.registration.registered_at == (A,)
            # It has nothing to wait for any longer.
            it.registration.retry(A)
            await trio.sleep(PERIOD_S / 2)
            assert len(listener.times) == 5


@in_virtual_time(100_000)
async def test_a_record_that_is_there_before_the_refusal_makes_for_one_more_attempt(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()

        def leaps(request: Request[RegisterBrokerRequest]) -> None:
            it.registration.retry(A)
            _leaps(request)
            listener.answer = _leaps

        listener.answer = leaps
        it.epoch = 5
        async with it.running():
            await trio.sleep(2.5)
            assert listener.times == [0, 0, 2]
