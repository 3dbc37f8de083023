"""Registrations in other forms, and what nameservers answer to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rmq.remoting.bodies import KVTable
from rmq.remoting.codes import ResponseCode
from rmq.remoting.headers import RegisterBrokerResponse
from tests.broker.registration.registration_kit import (
    BROKER,
    PERIOD_S,
    A,
    cluster,
    settled,
    warnings,
)
from tests.remoting.client_kit import in_virtual_time

if TYPE_CHECKING:
    from pathlib import Path

# --- other forms -----------------------------------------------------------------------------


@in_virtual_time(100_000)
async def test_registrations_may_be_compressed(tmp_path: Path) -> None:
    async with cluster(tmp_path, compressedRegister="true") as it:
        await it.start_nameserver(A)
        it.add_topic("T-1", 7)
        async with it.running() as count:
            assert count == 1
            it.add_topic("T-2", 5)
            await settled()
            for topic, queues in (("T-1", 7), ("T-2", 5)):
                route = await it.route(topic)
                assert route is not None
                assert [each.write_queue_nums for each in route.queue_datas] == [queues]


@in_virtual_time(100_000)
async def test_compression_may_change_while_the_broker_runs(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        it.add_topic("T-1")
        async with it.running():
            for value in ("true", "false"):
                it.update(compressedRegister=value)
                await trio.sleep(PERIOD_S + 1)
        assert [header.compressed for header, _ in listener.registrations] == [False, True, False]
        assert listener.topics == [["T-1"]] * 3


@in_virtual_time(100_000)
async def test_without_force_a_nameserver_that_knows_everything_is_only_asked(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, forceRegister="false") as it:
        listener = await it.start_listener()
        async with it.running():
            assert (len(listener.registrations), len(listener.versions)) == (1, 0)
            listener.is_known = True
            await trio.sleep(2 * PERIOD_S + 1)
            assert (len(listener.registrations), len(listener.versions)) == (1, 2)
            asked = listener.versions[0]
            assert (asked.broker_name, asked.broker_addr) == ("broker-a", BROKER)
            assert (asked.cluster_name, asked.broker_id) == ("DefaultCluster", 0)
            listener.is_known = False
            await trio.sleep(PERIOD_S)
            assert (len(listener.registrations), len(listener.versions)) == (2, 3)
            assert it.registration.registered_at == (A,)


@in_virtual_time(100_000)
async def test_without_force_a_nameserver_that_cannot_be_asked_is_told(tmp_path: Path) -> None:
    async with cluster(tmp_path, forceRegister="false") as it:
        listener = await it.start_listener()
        listener.version_code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        async with it.running():
            await trio.sleep(2 * PERIOD_S + 1)
            assert (len(listener.registrations), len(listener.versions)) == (3, 2)


@in_virtual_time(100_000)
async def test_without_force_changes_are_registered_without_asking(tmp_path: Path) -> None:
    async with cluster(tmp_path, forceRegister="false") as it:
        listener = await it.start_listener()
        listener.is_known = True
        async with it.running():
            it.add_topic("T-1")
            await settled()
            it.topics.delete("T-1")
            await settled()
            assert listener.topics == [[], ["T-1"], []]
            assert listener.versions == []


@in_virtual_time(100_000)
async def test_without_force_a_broker_stays_known(tmp_path: Path) -> None:
    async with cluster(tmp_path, forceRegister="false") as it:
        await it.start_nameserver()
        it.add_topic("T-1")
        async with it.running():
            await trio.sleep(1_000)
            assert await it.route("T-1") is not None
            it.cut()
            await settled()
            assert await it.route("T-1") is not None


@in_virtual_time(100_000)
async def test_without_force_a_new_connection_is_registered_on(tmp_path: Path) -> None:
    # The nameserver may know the broker by a connection of which it has not heard yet that it
    # ended; when it does, it forgets the broker.
    async with cluster(tmp_path, forceRegister="false") as it:
        listener = await it.start_listener()
        listener.is_known = True
        async with it.running():
            await trio.sleep(10)
            it.cut()
            await settled()
            assert (len(listener.registrations), len(listener.versions)) == (2, 0)


# --- what nameservers answer -----------------------------------------------------------------


@in_virtual_time(100_000)
async def test_ordered_topics_are_told_by_the_nameserver(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        listener.answer = lambda request: request.reply(
            RegisterBrokerResponse(ha_server_addr="10.0.0.7:10912", master_addr="10.0.0.7:10911"),
            body=KVTable(table={"T-1": "broker-a:4"}).encode(),
        )
        async with it.running():
            (answer,) = it.answers
            assert answer == (A, "10.0.0.7:10912", "10.0.0.7:10911", {"T-1": "broker-a:4"}, None)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(
            lambda request: request.reply(code=ResponseCode.SYSTEM_ERROR, remark="crc32 not match"),
            "crc32 not match",
            id="an error",
        ),
        pytest.param(
            lambda request: request.reply(body=b"[1"), "malformed JSON", id="a body that is no JSON"
        ),
        pytest.param(
            lambda request: request.reply(body=b'{"table":[]}'), "table", id="another body"
        ),
        pytest.param(
            lambda request: request.channel.close("no"), "connection", id="a closed connection"
        ),
        pytest.param(
            lambda request: request.channel.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "connection",
            id="another protocol",
        ),
        pytest.param(lambda request: request.defer(), "no answer", id="silence"),
    ],
)
@in_virtual_time(100_000)
async def test_a_nameserver_that_answers_nonsense_is_tried_again_and_again(
    tmp_path: Path, answer: object, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        it.add_topic("T-1")
        listener.answer = answer  # type: ignore[assignment]
        async with it.running() as count:
            assert count == 0
            assert not it.registration.registered_at
            await trio.sleep(100)
            assert 4 <= len(listener.registrations) <= 12
            listener.answer = listener.take
            await trio.sleep(PERIOD_S + 7)
            assert it.registration.registered_at == (A,)
            assert listener.topics[-1] == ["T-1"]
        (line,) = warnings(caplog)
        assert line.startswith(f"cannot register at nameserver {A}: ")
        assert problem in line
