"""The broker at nameservers: it is known to all that can be reached, and they learn of changes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.broker.registration.registration import CHANGED_MAX
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

# --- start -----------------------------------------------------------------------------------


@in_virtual_time(100_000)
async def test_a_broker_without_nameservers_runs(tmp_path: Path) -> None:
    async with cluster(tmp_path, namesrvAddr="") as it, it.running() as count:
        assert count == 0
        it.add_topic("T-1")
        await trio.sleep(100)
        assert it.dials == []
        await it.registration.unregister_all()


@in_virtual_time(100_000)
async def test_a_broker_is_known_after_its_first_registration(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.add_topic("T-1", 3)
        async with it.running() as count:
            assert count == 1
            assert it.registration.registered_at == (A,)
            route = await it.route("T-1")
            assert route is not None
            (broker,) = route.broker_datas
            assert (broker.broker_name, broker.cluster) == ("broker-a", "DefaultCluster")
            assert broker.broker_addrs == {0: BROKER}
            (queues,) = route.queue_datas
            assert (queues.read_queue_nums, queues.write_queue_nums, queues.perm) == (3, 3, 6)
            assert (await it.route("TBW102")) is not None
            (answer,) = it.answers
            assert answer == (A, None, None, None, None)


@in_virtual_time(100_000)
async def test_a_broker_is_known_to_all_nameservers(tmp_path: Path) -> None:
    async with cluster(tmp_path, namesrvAddr=f"{A};{B}") as it:
        await it.start_nameserver(A)
        await it.start_nameserver(B)
        it.add_topic("T-1")
        async with it.running() as count:
            assert count == 2
            assert await it.route("T-1", A) == await it.route("T-1", B) is not None


@in_virtual_time(100_000)
async def test_one_nameserver_that_is_down_does_not_hold_up_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, namesrvAddr=f"{A};{B}") as it:
        await it.start_nameserver(B)
        started = trio.current_time()
        async with it.running() as count:
            assert count == 1
            assert trio.current_time() == started
            assert it.registration.registered_at == (B,)
            it.add_topic("T-1")
            await settled()
            assert await it.route("T-1", B) is not None
            await trio.sleep(300)
        # It is said once, not at every attempt.
        assert warnings(caplog) == [
            f"cannot register at nameserver {A}: cannot connect to {A}: Connection refused;"
            " trying again"
        ]


@in_virtual_time(100_000)
async def test_a_nameserver_that_does_not_answer_holds_up_the_start_no_longer_than_its_timeout(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, namesrvAddr=f"{A};{B}", registerBrokerTimeoutMills="2000") as it:
        it.hangs.add(A)
        listener = await it.start_listener(B)
        listener.answer = lambda request: request.defer()
        started = trio.current_time()
        async with it.running() as count:
            assert count == 0
            assert trio.current_time() - started == pytest.approx(2.0)


@in_virtual_time(100_000)
async def test_connecting_and_answering_share_one_timeout(tmp_path: Path) -> None:
    async with cluster(tmp_path, registerBrokerTimeoutMills="2000") as it:
        listener = await it.start_listener()
        listener.answer = lambda request: request.defer()
        it.hangs.add(A)

        async def come_through() -> None:
            await trio.sleep(1.5)
            it.hangs.clear()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(come_through)
            started = trio.current_time()
            async with it.running() as count:
                assert count == 0
                assert trio.current_time() - started == pytest.approx(2.0)


# --- again and again -------------------------------------------------------------------------


@in_virtual_time(100_000)
async def test_a_broker_registers_every_period(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        it.add_topic("T-1")
        async with it.running():
            started = trio.current_time()
            await trio.sleep(3 * PERIOD_S + 1)
        assert [round(at - started) for at in listener.times] == [0, 30, 60, 90]
        assert listener.topics == [["T-1"]] * 4
        header, body = listener.registrations[-1]
        assert (header.broker_name, header.broker_addr) == ("broker-a", BROKER)
        assert (header.cluster_name, header.broker_id) == ("DefaultCluster", 0)
        assert (header.ha_server_addr, header.compressed) == ("10.0.0.1:10912", False)
        wrapper = body.topic_config_serialize_wrapper
        assert wrapper.data_version == it.topics.version
        assert wrapper.topic_config_table == dict(it.topics.items())
        assert body.filter_server_list == ()


@in_virtual_time(100_000)
async def test_a_broker_stays_known_as_long_as_it_registers(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.add_topic("T-1")
        async with it.running():
            await trio.sleep(1_000)
            assert await it.route("T-1") is not None


@in_virtual_time(100_000)
async def test_another_period_counts_from_the_next_one_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        async with it.running():
            started = trio.current_time()
            it.update(registerNameServerPeriod="10000")
            await trio.sleep(61)
        assert [round(at - started) for at in listener.times] == [0, 30, 40, 50, 60]


# --- changes ---------------------------------------------------------------------------------


@in_virtual_time(100_000)
async def test_a_new_topic_is_known_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path, namesrvAddr=f"{A};{B}") as it:
        await it.start_nameserver(A)
        await it.start_nameserver(B)
        async with it.running():
            assert await it.route("T-1") is None
            started = trio.current_time()
            it.add_topic("T-1")
            await settled()
            assert await it.route("T-1", A) is not None
            assert await it.route("T-1", B) is not None
            assert trio.current_time() == started


@in_virtual_time(100_000)
async def test_a_change_brings_what_changed_and_nothing_else(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        it.add_topic("T-1")
        async with it.running():
            it.add_topic("T-2")
            await settled()
            it.add_topic("T-3")
            it.add_topic("T-4")
            await settled()
            assert listener.topics == [["T-1"], ["T-2"], ["T-3", "T-4"]]
            assert listener.sizes[1:] == [1, 2]
            versions = [
                body.topic_config_serialize_wrapper.data_version.counter
                for _, body in listener.registrations
            ]
            assert versions == [1, 2, 4]
            await trio.sleep(PERIOD_S + 1)
            assert listener.topics[-1] == ["T-1", "T-2", "T-3", "T-4"]


@in_virtual_time(100_000)
async def test_when_very_many_changed_all_are_registered(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        it.add_topic("old")
        async with it.running():
            for number in range(CHANGED_MAX):
                it.add_topic(f"T-{number}")
            await settled()
            assert listener.sizes[1:] == [CHANGED_MAX]
            for number in range(CHANGED_MAX + 1):
                it.add_topic(f"U-{number}")
            await settled()
            assert listener.sizes[2] == listener.sizes[0] + 2 * CHANGED_MAX + 1


@in_virtual_time(100_000)
async def test_a_topic_that_is_gone_brings_all_that_is_left(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        it.add_topic("T-1")
        it.add_topic("T-2")
        async with it.running():
            it.topics.delete("T-1")
            await settled()
            it.add_topic("T-3")
            it.topics.delete("T-2")
            await settled()
            assert listener.topics == [["T-1", "T-2"], ["T-2"], ["T-3"]]
            assert listener.sizes[2] == len(it.topics)


@in_virtual_time(100_000)
async def test_what_changes_while_a_registration_is_under_way_is_not_lost(tmp_path: Path) -> None:
    """A nameserver takes only versions that it has not seen, so what one of them leaves out would
    be missing until the next change.
    """
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        async with it.running():
            held: list[Request[RegisterBrokerRequest]] = []

            def hold(request: Request[RegisterBrokerRequest]) -> None:
                request.defer()
                held.append(request)

            listener.answer = hold
            it.add_topic("T-1")
            await settled()
            it.add_topic("T-2")
            await settled()
            listener.answer = listener.take

            def change_once_more() -> None:
                it.on_registered = None
                it.add_topic("T-3")

            # Before anybody could look at what T-2 asked for, there is one more change.
            it.on_registered = change_once_more
            listener.take(held[0])
            await settled()
            told = {name for names in listener.topics for name in names}
            assert told == {"T-1", "T-2", "T-3"}


@pytest.mark.parametrize("seed", range(20))
@in_virtual_time(100_000)
async def test_whatever_happens_a_nameserver_has_all_topics_in_the_end(
    tmp_path: Path, seed: int
) -> None:
    choose = random.Random(seed)
    async with cluster(tmp_path, namesrvAddr=f"{A};{B}") as it:
        await it.start_nameserver(A)
        await it.start_nameserver(B)
        names: set[str] = set()
        async with it.running():
            for number in range(60):
                action = choose.random()
                if action < 0.6:
                    names.add(f"T-{number}")
                    it.add_topic(f"T-{number}")
                elif action < 0.7 and names:
                    name = choose.choice(sorted(names))
                    names.discard(name)
                    it.topics.delete(name)
                elif action < 0.8:
                    it.cut(choose.choice([A, B]))
                elif action < 0.9:
                    await trio.sleep(choose.choice([0.1, 1, 40]))
                for _ in range(choose.randrange(4)):
                    await trio.lowlevel.checkpoint()
            await trio.sleep(5)
            for name in sorted(names):
                assert await it.route(name, A) is not None, f"{name} is missing at A"
                assert await it.route(name, B) is not None, f"{name} is missing at B"


# --- permissions -----------------------------------------------------------------------------


@in_virtual_time(100_000)
async def test_another_permission_is_known_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.add_topic("T-1")
        async with it.running():
            started = trio.current_time()
            for permission in (4, 6, 2, 0, 6):
                it.update(brokerPermission=str(permission))
                await settled()
                route = await it.route("T-1")
                assert route is not None
                assert [queues.perm for queues in route.queue_datas] == [permission]
            assert trio.current_time() == started


@in_virtual_time(100_000)
async def test_a_broker_of_less_than_all_permission_says_so_of_each_topic(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokerPermission="4") as it:
        listener = await it.start_listener()
        async with it.running():
            it.add_topic("T-1")
            await settled()
            for _, body in listener.registrations:
                table = body.topic_config_serialize_wrapper.topic_config_table
                assert {topic.perm for topic in table.values()} == {4}


@in_virtual_time(100_000)
async def test_a_permission_and_other_nameservers_may_change_together(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver(A)
        await it.start_nameserver(B)
        it.add_topic("T-1")
        async with it.running():
            it.update(brokerPermission="4", namesrvAddr=f"{A};{B}")
            await settled()
            for address in (A, B):
                route = await it.route("T-1", address)
                assert route is not None
                assert [queues.perm for queues in route.queue_datas] == [4]
