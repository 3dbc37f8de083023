"""The tables of live brokers and topic routes, from which a nameserver answers. Pure.

Brokers register periodically, each over its own connection; registrations are kept in memory only.
A broker address is listed until it unregisters, its connection ends, or it has been silent for too
long. With the last address of a broker name, everything about the name is removed.

Rules are those of RocketMQ 4.9.8 RouteInfoManager:

- Only a master (id 0) brings topics, and only when its data version differs from the last one or
  the master is new. Topics that it no longer mentions stay.
- An address has one id under a broker name: registering with another one gives up the first.
- When a master goes and its slaves stay, so do the topics; there is just no address with id 0.
- A write permission that was wiped returns with the next change of the broker's data version.

Where the original forgets to clean up, this table does not: an address that goes is removed from
every name and id it has, a name that goes from every cluster, and a connection that ends removes
all brokers that registered over it. Unregistering removes only the given address, also when another
broker has taken over its id.

Beyond 4.9.8, our brokers register with an epoch, which counts the masters of a broker name. A
master of an earlier epoch is refused, so a replaced master does not come back; one of a later epoch
replaces the listed one, which is forgotten. Stock brokers are of epoch 0: among themselves the last
one to register wins, as in 4.9.8, also where an in-sync record of other brokers is left.

Every host can claim any epoch, so it has to be confirmed. The in-sync record that masters store in
the KV config (`record_guard`, here `recorded`) confirms it: a master of an earlier epoch than the
record's is refused even if it is the listed one, and a later one may be at most one ahead, because
its record may still be in flight. That one is believed as long as its connection lives, and not
remembered. Without a record, the latest epoch of a master is remembered with the name, the next one
may be at most one ahead, and the listed address stays whatever its epoch. A leap is refused without
fencing any broker; a master whose promotions this nameserver has missed stores its record first.

What takes long is done in steps of about a millisecond: methods that walk tables are generators,
and their work is complete when they are exhausted. A broker that goes is marked, and from that
moment on it is in no answer that is begun. What it leaves behind in the tables is removed by
`clean`, in steps, or by the next registration of its name or address. So a removal costs what is
removed, and while 10,000 brokers are removed, other requests wait for one step at most.

No tasks, no clock (`now` is passed in), no bytes. A connection is any hashable object.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, final

import msgspec

from rmq.model.names import MASTER_ID
from rmq.model.topic_flags import (
    PERM_READ,
    PERM_WRITE,
)
from rmq.nameserver.registration import (
    C,
    Expired,
    LeapError,
    Master,
    Registered,
    RouteLimits,
    StaleEpochError,
    refuse,
)
from rmq.nameserver.table_entries import ENTRIES_PER_STEP, Broker, Live, Session, Tables
from rmq.remoting.bodies.routes import QueueData

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from rmq.nameserver.registration import Registration
    from rmq.remoting.bodies.topics import DataVersion, TopicConfig


@final
class RouteTable(Generic[C]):
    """The tables of one nameserver."""

    def __init__(
        self,
        limits: RouteLimits | None = None,
        *,
        recorded: Callable[[str], int] = lambda _name: 0,
    ) -> None:
        """`recorded` returns the epoch of a name's in-sync record, 0 if there is none."""
        self._limits = limits or RouteLimits()
        self._recorded = recorded
        self.tables: Tables[C] = Tables()
        self._topics = self.tables.topics
        self._brokers = self.tables.brokers
        self._clusters = self.tables.clusters
        self._live: dict[str, Live[C]] = {}
        self._sessions: dict[C, Session[C]] = {}
        self._queue_entries = 0
        self._alive = 0
        self.removals: dict[str, int] = {}
        """How many brokers were removed since the start, by the reason."""
        # What `clean` has to do.
        self._lost: deque[Session[C]] = deque()
        self._gone: deque[Live[C]] = deque()
        self._orphans: deque[Broker[C]] = deque()
        self.version = 0
        """Changes with everything that any answer tells."""
        self.brokers_version = 0
        """Changes when a broker comes, goes or moves."""
        self.on_topic: Callable[[str], None] = lambda _topic: None
        """Called with a topic whose queues have changed, or that is gone."""

    @property
    def topic_count(self) -> int:
        """How many topics there are, with those that `clean` is about to remove."""
        return len(self._topics)

    @property
    def address_count(self) -> int:
        """How many brokers are alive, masters and slaves."""
        return self._alive

    @property
    def needs_cleaning(self) -> bool:
        """Whether `clean` has work to do."""
        return bool(self._lost or self._gone or self._orphans)

    # ---- brokers come and go ---------------------------------------------------------------------

    def register(
        self, said: Registration, connection: C, now: float
    ) -> Generator[None, None, Registered]:
        """Apply a registration; raise `RefusedError`, with nothing changed, for an invalid one.
        That is a `StaleEpochError` for a master that was replaced, and a `LeapError` for one whose
        epoch cannot be believed.

        A master and its topics are listed step by step; its data version is known at the end.
        """
        said, left_out = yield from self._limits.admit(said)
        is_master = said.broker_id == MASTER_ID
        new_topics = (yield from self._count_new(said)) if is_master else 0
        self._clean_around(said)
        deposed = self._deposed_by(said) if is_master else None
        brings_topics = is_master and (deposed is not None or self._is_news(said))
        self._check_room(said, new_topics if brings_topics else 0)
        # From here to the topics there is no step: a broker is listed as a whole.
        live, is_new = self._keep_alive(said, connection, now)
        brokers_changed = self._place(said, live)
        if deposed is not None:
            self._forget_if_nowhere(deposed)
        brokers_changed |= _put_filter_servers(live, said)
        if brokers_changed:
            self._brokers_changed()
        topics_changed = 0
        if brings_topics:
            topics_changed = yield from self._put_topics(said, live)
        elif not live.registering:
            live.data_version = said.data_version
        return Registered(
            is_new,
            topics_changed,
            self._master_for(said),
            self._backed_epoch(said.broker_name),
            None if deposed is None else deposed.address,
            left_out,
        )

    def unregister(self, address: str) -> bool:
        """Remove a broker that unregisters; return whether it was known."""
        live = self._live_at(address)
        if live is None:
            return False
        self._mark_gone(live)
        self._drop(live)
        self._brokers_changed()
        self._count_removals("unregistered", 1)
        return True

    def holder(self, address: str) -> C | None:
        """The connection that a broker used last; None when it is not alive."""
        live = self._live_at(address)
        return None if live is None else live.session.connection

    def data_version(self, address: str) -> DataVersion | None:
        """The data version with which a broker last registered; None when it is not alive."""
        live = self._live_at(address)
        return None if live is None else live.data_version

    def epoch_of(self, name: str) -> int:
        """Return the latest known epoch of a name; 0 if there is none."""
        broker = self._broker(name)
        return max(self._backed_epoch(name), 0 if broker is None else broker.listed_epoch)

    def heard_of(self, address: str, connection: C, now: float) -> None:
        """Note a sign of life of a broker without a registration."""
        live = self._live_at(address)
        if live is not None:
            live.heard_at = now
            self._attribute(live, connection)

    def connection_lost(self, connection: C) -> list[str]:
        """Remove the brokers that registered over a connection; return their addresses."""
        session = self._sessions.pop(connection, None)
        if session is None:
            return []
        session.is_lost = True
        self._lost.append(session)
        self._alive -= len(session.lives)
        self._brokers_changed()
        self._count_removals("connection_lost", len(session.lives))
        return list(session.lives)

    def expire(self, now: float, silence_s: float) -> list[Expired[C]]:
        """Remove the brokers that were silent for longer than `silence_s`."""
        silent = [
            live
            for live in self._live.values()
            if now - live.heard_at > silence_s and not live.is_gone
        ]
        for live in silent:
            self._mark_gone(live)
            self._gone.append(live)
        if silent:
            self._brokers_changed()
            self._count_removals("expired", len(silent))
        return [
            Expired(
                live.address,
                now - live.heard_at,
                None if live.session.lives else live.session.connection,
            )
            for live in silent
        ]

    def _count_removals(self, reason: str, count: int) -> None:
        self.removals[reason] = self.removals.get(reason, 0) + count

    def clean(self) -> Generator[None, None, None]:
        """Remove what brokers that are gone have left behind."""
        done = 0
        while self.needs_cleaning:
            if self._orphans:
                orphan = self._orphans[0]
                if orphan.queues:
                    self._remove_queues(orphan, next(reversed(orphan.queues)))
                else:
                    self._orphans.popleft()
            elif self._gone:
                self._drop(self._gone.popleft())
            elif self._lost[0].lives:
                self._drop(self._lost[0].lives.popitem()[1])
            else:
                self._lost.popleft()
            done += 1
            if done % ENTRIES_PER_STEP == 0:
                yield

    def _broker(self, name: str) -> Broker[C] | None:
        """Return a broker name, rid of its addresses that are gone."""
        broker = self._brokers.get(name)
        if broker is None:
            return None
        for live in [live for live in broker.lives.values() if live.is_gone]:
            self._drop(live)
        return None if broker.is_removed else broker

    def _live_at(self, address: str) -> Live[C] | None:
        live = self._live.get(address)
        return None if live is None or live.is_gone else live

    def _clean_around(self, said: Registration) -> None:
        self._broker(said.broker_name)
        live = self._live.get(said.address)
        if live is not None and live.is_gone:
            self._drop(live)

    def _count_new(self, said: Registration) -> Generator[None, None, int]:
        """Count the topics that this broker name has not had so far."""
        new = 0
        for start in range(0, len(said.topics), ENTRIES_PER_STEP):
            if start:
                yield
            broker = self._brokers.get(said.broker_name)
            known = {} if broker is None else broker.queues
            part = said.topics[start : start + ENTRIES_PER_STEP]
            new += sum(topic.topic_name not in known for topic in part)
        return new

    def _deposed_by(self, said: Registration) -> Live[C] | None:
        """Return the master that a registering one replaces; None if there is none.

        Raise `StaleEpochError` if the listed one is later, `LeapError` if the epoch cannot be
        believed.
        """
        name, epoch = said.broker_name, said.epoch
        backed = self._backed_epoch(name)
        if backed and epoch > backed + 1:
            raise LeapError(said, backed)
        broker = self._brokers.get(name)
        master = None if broker is None else broker.lives.get(MASTER_ID)
        listed = None if master is None else master.address
        recorded = self._recorded(name)
        if broker is not None and listed != said.address:
            latest = max(broker.listed_epoch, 0 if recorded else broker.epoch)
            if epoch < latest:
                present = "it is gone" if listed is None else f"it is at {listed}"
                raise StaleEpochError(said, latest, f"there is one of epoch {latest}: {present}")
        if 0 < epoch < recorded:
            raise StaleEpochError(said, recorded, f"the in-sync record is of epoch {recorded}")
        if broker is None or listed == said.address or epoch <= broker.listed_epoch:
            return None
        return master

    def _backed_epoch(self, name: str) -> int:
        """Return the latest confirmed epoch of a name; 0 if there is none."""
        recorded = self._recorded(name)
        broker = self._brokers.get(name)
        return recorded or (0 if broker is None else broker.epoch)

    def _is_news(self, said: Registration) -> bool:
        """Whether the topics of a registration are to be read at all."""
        broker = self._brokers.get(said.broker_name)
        if broker is None or said.broker_id not in broker.lives:
            return True
        return self.data_version(said.address) != said.data_version

    def _check_room(self, said: Registration, new_topics: int) -> None:
        limits = self._limits
        live = self._live.get(said.address)
        if live is None and self._alive >= limits.addresses_max:
            refuse(f"{limits.addresses_max} brokers are registered, the limit")
        name = said.broker_name
        broker = self._brokers.get(name)
        if broker is None:
            if len(self._brokers) >= limits.addresses_max:
                refuse(f"{limits.addresses_max} broker names are known, the limit")
        else:
            if said.broker_id not in broker.lives and len(broker.lives) >= limits.ids_max:
                refuse(f"{name} has {limits.ids_max} brokers, the limit")
            if said.cluster not in broker.clusters and len(broker.clusters) >= limits.clusters_max:
                refuse(f"{name} has been in {limits.clusters_max} clusters, the limit")
        if live is not None and name not in live.names and len(live.names) >= limits.names_max:
            refuse(f"{said.address} has {limits.names_max} broker names, the limit")
        if self._queue_entries + new_topics > limits.queue_entries_max:
            refuse(
                f"{new_topics} more topics of {name}: with {self._queue_entries} known,"
                f" the limit of {limits.queue_entries_max} would be passed"
            )

    def _place(self, said: Registration, live: Live[C]) -> bool:
        """Put a broker under its name and id; return whether that changed anything."""
        changed = False
        name = said.broker_name
        broker = self._brokers.get(name)
        if broker is None:
            broker = self._brokers[name] = Broker(name, said.cluster)
        if said.cluster not in broker.clusters:
            broker.clusters[said.cluster] = None
            self._clusters.setdefault(said.cluster, {})[name] = None
            changed = True
        lives = broker.lives
        if name in live.names:
            for other_id in [i for i, other in lives.items() if other is live]:
                if other_id != said.broker_id:
                    del lives[other_id]
                    changed = True
        before = lives.get(said.broker_id)
        if before is not live:
            if before is not None:
                del before.names[name]
            lives[said.broker_id] = live
            live.names[name] = None
            changed = True
        if said.broker_id == MASTER_ID:
            broker.said_epoch = said.epoch
            broker.epoch = self._recorded(name) or max(broker.epoch, said.epoch)
        return changed

    def _put_topics(self, said: Registration, live: Live[C]) -> Generator[None, None, int]:
        """List the topics of a master; return how many have changed."""
        # Until all are listed, no data version counts as known: should this end early, the broker
        # brings them again. The same if registrations of one broker overlap.
        live.data_version = None
        live.registrations += 1
        number = live.registrations
        live.registering += 1
        changed = 0
        try:
            for start in range(0, len(said.topics), ENTRIES_PER_STEP):
                if start:
                    yield
                    self._check_is_master(said, live)
                broker = self._brokers[said.broker_name]
                for topic in said.topics[start : start + ENTRIES_PER_STEP]:
                    changed += self._put_topic(broker, topic)
        finally:
            live.registering -= 1
        if not live.registering and live.registrations == number:
            live.data_version = said.data_version
        return changed

    def _check_is_master(self, said: Registration, live: Live[C]) -> None:
        broker = self._broker(said.broker_name)
        if broker is None or broker.lives.get(MASTER_ID) is not live:
            refuse(
                f"{said.address} is master of {said.broker_name} no longer; it was removed or"
                " replaced while its topics were read"
            )

    def _put_topic(self, broker: Broker[C], config: TopicConfig) -> bool:
        queues = QueueData(
            broker_name=broker.name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_sys_flag=config.topic_sys_flag,
        )
        topic = config.topic_name
        before = broker.queues.get(topic)
        if before == queues:
            return False
        if before is None:
            by_broker = self._topics.setdefault(topic, {})
            # An earlier broker of this name may be left here. Its place goes, too.
            by_broker.pop(broker.name, None)
            by_broker[broker.name] = broker
            self._queue_entries += 1
        broker.queues[topic] = queues
        self._topic_changed(topic)
        return True

    def _keep_alive(self, said: Registration, connection: C, now: float) -> tuple[Live[C], bool]:
        live = self._live.get(said.address)
        if live is not None:
            live.heard_at = now
            live.ha_address = said.ha_address
            self._attribute(live, connection)
            return live, False
        session = self._session(connection)
        live = Live(said.address, said.ha_address, now, session)
        self._live[said.address] = session.lives[said.address] = live
        self._alive += 1
        return live, True

    def _session(self, connection: C) -> Session[C]:
        session = self._sessions.get(connection)
        if session is None:
            session = self._sessions[connection] = Session(connection)
        return session

    def _attribute(self, live: Live[C], connection: C) -> None:
        """Attach a broker to the connection it used last: the end of an older one, perhaps minutes
        after the broker left it, does not remove the broker.
        """
        if live.session.connection != connection:
            self._detach(live)
            live.session = self._session(connection)
            live.session.lives[live.address] = live

    def _detach(self, live: Live[C]) -> None:
        session = live.session
        del session.lives[live.address]
        if not session.lives:
            del self._sessions[session.connection]

    def _master_for(self, said: Registration) -> Master | None:
        broker = self._broker(said.broker_name)
        master = None if broker is None else broker.lives.get(MASTER_ID)
        if said.broker_id == MASTER_ID or master is None:
            return None
        return Master(master.address, master.ha_address)

    def _forget_if_nowhere(self, master: Live[C]) -> None:
        """Forget a replaced master, unless it is listed under another id or name.

        Otherwise its data version would count as known, and it would not learn that it was
        replaced.
        """
        if not master.names:
            self._mark_gone(master)
            self._drop(master)

    def _mark_gone(self, live: Live[C]) -> None:
        live.is_removed = True
        self._alive -= 1
        self._detach(live)

    def _drop(self, live: Live[C]) -> None:
        """Remove a broker that is marked from all names; those without any broker go with it."""
        for name in live.names:
            broker = self._brokers[name]
            for broker_id in [i for i, other in broker.lives.items() if other is live]:
                del broker.lives[broker_id]
            if not broker.lives:
                self._remove_broker(broker)
        live.names.clear()
        if self._live.get(live.address) is live:
            del self._live[live.address]

    def _remove_broker(self, broker: Broker[C]) -> None:
        broker.is_removed = True
        del self._brokers[broker.name]
        for cluster in broker.clusters:
            members = self._clusters[cluster]
            del members[broker.name]
            if not members:
                del self._clusters[cluster]
        if broker.queues:
            self._orphans.append(broker)

    def _brokers_changed(self) -> None:
        self.version += 1
        self.brokers_version += 1

    def _topic_changed(self, topic: str) -> None:
        self.version += 1
        self.on_topic(topic)

    # ---- what operators change -------------------------------------------------------------------

    def wipe_write_perm(self, broker_name: str) -> Generator[None, None, int]:
        """Remove the write permission of a broker's queues; return how many topics it has."""
        return self._set_perms(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> Generator[None, None, int]:
        """Give a broker's queues read and write permission; return how many topics it has."""
        return self._set_perms(broker_name, lambda _perm: PERM_READ | PERM_WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> Generator[None, None, bool]:
        """Forget a topic, everywhere or in one cluster; return whether it was known there."""
        was_known = False
        for number, broker in enumerate(list(self._topics.get(topic, {}).values()), start=1):
            if cluster and cluster not in broker.clusters:
                continue
            was_known |= broker.is_alive
            if topic in broker.queues:
                self._remove_queues(broker, topic)
            if number % ENTRIES_PER_STEP == 0:
                yield
        return was_known

    def _set_perms(
        self, broker_name: str, new_perm: Callable[[int], int]
    ) -> Generator[None, None, int]:
        broker = self._broker(broker_name)
        if broker is None:
            return 0
        count = 0
        for number, topic in enumerate(list(broker.queues), start=1):
            queues = broker.queues.get(topic)
            if queues is not None:
                count += 1
                perm = new_perm(queues.perm)
                if perm != queues.perm:
                    broker.queues[topic] = msgspec.structs.replace(queues, perm=perm)
                    self._topic_changed(topic)
            if number % ENTRIES_PER_STEP == 0:
                yield
        return count

    def _remove_queues(self, broker: Broker[C], topic: str) -> None:
        del broker.queues[topic]
        self._queue_entries -= 1
        by_broker = self._topics[topic]
        if by_broker.get(broker.name) is broker:
            del by_broker[broker.name]
            if not by_broker:
                del self._topics[topic]
        if broker.is_removed:
            # It has been in no answer for some time.
            if not by_broker:
                self.on_topic(topic)
        else:
            self._topic_changed(topic)


def _put_filter_servers(live: Live[C], said: Registration) -> bool:
    servers = said.filter_servers
    if servers is None or live.filter_servers == servers:
        return False
    live.filter_servers = servers
    return True
