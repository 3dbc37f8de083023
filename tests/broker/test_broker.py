"""A broker on its ports: how it starts, what each port serves, and what keeps it from starting."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rmq.broker.broker import PROTECT_INTERVAL_S, open_broker, serve_broker
from rmq.broker.replication import master_role
from rmq.errors import ConfigError, ListenError, RmqError, StoreLockedError
from rmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.broker_frames import bodies_of, ext, frame, pull, send
from tests.broker.broker_kit import free_port, live_broker, live_config
from tests.broker.registration.nameserver_stand_in import stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trio.testing import MockClock

    from rmq.broker.config import LiveConfig


@contextmanager
def taken(port: int) -> Iterator[None]:
    """Let a port be in use."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        yield


async def start_error(live: LiveConfig) -> RmqError:
    """Return why a broker did not start."""
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_broker, live)
            nursery.cancel_scope.cancel()
    except* RmqError as caught:
        error: BaseException = caught
        while isinstance(error, BaseExceptionGroup):
            (error,) = error.exceptions
        found = error
    else:
        pytest.fail("the broker started")
    assert isinstance(found, RmqError)
    return found


# --- ports ---------------------------------------------------------------------------------------


async def test_both_ports_are_open_when_the_broker_has_started(tmp_path: Path) -> None:
    live = live_config(tmp_path)
    async with live_broker(live) as broker:
        assert broker.port == live.current.listen_port
        assert broker.vip_port == live.current.listen_port - 2
        for port in (broker.port, broker.vip_port):
            answer = await broker.ask(frame(RequestCode.GET_BROKER_RUNTIME_INFO), port=port)
            assert answer.code == ResponseCode.SUCCESS


async def test_the_second_port_serves_everything_but_pulls(tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path)) as broker:
        sent = await broker.ask(send(b"message"), port=broker.vip_port)
        assert sent.code == ResponseCode.SUCCESS
        for code in sorted(broker.broker.table.entries):
            # Without its fields; what matters is that somebody reads it.
            answer = await broker.ask(frame(code), port=broker.vip_port)
            is_unknown = answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert is_unknown is (code == RequestCode.PULL_MESSAGE), answer
            if is_unknown:
                assert answer.remark == " request type 11 not supported"
        assert bodies_of(await broker.ask(pull())) == [b"message"]


async def test_a_message_wakes_pulls_whichever_port_it_came_by(tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path)) as broker:
        await broker.ask(send(b"first"))
        consumer = await broker.dial()
        for number, port in enumerate((broker.port, broker.vip_port), 1):
            await consumer.send(pull(0, number, wait_ms=15_000))
            await broker.wait_held(1)
            await broker.ask(send(b"%d" % port), port=port)
            assert bodies_of(await consumer.read()) == [b"%d" % port]


async def test_a_pull_and_the_send_that_ends_its_wait_may_come_in_one_piece(tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path)) as broker:
        await broker.ask(send(b"first"))
        peer = await broker.dial()
        await peer.send(pull(0, 1, wait_ms=15_000, opaque=1), send(b"second", opaque=2))
        answers = {answer.opaque: answer for answer in await peer.read_many(2)}
        assert answers[2].code == ResponseCode.SUCCESS
        assert bodies_of(answers[1]) == [b"second"]


async def test_a_crowd_of_pulls_is_woken_by_one_message(tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path)) as broker:
        await broker.ask(send(b"first"))
        consumer = await broker.dial()
        await consumer.send(*(pull(0, 1, wait_ms=15_000, opaque=n) for n in range(700)))
        await broker.wait_held(700)
        await broker.ask(send(b"second"))
        answers = await consumer.read_many(700)
        assert {answer.opaque for answer in answers} == set(range(700))
        assert all(bodies_of(answer) == [b"second"] for answer in answers)
        assert len(broker.broker.pulls.holds) == 0


async def test_an_unknown_request_is_answered_as_such(tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path)) as broker:
        answer = await broker.ask(frame(9999))
        assert (answer.code, answer.remark) == (
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            " request type 9999 not supported",
        )


async def test_the_id_of_a_message_names_the_address_of_the_broker(tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path)) as broker:
        sent = await broker.ask(send(b"message"))
        assert ext(sent)["msgId"] == f"7F000001{broker.port:08X}{0:016X}"
        assert broker.broker.address == f"127.0.0.1:{broker.port}"


async def test_a_broker_may_be_run_for_the_length_of_a_block(tmp_path: Path) -> None:
    live = live_config(tmp_path)
    async with open_broker(live) as broker:
        assert broker.server.port == live.current.listen_port
    with taken(live.current.listen_port), taken(live.current.vip_port):
        assert not (tmp_path / "abort").exists()


# --- what keeps a broker from starting -----------------------------------------------------------


@pytest.mark.parametrize("distance", [0, 2], ids=["the port", "the second port"])
async def test_a_port_that_is_in_use_is_named(distance: int, tmp_path: Path) -> None:
    live = live_config(tmp_path)
    port = live.current.listen_port - distance
    with taken(port):
        error = await start_error(live)
    assert isinstance(error, ListenError)
    assert f"127.0.0.1:{port}" in str(error)
    assert error.hint is not None
    # Nothing is left of the attempt: the lock, the files and the other port are free.
    assert not (tmp_path / "abort").exists()
    async with live_broker(live) as broker:
        assert (await broker.ask(send())).code == ResponseCode.SUCCESS


async def test_a_store_that_another_broker_has_open_is_refused(tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path)) as first:
        await first.ask(send(b"first"))
        error = await start_error(live_config(tmp_path))
        assert isinstance(error, StoreLockedError)
        assert str(tmp_path) in str(error)
        # The one that has it goes on.
        await first.ask(send(b"second"))
        assert bodies_of(await first.ask(pull())) == [b"first", b"second"]


