"""The route table, and its answers kept as bytes, against the naive rules over random histories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rmq.model.topic_flags import UNIT_FLAG, UNIT_SUB_FLAG
from rmq.nameserver import routes
from rmq.nameserver.registration import LeapError, StaleEpochError
from rmq.nameserver.route_answers import RouteAnswers
from rmq.remoting.bodies.topics import TopicList
from tests.nameserver.kit import WholeTable, saying, topic
from tests.nameserver.naive_routes import NaiveRoutes, Queues
from tests.stepping import finish

if TYPE_CHECKING:
    from collections.abc import Generator

    from rmq.remoting.bodies.topics import TopicConfig

SILENCE_S = 120.0

names = st.sampled_from(["a", "b"])
addresses = st.sampled_from(["x:1", "y:1", "z:1"])
clusters = st.sampled_from(["c", "d"])
connections = st.sampled_from(["one", "two", "three"])
topics = st.sampled_from(["T", "U", "V"])
configs = st.builds(
    topic,
    topics,
    perm=st.sampled_from([7, 6, 4]),
    queues=st.integers(1, 2),
    flag=st.integers(0, 3),
)


class RouteHistory(RuleBasedStateMachine):
    """Anything brokers and operators may do, in any order."""

    epochs = st.sampled_from([0, 0, 1, 2, 3, 5])
    records = st.sampled_from([0, 1, 2, 4])
    """Epochs of in-sync records that somebody keeps; 0: one is deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.model = NaiveRoutes()
        self.table: WholeTable = WholeTable(recorded=lambda name: self.model.records.get(name, 0))
        self.answers = RouteAnswers(self.table.table)
        self.cleaning: Generator[None, None, None] | None = None
        self.small_steps = pytest.MonkeyPatch()
        self.small_steps.setattr(routes, "ENTRIES_PER_STEP", 1)

    def teardown(self) -> None:
        self.small_steps.undo()

    @rule(
        name=names,
        broker_id=st.sampled_from([0, 0, 1, 2]),
        address=addresses,
        cluster=clusters,
        version=st.integers(1, 2),
        configs=st.lists(configs, max_size=3, unique_by=lambda config: config.topic_name),
        filter_servers=st.sampled_from([None, (), ("f:1",), ("f:1", "f:2")]),
        connection=connections,
        epoch=st.runner().flatmap(lambda self: self.epochs),
    )
    def register(
        self,
        name: str,
        broker_id: int,
        address: str,
        cluster: str,
        version: int,
        configs: list[TopicConfig],
        filter_servers: tuple[str, ...] | None,
        connection: str,
        epoch: int,
    ) -> None:
        said = saying(
            name,
            broker_id,
            address,
            cluster=cluster,
            version=version,
            topics=configs,
            filter_servers=filter_servers,
            epoch=epoch,
        )
        if self.model.leaps(said):
            with pytest.raises(LeapError):
                self.table.register(said, connection, self.now)
            return
        later = self.model.stale_by(said)
        if later is not None:
            with pytest.raises(StaleEpochError) as refusal:
                self.table.register(said, connection, self.now)
            assert refusal.value.epoch == later
            return
        is_new = address not in self.model.alive
        deposed = self.model.deposes(said)
        master = self.model.register(said, connection, self.now)
        outcome = self.table.register(said, connection, self.now)
        assert (outcome.is_new, outcome.master) == (is_new, master)
        assert (outcome.epoch, outcome.deposed) == (self.model.epoch(name), deposed)

    @rule(name=names, epoch=st.runner().flatmap(lambda self: self.records))
    def keep_record(self, name: str, epoch: int) -> None:
        self.model.records[name] = epoch
        if not epoch:
            del self.model.records[name]

    @rule(address=addresses)
    def unregister(self, address: str) -> None:
        assert self.table.unregister(address) == self.model.unregister(address)

    @rule(address=addresses, connection=connections)
    def hear_of(self, address: str, connection: str) -> None:
        self.table.heard_of(address, connection, self.now)
        self.model.heard_of(address, connection, self.now)

    @rule(connection=connections)
    def lose_connection(self, connection: str) -> None:
        lost = sorted(self.table.connection_lost(connection))
        assert lost == self.model.connection_lost(connection)

    @rule(seconds=st.sampled_from([1.0, 60.0, 120.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def expire(self) -> None:
        expired = self.table.expire(self.now, SILENCE_S)
        assert sorted((each.address, each.connection) for each in expired) == self.model.expire(
            self.now, SILENCE_S
        )

    @rule(steps=st.integers(1, 3))
    def clean_some(self, steps: int) -> None:
        """What brokers leave behind may stay for a while, and then go in parts."""
        self.cleaning = self.cleaning or self.table.table.clean()
        for _ in range(steps):
            if next(self.cleaning, self) is self:
                self.cleaning = None
                break

    @rule()
    def clean(self) -> None:
        # One that was begun earlier goes on after this one.
        assert self.table.topic_count == len(self.model.topics)
        assert not self.table.table.needs_cleaning

    @rule(name=names, wipe=st.booleans())
    def change_permissions(self, name: str, wipe: bool) -> None:
        change = self.table.wipe_write_perm if wipe else self.table.add_write_perm
        assert change(name) == self.model.set_perms(name, wipe=wipe)

    @rule(name=topics, cluster=st.none() | clusters)
    def delete_topic(self, name: str, cluster: str | None) -> None:
        assert self.table.delete_topic(name, cluster) == self.model.delete_topic(name, cluster)

    @invariant()
    def brokers_agree(self) -> None:
        info = self.table.cluster_info()
        assert {
            (name, broker_id, address)
            for name, data in info.broker_addr_table.items()
            for broker_id, address in data.broker_addrs.items()
        } == self.model.places
        assert {
            name: data.cluster for name, data in info.broker_addr_table.items()
        } == self.model.first_cluster
        assert {
            (cluster, name) for cluster, names in info.cluster_addr_table.items() for name in names
        } == self.model.members
        assert self.table.address_count == len(self.model.alive)
        for address in ("x:1", "y:1", "z:1"):
            alive = self.model.alive.get(address)
            assert self.table.data_version(address) == (alive and alive.version)

    @invariant()
    def epochs_agree(self) -> None:
        for name in ("a", "b"):
            latest = max(self.model.epoch(name), self.model.listed_epoch(name))
            assert self.table.epoch_of(name) == latest

    @invariant()
    def routes_agree(self) -> None:
        for name in ("T", "U", "V"):
            route = self.table.route(name, "order")
            brokers = {broker for known, broker in self.model.queues if known == name}
            if not brokers:
                assert route is None
                continue
            assert route is not None
            assert route.order_topic_conf == "order"
            assert {
                data.broker_name: Queues(
                    data.read_queue_nums, data.write_queue_nums, data.perm, data.topic_sys_flag
                )
                for data in route.queue_datas
            } == {broker: self.model.queues[name, broker] for broker in brokers}
            assert {data.broker_name for data in route.broker_datas} == brokers
            assert route.filter_server_table == {
                address: servers
                for broker, _, address in self.model.places
                if broker in brokers and (servers := self.model.filter_servers.get(address))
            }

    @invariant()
    def lists_agree(self) -> None:
        assert self.table.topics() == self.model.topics
        assert self.table.table.topic_count >= len(self.model.topics)
        for cluster in ("c", "d", "unknown"):
            assert self.table.topics_of_cluster(cluster) == {
                name
                for name, broker in self.model.queues
                if (cluster, broker) in self.model.members
            }
        system, address = self.table.system_topics()
        assert system == {name for member in self.model.members for name in member}
        assert (address is None) == (not self.model.places)
        for set_bits, clear_bits in ((1, 0), (2, 0), (2, 1)):
            found = self.table.topics_flagged(set_bits=set_bits, clear_bits=clear_bits)
            for name in self.model.topics:
                # Any one broker's flag may decide.
                verdicts = {
                    queues.flag & set_bits == set_bits and not queues.flag & clear_bits
                    for (known, _), queues in self.model.queues.items()
                    if known == name
                }
                assert (name in found) in verdicts
            assert found <= self.model.topics

    @invariant()
    def kept_answers_are_as_good_as_new_ones(self) -> None:
        table, answers = self.table, self.answers
        for name in ("T", "U", "V"):
            for standard in (False, True):
                for order in (None, "a:4"):
                    fresh = table.route(name, order)
                    body = fresh and fresh.encode(standard=standard)
                    kept = answers.known_route(name, standard=standard, order_topic_conf=order)
                    assert kept in (None, body)
                    answer = answers.route(name, standard=standard, order_topic_conf=order)
                    assert finish(answer) == body
        assert finish(answers.cluster_info()) == table.cluster_info().encode()
        system, address = table.system_topics()
        assert finish(answers.system_topics()) == encoded(system, address)
        for answer, names in (
            (answers.topics(), table.topics()),
            (answers.unit_topics(), table.topics_flagged(set_bits=UNIT_FLAG)),
            (answers.unit_sub_topics(), table.topics_flagged(set_bits=UNIT_SUB_FLAG)),
            (
                answers.unit_sub_topics_not_unit(),
                table.topics_flagged(set_bits=UNIT_SUB_FLAG, clear_bits=UNIT_FLAG),
            ),
            *(
                (answers.topics_of_cluster(cluster), table.topics_of_cluster(cluster))
                for cluster in ("c", "d", "unknown")
            ),
        ):
            assert finish(answer) == encoded(names)


def encoded(names: set[str], address: str | None = None) -> bytes:
    return TopicList(topic_list=frozenset(names), broker_addr=address).encode()


class StockHistory(RouteHistory):
    """The same among stock brokers, of which none is ever refused or forgotten for another."""

    epochs = st.just(0)
    records = st.just(0)

    @invariant()
    def nobody_has_an_epoch(self) -> None:
        assert not any(map(self.model.epoch, ("a", "b")))


TestRouteHistory = RouteHistory.TestCase
TestRouteHistory.settings = settings(max_examples=60, stateful_step_count=30)
TestStockHistory = StockHistory.TestCase
TestStockHistory.settings = settings(max_examples=30, stateful_step_count=30)
