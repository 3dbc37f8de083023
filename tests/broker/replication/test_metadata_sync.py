"""A slave copies the tables of a real master: what it takes over, and what it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from rmq.broker.transactions.half import GROUP as CHECKER
from rmq.model.names import HALF_TOPIC, OP_HALF_TOPIC
from rmq.model.offsets import ConsumerOffset, PhysicalOffset
from rmq.remoting.bodies import SubscriptionGroupConfig
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    CloneGroupOffsetRequest,
    DeleteSubscriptionGroupRequest,
    ResetOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from tests.broker.broker_frames import (
    GROUP,
    START_MS,
    TOPIC,
    bodies_of,
    consumer,
    frame,
    pull,
    subscription,
)
from tests.broker.broker_kit import live_broker, live_config, part_broker
from tests.broker.replication.sync_kit import MASTER, SLAVE, Pair, pair, sync_of

if TYPE_CHECKING:
    from pathlib import Path


HOST = "client:1"


def commit(broker_offsets: Pair, queue_id: int, offset: int, group: str = GROUP) -> None:
    broker_offsets.master.offsets.commit(HOST, group, TOPIC, queue_id, ConsumerOffset(offset))


# --- topics and groups ---------------------------------------------------------------------------


async def test_a_slave_has_the_topics_and_groups_of_its_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        master, slave = linked.master, linked.slave
        slave.create_topic("Left")
        slave.change_group("left")
        master.create_topic("Orders", queues=7)
        master.change_group("billing", retry_max_times=3)
        await linked.copy()
        for mine, theirs in ((slave.topics, master.topics), (slave.groups, master.groups)):
            assert dict(mine.items()) == dict(theirs.items())
            assert mine.version == theirs.version
            assert mine.render() == theirs.render()
        assert slave.topics.get("Left") is None
        assert slave.groups.get("left") is None
        for broker in (master, slave):
            await broker.tables.topics_writer.save_now()
            await broker.tables.groups_writer.save_now()
        for name in ("topics.json", "subscriptionGroup.json"):
            saved = (tmp_path / "slave" / "config" / name).read_text()
            assert saved == (tmp_path / "master" / "config" / name).read_text()


async def test_what_is_deleted_at_the_master_goes_and_what_changes_changes(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        linked.master.create_topic("Orders")
        linked.master.change_group("billing")
        await linked.copy()
        linked.master.topics.delete("Orders")
        linked.master.groups.delete("billing")
        linked.master.change_topic(read_queue_nums=9)
        await linked.copy()
        assert linked.slave.topics.get("Orders") is None
        assert linked.slave.groups.get("billing") is None
        changed = linked.slave.topics.get(TOPIC)
        assert changed is not None
        assert changed.read_queue_nums == 9


async def test_tables_of_the_same_version_are_left_alone(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        await linked.copy()
        slave = linked.slave
        changes = slave.topics.changes, slave.groups.changes, slave.offsets.changes
        told: list[object] = []
        slave.topics.on_change = slave.groups.on_change = told.append
        await linked.copy()
        assert (slave.topics.changes, slave.groups.changes, slave.offsets.changes) == changes
        assert told == []


async def test_what_a_slave_changes_by_itself_is_put_right(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        await linked.copy()
        linked.slave.create_topic("Mine")  # as a heartbeat does with a retry topic
        assert linked.slave.topics.version != linked.master.topics.version
        await linked.copy()
        assert linked.slave.topics.get("Mine") is None
        assert linked.slave.topics.version == linked.master.topics.version


async def test_a_large_table_changes_at_once_however_many_steps_it_takes(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        for number in range(1000):
            linked.master.create_topic(f"Topic-{number}")
        before = len(linked.slave.topics)
        sizes: set[int] = set()
        async with trio.open_nursery() as nursery:

            async def look() -> None:
                while True:
                    sizes.add(len(linked.slave.topics))
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(look)
            await linked.copy()
            await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert sizes == {before, len(linked.master.topics)}
        linked.master.change_topic("Topic-5", perm=4)
        await linked.copy()
        assert linked.slave.topics.render() == linked.master.topics.render()


# --- consumer offsets ----------------------------------------------------------------------------


async def test_offsets_are_copied_and_saved(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        linked.slave.offsets.commit(HOST, "only-here", TOPIC, 0, ConsumerOffset(3))
        commit(linked, 0, 5)
        commit(linked, 3, 7)
        await linked.copy()
        assert linked.slave.offsets.to_body().offset_table == {
            f"{TOPIC}@only-here": {0: 3},
            f"{TOPIC}@{GROUP}": {0: 5, 3: 7},
        }
        assert linked.slave.tables.offsets_writer.is_unsaved
        await linked.slave.tables.offsets_writer.save_now()
        saved = (tmp_path / "slave" / "config" / "consumerOffset.json").read_text()
        assert f'"{TOPIC}@{GROUP}":{{0:5,3:7' in saved


async def test_offsets_beyond_what_the_slave_has_are_kept(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        linked.master.put_many(5)
        commit(linked, 0, 5)
        await linked.copy()
        assert linked.slave.core.log.written == 0
        assert linked.slave.offsets.query(GROUP, TOPIC, 0) == 5


async def test_a_master_that_has_forgotten_does_not_send_groups_back(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        commit(linked, 0, 100)
        commit(linked, 1, 100)
        await linked.copy()
        # It was killed and comes back with the file of five seconds ago.
        linked.master.offsets.load('{"offsetTable":{"TopicA@readers":{0:60,1:100}}}')
        await linked.copy()
        assert linked.slave.offsets.offsets(GROUP, TOPIC) == {0: 100, 1: 100}
        commit(linked, 0, 101)
        await linked.copy()
        assert linked.slave.offsets.offsets(GROUP, TOPIC) == {0: 101, 1: 100}


async def test_what_consumers_commit_to_a_slave_outlives_the_return_of_the_master(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as linked:
        commit(linked, 0, 10)
        await linked.copy()
        header = UpdateConsumerOffsetRequest(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=25
        )
        answer = await linked.slave.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        assert answer.code == ResponseCode.SUCCESS
        await linked.copy()
        assert linked.slave.offsets.query(GROUP, TOPIC, 0) == 25


async def test_a_late_commit_of_a_consumer_is_no_reset(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        peer = await linked.master.join("a", consumer(subscription()))
        commit(linked, 0, 50)
        await linked.copy()
        header = UpdateConsumerOffsetRequest(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=40
        )
        await peer.request(frame(RequestCode.UPDATE_CONSUMER_OFFSET, header))
        assert linked.master.offsets.query(GROUP, TOPIC, 0) == 40
        await linked.copy()
        assert linked.slave.offsets.query(GROUP, TOPIC, 0) == 50


async def test_a_reset_by_consumers_that_were_told_to_go_back_is_followed(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        master, slave = linked.master, linked.slave
        for queue_id in range(4):
            master.put_many(9, queue_id=queue_id)
            commit(linked, queue_id, 8)
        peer = await master.join("a", consumer(subscription()))
        await linked.copy()
        answer = await master.call(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            ResetOffsetRequest(topic=TOPIC, group=GROUP, timestamp=START_MS - 1, is_force=True),
        )
        assert answer.code == ResponseCode.SUCCESS
        # The consumers have not done it yet.
        await linked.copy()
        assert slave.offsets.offsets(GROUP, TOPIC) == dict.fromkeys(range(4), 8)
        assert await peer.ping() != []
        await peer.request(pull(1, 0, commit=2))
        await linked.copy()
        assert slave.offsets.offsets(GROUP, TOPIC) == {0: 8, 1: 2, 2: 8, 3: 8}
        # It is done once: a late commit later is one like any other.
        await peer.request(pull(1, 0, commit=7))
        await linked.copy()
        await peer.request(pull(1, 0, commit=5))
        await linked.copy()
        assert slave.offsets.query(GROUP, TOPIC, 1) == 7


async def test_a_reset_of_the_same_queue_is_followed_each_time(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        for back_to in (30, 20, 10):
            commit(linked, 0, 50)
            await linked.copy()
            linked.master.offsets.reset("mqadmin", GROUP, TOPIC, 0, ConsumerOffset(back_to))
            await linked.copy()
            assert linked.slave.offsets.query(GROUP, TOPIC, 0) == back_to


async def test_a_reset_is_not_forgotten_over_restarts(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        master, slave = linked.master.offsets, linked.slave.offsets
        commit(linked, 0, 50)
        await linked.copy()
        master.reset("mqadmin", GROUP, TOPIC, 0, ConsumerOffset(10))
        master.load(master.render())
        await linked.copy()
        assert slave.query(GROUP, TOPIC, 0) == 10
        # The slave goes on alone for a while and is restarted: it knows of that reset.
        slave.commit(HOST, GROUP, TOPIC, 0, ConsumerOffset(70))
        slave.load(slave.render())
        await linked.copy()
        assert slave.query(GROUP, TOPIC, 0) == 70


async def test_a_group_that_goes_on_where_another_is_does_so_on_the_slave(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        commit(linked, 0, 5, "source")
        commit(linked, 0, 90)
        commit(linked, 1, 90)
        await linked.copy()
        header = CloneGroupOffsetRequest(src_group="source", dest_group=GROUP, topic=TOPIC)
        await linked.master.call(RequestCode.CLONE_GROUP_OFFSET, header)
        await linked.copy()
        assert linked.slave.offsets.offsets(GROUP, TOPIC) == {0: 5}


async def test_a_group_that_was_deleted_begins_anew_on_the_slave(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        linked.master.groups.put(SubscriptionGroupConfig(group_name=GROUP))
        commit(linked, 0, 90)
        commit(linked, 0, 7, "others")
        await linked.copy()
        header = DeleteSubscriptionGroupRequest(group_name=GROUP, remove_offset=True)
        await linked.master.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        await linked.copy()
        assert linked.slave.offsets.offsets(GROUP, TOPIC) == {}
        commit(linked, 0, 1)
        await linked.copy()
        assert linked.slave.offsets.offsets(GROUP, TOPIC) == {0: 1}
        assert linked.slave.offsets.query("others", TOPIC, 0) == 7


async def test_a_consumer_that_is_sent_back_by_the_broker_is_followed(tmp_path: Path) -> None:
    """Its topic was deleted and made again: offsets begin at 0."""
    async with pair(tmp_path) as linked:
        peer = await linked.master.join("a", consumer(subscription()))
        linked.master.put_many(9)
        commit(linked, 0, 9)
        await linked.copy()
        linked.master.core.plan_deletion([TOPIC]).run()
        linked.master.put_many(2)
        answer = await peer.request(pull(0, 9, commit=9))
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        header = UpdateConsumerOffsetRequest(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=2
        )
        await peer.request(frame(RequestCode.UPDATE_CONSUMER_OFFSET, header))
        await linked.copy()
        assert linked.slave.offsets.query(GROUP, TOPIC, 0) == 2


async def test_an_old_master_goes_back_with_the_one_that_took_its_place(tmp_path: Path) -> None:
    """The new master never got the last messages, and others take their place."""
    async with pair(tmp_path) as linked:
        new = linked.master
        old = linked.slave  # it was the master until now
        old.offsets.commit(HOST, GROUP, TOPIC, 0, ConsumerOffset(9))
        new.put_many(6)
        new.offsets.commit(HOST, GROUP, TOPIC, 0, ConsumerOffset(9))
        assert new.offsets.clamp(new.pulls._max_offset) == 1
        assert new.offsets.query(GROUP, TOPIC, 0) == 6
        await linked.copy()
        assert old.offsets.query(GROUP, TOPIC, 0) == 6
        new.put(b"in the place of others")
        answer = await new.ask(pull(0, new.offsets.query(GROUP, TOPIC, 0)))
        assert bodies_of(answer) == [b"in the place of others"]


# --- progress that rests on the log --------------------------------------------------------------


async def test_delivered_messages_count_when_the_slave_has_them(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        master, slave = linked.master, linked.slave
        linked.park(b"a", b"b")
        await linked.replicate()
        master.broker.delay.start()
        master.clock.ms += 1_000
        master.broker.delay.deliver()
        master.core.flush()
        assert master.broker.delay.to_body().offset_table == {1: 2}
        await linked.copy()
        # The two messages are not in the slave's log: as a master it has to deliver them.
        assert slave.broker.delay.progress() == {}
        assert linked.sync.status.awaited_end == master.core.log.readable
        await linked.replicate()
        linked.sync.take_reached()
        assert slave.broker.delay.progress() == {1: (2, 2)}
        assert linked.sync.status.awaited_end is None


async def test_progress_is_saved_when_the_log_is_on_disk(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        linked.park(b"a", b"b", level=3)
        linked.master.broker.delay.load('{"offsetTable":{3:2}}')
        await linked.replicate()
        await linked.copy()
        writer = linked.slave.broker.delay_writer
        assert not writer.is_unsaved
        linked.slave.core.flush()
        assert writer.is_unsaved
        await writer.save_now()
        saved = (tmp_path / "slave" / "config" / "delayOffset.json").read_text()
        end = linked.slave.core.log.flushed
        table = '{\n\t"offsetTable":{3:2\n\t},\n\t'
        assert saved == table + f'"trail":{{{end}:{{3:2\n\t\t}}\n\t}}\n}}'


async def test_the_progress_of_transaction_checks_counts_when_the_slave_has_what_was_done(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as linked:
        master, slave = linked.master, linked.slave
        master.put_many(3, topic=HALF_TOPIC)
        await linked.replicate()
        master.put_many(2, topic=HALF_TOPIC)  # copies of what was asked about
        master.offsets.commit(HOST, CHECKER, HALF_TOPIC, 0, ConsumerOffset(3))
        master.offsets.commit(HOST, CHECKER, OP_HALF_TOPIC, 0, ConsumerOffset(1))
        commit(linked, 0, 5)
        await linked.copy()
        assert slave.offsets.query(GROUP, TOPIC, 0) == 5
        assert slave.offsets.topics_of(CHECKER) == set()
        # Until it has all of it, half of it is nothing.
        await linked.replicate(master.core.log.readable - 1)
        linked.sync.take_reached()
        assert slave.offsets.topics_of(CHECKER) == set()
        await linked.replicate()
        linked.sync.take_reached()
        assert slave.offsets.query(CHECKER, HALF_TOPIC, 0) == 3
        assert slave.offsets.query(CHECKER, OP_HALF_TOPIC, 0) == 1


async def test_a_slave_that_is_always_behind_still_gets_on(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        master, slave = linked.master, linked.slave
        ends: list[int] = []
        for number in range(6):
            master.put_many(1, topic=HALF_TOPIC)
            master.offsets.commit(HOST, CHECKER, HALF_TOPIC, 0, ConsumerOffset(number))
            ends.append(master.core.log.readable)
            await linked.copy()
        await linked.replicate(ends[0])
        linked.sync.take_reached()
        assert slave.offsets.query(CHECKER, HALF_TOPIC, 0) == 0
        await linked.replicate(ends[4])
        linked.sync.take_reached()
        assert slave.offsets.query(CHECKER, HALF_TOPIC, 0) == 0, "only the last one is kept, too"
        await linked.replicate(ends[5])
        linked.sync.take_reached()
        assert slave.offsets.query(CHECKER, HALF_TOPIC, 0) == 5


async def test_progress_does_not_go_back(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        master, slave = linked.master, linked.slave
        linked.park(b"a", b"b", b"c")
        master.broker.delay.load('{"offsetTable":{1:3}}')
        master.offsets.commit(HOST, CHECKER, HALF_TOPIC, 0, ConsumerOffset(3))
        await linked.replicate()
        await linked.copy()
        master.broker.delay.load('{"offsetTable":{1:1}}')
        master.offsets.commit(HOST, CHECKER, HALF_TOPIC, 0, ConsumerOffset(1))
        await linked.copy()
        assert slave.broker.delay.progress() == {1: (3, 3)}
        assert slave.offsets.query(CHECKER, HALF_TOPIC, 0) == 3


async def test_progress_of_the_epoch_before_does_not_count(tmp_path: Path) -> None:
    """The log comes to the same end, but not with the same bytes."""
    async with pair(tmp_path) as linked:
        master, slave = linked.master, linked.slave
        linked.park(b"a", b"b", b"c")
        master.broker.delay.load('{"offsetTable":{1:3}}')
        master.offsets.commit(HOST, CHECKER, HALF_TOPIC, 0, ConsumerOffset(3))
        await linked.copy()
        assert linked.sync.status.awaited_end is not None
        await linked.sync.epoch_begins()
        assert linked.sync.status.awaited_end is None
        await linked.replicate()
        linked.sync.take_reached()
        assert slave.broker.delay.progress() == {}
        assert slave.offsets.topics_of(CHECKER) == set()


async def test_copied_progress_says_on_what_it_rests(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        master, slave = linked.master, linked.slave
        ends: list[int] = []
        for number in range(3):
            master.put_many(1, topic=HALF_TOPIC)
            master.offsets.commit(HOST, CHECKER, HALF_TOPIC, 0, ConsumerOffset(number))
            ends.append(master.core.log.readable)
            await linked.replicate()
            await linked.copy()
        for number in (1, 0):
            slave.offsets.set_back(PhysicalOffset(ends[number]), slave.core.queues.end_of)
            assert slave.offsets.query(CHECKER, HALF_TOPIC, 0) == number


# --- another epoch -------------------------------------------------------------------------------


async def test_offsets_behind_the_queues_are_the_masters_when_a_link_begins(tmp_path: Path) -> None:
    """Others may have been consumed of a log that this master does not have."""
    async with pair(tmp_path) as linked:
        master, slave = linked.master, linked.slave
        master.put_many(3)
        await linked.replicate()
        for group, offset in ((GROUP, 9), ("others", 2), ("third", 9)):
            slave.offsets.commit(HOST, group, TOPIC, 0, ConsumerOffset(offset))
        master.put_many(3)
        master.offsets.commit(HOST, "third", TOPIC, 0, ConsumerOffset(5))
        await linked.copy()
        assert slave.offsets.query(GROUP, TOPIC, 0) == 9, "nobody knows whose it is"
        linked.sync.trust(MASTER)
        await linked.copy()

        def seen() -> list[int]:
            return [slave.offsets.query(group, TOPIC, 0) for group in (GROUP, "others", "third")]

        assert seen() == [3, 2, 5]
        # Once: from then on what is behind the queues has come from this master.
        slave.offsets.commit(HOST, GROUP, TOPIC, 0, ConsumerOffset(6))
        linked.sync.trust(None)
        linked.sync.trust(MASTER)
        await linked.copy()
        assert seen() == [6, 2, 5]
        await linked.sync.epoch_begins()
        assert seen() == [3, 2, 3]
        slave.offsets.commit(HOST, GROUP, TOPIC, 0, ConsumerOffset(6))
        linked.sync.trust(None)
        await linked.copy()
        assert seen() == [6, 2, 5]
        linked.sync.trust(MASTER)
        await linked.copy()
        assert seen() == [3, 2, 5]


async def test_offsets_of_another_log_go_before_messages_of_a_new_epoch_come(
    tmp_path: Path,
) -> None:
    """Even if the log has grown behind them before tables are copied for the first time."""
    async with pair(tmp_path) as linked:
        master, slave = linked.master, linked.slave
        master.put_many(3)
        await linked.replicate()
        slave.offsets.commit(HOST, GROUP, TOPIC, 0, ConsumerOffset(5))
        await linked.sync.epoch_begins()
        assert f'"{TOPIC}@{GROUP}":{{0:3\n' in slave.tables.offsets_file.path.read_text()
        master.put_many(5)
        await linked.replicate()
        linked.sync.trust(MASTER)
        await linked.copy()
        assert slave.offsets.query(GROUP, TOPIC, 0) == 3


# --- many ----------------------------------------------------------------------------------------


async def test_a_hundred_thousand_offsets_leave_others_their_turn(tmp_path: Path) -> None:
    async with pair(tmp_path) as linked:
        for number in range(25_000):
            for queue_id in range(4):
                linked.master.offsets.commit(
                    HOST, f"group-{number % 50}", f"t-{number}", queue_id, ConsumerOffset(number)
                )
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            await linked.copy()
            nursery.cancel_scope.cancel()
        # To be written by the master, and to be read and taken over by the slave, which all take
        # about a tenth of a second.
        assert turns > 150
        assert linked.slave.offsets.encode() == linked.master.offsets.encode()


# --- what masters tell ---------------------------------------------------------------------------


async def test_answers_tell_where_the_log_ends(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(3)
        for code in (RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET):
            answer = await broker.call(code)
            assert answer.fields is None, "a stock slave gets what a stock master says"
            answer = await broker.ask(frame(code, extra={"logEnd": ""}))
            assert answer.fields == {"logEnd": str(broker.core.log.readable)}
            assert msgspec.json.decode(answer.body) == {"offsetTable": {}}


# --- over sockets --------------------------------------------------------------------------------


async def test_a_slave_copies_from_a_broker_on_sockets(tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path / "master")) as served:
        master = served.broker
        master.offsets.commit(HOST, GROUP, TOPIC, 0, ConsumerOffset(5))
        async with part_broker(tmp_path / "slave", SLAVE) as slave, open_client() as client:
            sync = sync_of(slave, client)
            sync.point_to(master.address)
            assert await sync.sync_now(), sync.status
            assert slave.topics.version == master.topics.version
            assert slave.groups.version == master.groups.version
            assert slave.offsets.query(GROUP, TOPIC, 0) == 5