@pytest.mark.parametrize(
    "name", ["topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"]
)
async def test_a_damaged_table_is_named_and_left_as_it_is(name: str, tmp_path: Path) -> None:
    live = live_config(tmp_path)
    async with live_broker(live) as broker:
        await broker.ask(send(b"message"))
    damaged = tmp_path / "config" / name
    (tmp_path / "config" / f"{name}.bak").unlink(missing_ok=True)
    damaged.write_text('{"dataVersion":{"coun')
    error = await start_error(live)
    assert isinstance(error, ConfigError)
    assert str(damaged) in str(error)
    assert error.hint is not None
    assert damaged.read_text() == '{"dataVersion":{"coun'
    damaged.unlink()
    async with live_broker(live) as broker:
        assert (await broker.ask(send(b"again"))).code == ResponseCode.SUCCESS


async def test_a_damaged_table_with_a_good_copy_does_not_keep_a_broker(tmp_path: Path) -> None:
    live = live_config(tmp_path)
    async with live_broker(live) as broker:
        await broker.ask(send(b"message"))
        await broker.ask(send(b"message", topic="second"))
    (tmp_path / "config" / "topics.json").write_text("{")
    async with live_broker(live) as broker:
        assert bodies_of(await broker.ask(pull())) == [b"message"]


async def test_a_store_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    error = await start_error(live_config(tmp_path / "store"))
    assert str(tmp_path / "store") in str(error)


# --- nameservers ---------------------------------------------------------------------------------


async def test_nameservers_are_told_when_the_ports_are_open(tmp_path: Path) -> None:
    port = free_port()

    async def dial_back(what: str) -> None:
        for each in (port, port - 2):
            await (await trio.open_tcp_stream("127.0.0.1", each)).aclose()

    async with stand_in(dial_back) as one, stand_in() as two:
        addresses = f"{one.address};{two.address}"
        live = live_config(tmp_path, {"namesrvAddr": addresses}, port=port)
        async with live_broker(live) as broker:
            for nameserver in (one, two):
                assert nameserver.told[0] == "register"
                registration = nameserver.registrations[0]
                assert registration.broker_addr == f"127.0.0.1:{port}"
                assert registration.broker_name == "broker-a"
                assert registration.ha_server_addr == f"127.0.0.1:{port + 1}"
            await broker.stop()
        for nameserver in (one, two):
            assert nameserver.told.index("unregister") == len(nameserver.told) - 1


async def test_nameservers_are_told_of_a_new_topic_before_the_next_period(tmp_path: Path) -> None:
    async with stand_in() as nameserver:
        live = live_config(tmp_path, {"namesrvAddr": nameserver.address})
        async with live_broker(live) as broker:
            before = len(nameserver.told)
            await broker.ask(send(topic="New"))
            await nameserver.wait_told("register", before + 1)


async def test_a_broker_serves_although_no_nameserver_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_role, "CONFIRM_S", 0.1)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        # Bound and not listening: connections are refused.
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        async with live_broker(live_config(tmp_path, {"namesrvAddr": address})) as broker:
            await broker.ask(send(b"message"))
            assert bodies_of(await broker.ask(pull())) == [b"message"]


async def test_a_broker_serves_while_it_waits_for_a_silent_nameserver(tmp_path: Path) -> None:
    async with stand_in(silent_to=("register",)) as nameserver, trio.open_nursery() as nursery:
        live = live_config(tmp_path, {"namesrvAddr": nameserver.address})
        nursery.start_soon(serve_broker, live)
        await nameserver.wait_told("register")
        stream = await trio.open_tcp_stream("127.0.0.1", live.current.listen_port)
        async with stream:
            await stream.send_all(frame(RequestCode.GET_BROKER_RUNTIME_INFO))
            assert await stream.receive_some()
        nursery.cancel_scope.cancel()


async def test_the_first_nameserver_says_which_topics_are_ordered(tmp_path: Path) -> None:
    async with stand_in() as one, stand_in() as two:
        one.order_topics = {"Ordered": "broker-a:4"}
        two.order_topics = {"Other": "broker-a:4"}
        addresses = f"{one.address};{two.address}"
        async with live_broker(live_config(tmp_path, {"namesrvAddr": addresses})) as broker:
            for topic in ("Ordered", "Other"):
                await broker.ask(send(topic=topic))
            topics = broker.broker.topics
            ordered: set[str] = set()
            while not ordered:
                await wait_all_tasks_blocked(0.01)
                ordered = {name for name, topic in topics.items() if topic.order}
            assert ordered == {"Ordered"}


# --- groups that read too slowly -----------------------------------------------------------------


@pytest.mark.parametrize("is_on", [True, False])
async def test_a_group_far_behind_may_not_consume_if_it_is_to_be_so(
    is_on: bool, tmp_path: Path, mock_clock: MockClock
) -> None:
    settings = {
        "disableConsumeIfConsumerReadSlowly": str(is_on).lower(),
        "consumerFallbehindThreshold": "5000",
    }
    async with live_broker(live_config(tmp_path, settings)) as broker:
        for _ in range(10):
            await broker.ask(send(bytes(1000)))
        await broker.ask(pull(0, 0, count=1, group="slow"))
        await broker.ask(pull(0, 9, count=1, group="quick"))
        mock_clock.jump(PROTECT_INTERVAL_S)
        await wait_all_tasks_blocked(0.01)
        slow = await broker.ask(pull(0, 1, group="slow"))
        assert slow.code == (ResponseCode.NO_PERMISSION if is_on else ResponseCode.SUCCESS)
        quick = await broker.ask(pull(0, 9, group="quick"))
        assert quick.code == ResponseCode.SUCCESS
