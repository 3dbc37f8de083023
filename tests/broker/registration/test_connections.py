"""The broker and nameservers that come and go: it finds them again, follows other addresses, and
says goodbye.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
import trio

from tests.broker.registration.registration_kit import (
    BROKER,
    PERIOD_S,
    A,
    B,
    cluster,
    settled,
    warnings,
)
from tests.remoting.client_kit import in_virtual_time

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.remoting.headers import RegisterBrokerRequest
    from rmq.remoting.request import Request

C: Final = "ns-c:9876"

# --- down and up -----------------------------------------------------------------------------


@in_virtual_time(100_000)
async def test_a_nameserver_that_comes_up_later_is_found(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_topic("T-1")
        async with it.running() as count:
            assert count == 0
            await trio.sleep(100)
            it.add_topic("T-2")
            await it.start_nameserver()
            await trio.sleep(PERIOD_S)
            assert it.registration.registered_at == (A,)
            assert await it.route("T-1") is not None
            assert await it.route("T-2") is not None


@in_virtual_time(100_000)
async def test_an_unreachable_nameserver_is_tried_less_and_less_often(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.running():
        started = trio.current_time()
        tries: list[int] = []
        while trio.current_time() - started < 150:
            before = len(it.dials)
            await trio.sleep(1)
            if len(it.dials) > before:
                tries.append(round(trio.current_time() - started))
        # Twice as long each time, and then every period.
        pauses = [after - before for before, after in pairwise(tries)]
        assert pauses == [2, 4, 8, 16, 30, 30, 30]


@in_virtual_time(100_000)
async def test_changes_do_not_make_an_unreachable_nameserver_be_tried_more_often(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, it.running():
        await trio.sleep(100)
        before = len(it.dials)
        for number in range(100):
            it.add_topic(f"T-{number}")
            await trio.sleep(0.1)
        assert len(it.dials) - before <= 1


@in_virtual_time(100_000)
async def test_a_nameserver_that_is_restarted_learns_everything_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.add_topic("T-1")
        async with it.running():
            await trio.sleep(50)
            it.stop()
            await trio.sleep(1.5)
            assert not it.registration.registered_at
            await it.start_nameserver()
            await trio.sleep(3)
            assert it.registration.registered_at == (A,)
            assert await it.route("T-1") is not None
            assert len(warnings(caplog)) == 1


@in_virtual_time(100_000)
async def test_a_connection_that_was_lost_is_made_again_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.add_topic("T-1")
        async with it.running():
            await trio.sleep(10)
            started = trio.current_time()
            it.cut()
            await settled()
            assert trio.current_time() == started
            assert await it.route("T-1") is not None
            assert it.registration.registered_at == (A,)


@in_virtual_time(100_000)
async def test_a_nameserver_that_closes_after_each_answer_is_not_flooded(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()

        def take_and_close(request: Request[RegisterBrokerRequest]) -> None:
            listener.take(request)

            async def close_soon() -> None:
                await request.channel.wait_written()
                request.channel.close("enough")

            it.start_soon(close_soon)

        listener.answer = take_and_close
        async with it.running():
            await trio.sleep(60)
            assert 30 <= len(listener.registrations) <= 62


@in_virtual_time(100_000)
async def test_an_idle_connection_is_kept_by_registering(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        async with it.running():
            (before,) = it.channels()
            await trio.sleep(1_000)
            assert it.channels() == {before}


# --- other addresses -------------------------------------------------------------------------


@in_virtual_time(100_000)
async def test_a_nameserver_that_is_added_learns_of_the_broker_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver(A)
        await it.start_nameserver(B)
        it.add_topic("T-1")
        async with it.running():
            started = trio.current_time()
            it.update(namesrvAddr=f"{A};{B}")
            await settled()
            assert trio.current_time() == started
            assert it.registration.registered_at == (A, B)
            assert await it.route("T-1", B) is not None
            it.add_topic("T-2")
            await settled()
            assert await it.route("T-2", A) is not None
            assert await it.route("T-2", B) is not None


@in_virtual_time(100_000)
async def test_a_nameserver_that_stays_is_not_told_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener(A)
        await it.start_listener(B)
        async with it.running():
            it.update(namesrvAddr=f"{A};{B}")
            await settled()
            assert len(listener.registrations) == 1


@in_virtual_time(100_000)
async def test_a_nameserver_that_is_removed_hears_nothing_more(tmp_path: Path) -> None:
    async with cluster(tmp_path, namesrvAddr=f"{A};{B}") as it:
        await it.start_listener(A)
        listener = await it.start_listener(B)
        async with it.running():
            it.update(namesrvAddr=A)
            await settled()
            it.add_topic("T-1")
            await trio.sleep(100)
            assert len(listener.registrations) == 1
            assert it.registration.registered_at == (A,)
            await it.registration.unregister_all()
            assert listener.goodbyes == []


@in_virtual_time(100_000)
async def test_all_nameservers_may_be_replaced_and_removed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver(A)
        await it.start_nameserver(B)
        it.add_topic("T-1")
        async with it.running():
            it.update(namesrvAddr=B)
            await settled()
            assert it.registration.registered_at == (B,)
            it.update(namesrvAddr="")
            await settled()
            assert not it.registration.registered_at
            it.update(namesrvAddr=A)
            await settled()
            assert it.registration.registered_at == (A,)


@in_virtual_time(100_000)
async def test_addresses_that_change_before_the_task_runs_count(tmp_path: Path) -> None:
    # Ports are open while the first registration is under way.
    async with cluster(tmp_path, registerBrokerTimeoutMills="2000") as it:
        await it.start_nameserver(B)
        it.add_topic("T-1")
        it.hangs.add(A)
        async with trio.open_nursery() as nursery:

            async def change() -> None:
                await trio.sleep(1)
                it.update(namesrvAddr=B)

            nursery.start_soon(change)
            async with it.running() as count:
                assert count == 0
                await settled()
                assert it.registration.registered_at == (B,)
                assert await it.route("T-1", B) is not None


@in_virtual_time(100_000)
async def test_a_change_that_was_under_way_is_not_forgotten_with_other_addresses(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener(A)
        await it.start_listener(B)
        async with it.running():
            listener.answer = lambda request: request.defer()
            it.add_topic("T-1")
            await settled()
            listener.answer = listener.take
            it.update(namesrvAddr=f"{A};{B}")
            await settled()
            assert listener.topics[-1] == ["T-1"]
            assert listener.sizes[-1] == len(it.topics)
            assert it.registration.registered_at == (A, B)


@in_virtual_time(100_000)
async def test_an_address_that_cannot_be_one_is_a_nameserver_that_cannot_be_reached(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, namesrvAddr=f"{A};no-such-host:1") as it:
        await it.start_nameserver()
        async with it.running() as count:
            assert count == 1
            await trio.sleep(100)
            assert len(warnings(caplog)) == 1


# --- goodbye ---------------------------------------------------------------------------------


@in_virtual_time(100_000)
async def test_a_broker_that_goes_is_forgotten_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path, namesrvAddr=f"{A};{B}") as it:
        await it.start_nameserver(A)
        await it.start_nameserver(B)
        it.add_topic("T-1")
        async with it.running():
            started = trio.current_time()
            await it.registration.unregister_all()
            assert trio.current_time() == started
            assert await it.route("T-1", A) is None
            assert await it.route("T-1", B) is None


@in_virtual_time(100_000)
async def test_a_goodbye_says_who_goes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        async with it.running():
            await it.registration.unregister_all()
        (goodbye,) = listener.goodbyes
        assert (goodbye.broker_name, goodbye.broker_addr) == ("broker-a", BROKER)
        assert (goodbye.cluster_name, goodbye.broker_id) == ("DefaultCluster", 0)


@in_virtual_time(100_000)
async def test_a_broker_that_goes_does_not_come_back(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        async with it.running():
            await it.registration.unregister_all()
            it.add_topic("T-1")
            it.topics.delete("T-1")
            it.update(brokerPermission="4")
            await trio.sleep(100)
            it.cut()
            await trio.sleep(100)
            assert len(listener.registrations) == 1


@in_virtual_time(100_000)
async def test_a_registration_that_fails_during_the_goodbye_is_not_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        async with it.running():
            listener.answer = lambda request: request.defer()
            it.add_topic("T-1")
            await settled()
            await it.registration.unregister_all()
            it.cut()
            await trio.sleep(100)
            assert len(listener.registrations) == 2
            assert warnings(caplog) == []


@in_virtual_time(100_000)
async def test_a_nameserver_that_does_not_answer_delays_the_goodbye_by_three_seconds(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, namesrvAddr=f"{A};{B};{C}") as it:
        slow = await it.start_listener(A)
        await it.start_nameserver(B)
        it.hangs.add(C)
        it.add_topic("T-1")
        async with it.running():
            slow.unregister_delay_s = 1_000
            started = trio.current_time()
            await it.registration.unregister_all()
            assert trio.current_time() - started == pytest.approx(3)
            assert await it.route("T-1", B) is None


@in_virtual_time(100_000)
async def test_a_nameserver_without_a_connection_needs_no_goodbye(tmp_path: Path) -> None:
    async with cluster(tmp_path, namesrvAddr=f"{A};{B}") as it:
        it.hangs.add(A)
        async with it.running():
            started = trio.current_time()
            await it.registration.unregister_all()
            assert trio.current_time() == started


@in_virtual_time(100_000)
async def test_a_broker_that_is_killed_is_forgotten_with_its_connection(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.add_topic("T-1")
        async with it.running():
            assert await it.route("T-1") is not None
        await settled()
        assert await it.route("T-1") is None
