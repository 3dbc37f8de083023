"""Scenarios of replication as text: what happens, line by line, and what is to be seen then.

A master with a log, slaves with logs of their own, and raw peers that send any bytes. Between lines
everything that can flow flows, and no time passes but by `at`. Lines, with `#` for comments:

    master sync needed 2 secret s            how the master is set up: see `_master`
    log 1000                                 it has at least so many bytes already
    append m1 100                            a producer sends a message of 100 bytes
    slave a native copy 500                  a slave whose log has the first bytes of the master's
    a connects                               and greets; `a connects again` leaves the old link open
    a reports 500 / a sends ff00             what a raw peer says
    hold a data | hold a acks                nothing flows to, or from, a slave until `release a`
    a takes 30                               of what is held, so many bytes arrive
    a is cut / a closes                      both hear that its link is gone; only the slave knows
    flush a / expire 1                       a slave's log is on disk; the oldest segment is gone
    switch async / rules needed 2            what operators change
    at 5.0 s                                 time passes, and every tick in it
    expect ...                               see `tests.ha.protocol.scenario_expectations`
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmq.ha.protocol.master import Master, MasterSettings
from rmq.ha.protocol.master_link import MasterLink
from rmq.ha.protocol.pending_acks import AckOutcome, ReplicationMode
from rmq.ha.protocol.slave_link import SlaveLink, SlaveSettings
from rmq.ha.protocol.wire import PREAMBLE, REPORT, CatchUp
from rmq.model.offsets import PhysicalOffset
from tests.ha.protocol.scenario_expectations import EXPECTATIONS
from tests.ha.simulation.disk import SimLog

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.ha.protocol.slaves import InSyncRules

STATUS: Final = {
    AckOutcome.REPLICATED: "SEND_OK",
    AckOutcome.TIMED_OUT: "FLUSH_SLAVE_TIMEOUT",
    AckOutcome.NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
}
_TICKS_MAX: Final = 10_000
_NONCE: Final = bytes(range(16))


class ScenarioError(AssertionError):
    """A line says what is not so."""


class Link:
    """A connection of a peer."""

    def __init__(self, link: MasterLink) -> None:
        self.master = link
        self.is_open_here = True
        """The slave has not closed it."""
        self.is_open_there = True
        """The master has not closed it."""
        self.to_slave = bytearray()
        self.to_master = bytearray()


class Peer:
    """A slave, or somebody who says what it likes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.host = f"host-{name}"
        self.log = SimLog()
        self.settings: SlaveSettings | None = None
        """None: it is raw, and no machine of ours."""
        self.is_native = True
        self.epoch = 1
        self.link: Link | None = None
        self.slave: SlaveLink | None = None
        self.old_links: list[Link] = []
        self.holds_data = False
        self.holds_acks = False
        self.received = bytearray()
        """What a raw peer was sent."""


class Stage:
    """Plays one scenario."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log = SimLog()
        self.settings = MasterSettings(
            cluster="c", broker_name="b", address="m:10911", store_id=b"m" * 16
        )
        self.mode = ReplicationMode.SYNC
        self.epoch = 1
        self._master_machine: Master[str] | None = None
        self.peers: dict[str, Peer] = {}
        self.answers: dict[str, str] = {}
        self._number = 0

    @property
    def master(self) -> Master[str]:
        if self._master_machine is None:
            self._master_machine = Master(
                self.settings, self.log, epoch=self.epoch, mode=self.mode, now=self.now
            )
        return self._master_machine

    def play(self, line: str) -> None:
        """Do what one line says."""
        words = line.split()
        if words[0] == "expect":
            self._expect(line.removeprefix("expect").strip())
        elif words[0] in self.peers:
            self._peer_line(self.peers[words[0]], words[1:])
        else:
            getattr(self, f"_{words[0]}")(words[1:])
        self._flow()

    # --- setting up ------------------------------------------------------------------------------

    def _master(self, words: list[str]) -> None:
        options = _options(words)
        self.mode = ReplicationMode(words[0])
        self.epoch = int(options.get("epoch", 1))
        self.settings = replace(
            self.settings,
            cluster=options.get("cluster", "c"),
            secret=options.get("secret", "").encode(),
            takes_stock="native-only" not in options,
            catch_up=CatchUp.LAST_FILE if "last-file" in options else CatchUp.OLDEST,
            catch_up_bytes_per_s=int(options.get("throttle", 0)),
            frame_bytes=int(options.get("frame", 512 * 1024)),
            rules=_rules(self.settings.rules, options),
        )

    def _log(self, words: list[str]) -> None:
        while self.log.end < int(words[0]):
            self._number += 1
            self.log.append_record(self._number, 40)
        self.log.flush()

    def _slave(self, words: list[str]) -> None:
        name, dialect, *rest = words
        options = _options(rest)
        peer = self.peers[name] = Peer(name)
        place = options.get("at", name)
        peer.host = options.get("on", f"host-{place}")
        peer.epoch = int(options.get("epoch", 1))
        if dialect == "raw":
            return
        peer.is_native = dialect == "native"
        store = options.get("store", name)
        peer.settings = SlaveSettings(
            cluster=options.get("cluster", "c"),
            broker_name="b",
            broker_id=len(self.peers),
            address=f"{place}:10911",
            store_id=store.encode().ljust(16, b"."),
            secret=options.get("secret", "").encode(),
            catch_up=CatchUp.LAST_FILE if "last-file" in options else CatchUp.OLDEST,
        )
        peer.log.append(self.log.read(0, int(options.get("copy", 0))))
        if "differs" in options:
            peer.log.data[int(options["differs"])] ^= 0xFF
        if "longer" in options:
            peer.log.append(bytes(int(options["longer"])))
        peer.log.flush()

    # --- what happens ------------------------------------------------------------------------

    def _append(self, words: list[str]) -> None:
        name, size = words[0], int(words[1])
        master = self.master
        if master.pending_acks.refuses():
            self.answers[name] = "refused"
            return
        self._number += 1
        _, end = self.log.append_record(self._number, size)
        master.grew(self.now)
        outcome = master.pending_acks.ask(PhysicalOffset(end), self.now, name)
        self.answers[name] = "waits" if outcome is None else STATUS[outcome]

    def _hold(self, words: list[str]) -> None:
        peer = self.peers[words[0]]
        peer.holds_data |= words[1] == "data"
        peer.holds_acks |= words[1] == "acks"

    def _release(self, words: list[str]) -> None:
        peer = self.peers[words[0]]
        peer.holds_data = peer.holds_acks = False

    def _flush(self, words: list[str]) -> None:
        self.peers[words[0]].log.flush()

    def _expire(self, words: list[str]) -> None:
        self.log.flush()
        self.log.expire(int(words[0]))

    def _switch(self, words: list[str]) -> None:
        self.master.pending_acks.switch(ReplicationMode(words[0]), PhysicalOffset(self.log.end))

    def _rules(self, words: list[str]) -> None:
        """Other rules, also for those who wait."""
        self.settings = replace(self.settings, rules=_rules(self.settings.rules, _options(words)))
        self.master.reconfigure(self.settings, self.now)

    def _news(self, words: list[str]) -> None:
        self.master.announce()

    def _at(self, words: list[str]) -> None:
        stop = float(words[0])
        for _ in range(_TICKS_MAX):
            times = [link.next_tick for link in self._links()]
            times += [slave.next_tick for slave in self._slaves()]
            deadline = self.master.pending_acks.next_deadline()
            times += [] if deadline is None else [deadline]
            # Who is in sync is looked at each second.
            times.append(float(int(self.now) + 1))
            next_at = min(times)
            if next_at > stop:
                break
            self.now = max(self.now, next_at)
            self._tick()
        else:
            raise ScenarioError(f"time stands still at {self.now}")
        self.now = stop
        self._tick()

    def _tick(self) -> None:
        for link in self._links():
            if link.next_tick <= self.now:
                link.tick(self.now)
        for slave in self._slaves():
            if slave.next_tick <= self.now:
                slave.tick(self.now)
        self.master.slaves.refresh(self.now)
        self._flow()
        for name in self.master.pending_acks.expire(self.now):
            self.answers[name] = STATUS[AckOutcome.TIMED_OUT]

    def _peer_line(self, peer: Peer, words: list[str]) -> None:
        verb = words[0]
        if verb == "connects":
            self._connect(peer)
        elif verb == "reports":
            self._raw(peer, REPORT.pack(int(words[1])))
        elif verb == "sends":
            text = words[1]
            self._raw(peer, PREAMBLE if text == "preamble" else bytes.fromhex(text))
        elif verb == "takes":
            assert peer.link is not None
            self._to_slave(peer, peer.link, int(words[1]))
        elif words == ["is", "cut"]:
            assert peer.link is not None
            peer.link.to_slave.clear()
            peer.link.master.closed(self.now)
            peer.link.is_open_there = False
            self._slave_closes(peer)
        elif verb == "closes":
            self._slave_closes(peer)
        else:
            raise ScenarioError(f"nobody {' '.join(words)}")

    def _connect(self, peer: Peer) -> None:
        if peer.link is not None:
            peer.old_links.append(peer.link)
        link = MasterLink(
            self.master,
            peer.host,
            f"{peer.host}:4{len(peer.old_links)}",
            nonce=_NONCE,
            now=self.now,
        )
        peer.link, peer.slave = Link(link), None
        peer.received.clear()
        if peer.settings is not None:
            peer.slave = SlaveLink(
                peer.settings,
                peer.log,
                is_native=peer.is_native,
                epoch=peer.epoch,
                nonce=_NONCE,
                now=self.now,
            )

    def _raw(self, peer: Peer, data: bytes) -> None:
        assert peer.link is not None
        peer.link.to_master += data

    def _slave_closes(self, peer: Peer) -> None:
        assert peer.link is not None
        if peer.slave is not None:
            peer.slave.closed("cut")
        peer.link.is_open_here = False
        peer.old_links.append(peer.link)

    # --- bytes -------------------------------------------------------------------------------

    def _links(self) -> list[MasterLink]:
        return [link.master for link in self._all_links() if link.is_open_there]

    def _slaves(self) -> list[SlaveLink]:
        slaves = [peer.slave for peer in self.peers.values()]
        return [slave for slave in slaves if slave is not None and slave.ending is None]

    def _all_links(self) -> list[Link]:
        links: list[Link] = []
        for peer in self.peers.values():
            links += [link for link in peer.old_links if link is not peer.link]
            links += [] if peer.link is None else [peer.link]
        return links

    def _flow(self) -> None:
        """Move bytes until none is left to be moved."""
        if self._master_machine is None and not any(p.link for p in self.peers.values()):
            return
        self.master.grew(self.now)
        moved = True
        while moved:
            moved = False
            for link in self._all_links():
                moved |= self._from_master(link)
            for peer in self.peers.values():
                moved |= peer.link is not None and self._of_peer(peer, peer.link)
            for name in self.master.pending_acks.release():
                self.answers[name] = STATUS[AckOutcome.REPLICATED]

    def _from_master(self, link: Link) -> bool:
        if not link.is_open_there:
            return False
        machine = link.master
        data = bytearray(machine.take_output())
        while (chunk := machine.next_chunk(self.now)) is not None:
            content = self.log.read(chunk.offset, chunk.offset + chunk.size)
            data += (machine.sealed(chunk, content) if content else chunk.header) + content
            machine.chunk_sent(chunk, self.now)
        link.to_slave += data
        if machine.end_reason is not None:
            machine.closed(self.now)
            link.is_open_there = False
        return bool(data)

    def _of_peer(self, peer: Peer, link: Link) -> bool:
        moved = False
        if link.to_slave and not peer.holds_data and link.is_open_here:
            moved = self._to_slave(peer, link, len(link.to_slave))
        slave = peer.slave
        if slave is not None and link.is_open_here:
            slave.report(self.now)
            link.to_master += slave.take_output()
            if slave.ending is not None:
                link.is_open_here = False
                if not peer.holds_acks and link.is_open_there:
                    link.master.closed(self.now)
                    link.is_open_there = False
        if link.to_master and not peer.holds_acks and link.is_open_there:
            data = bytes(link.to_master)
            link.to_master.clear()
            link.master.receive(data, self.now)
            moved = True
        return moved

    def _to_slave(self, peer: Peer, link: Link, size: int) -> bool:
        data = bytes(link.to_slave[:size])
        del link.to_slave[:size]
        slave = peer.slave
        if slave is None:
            peer.received += data
            return bool(data)
        position = 0
        while position < len(data) and slave.ending is None:
            if slave.body_left:
                piece = data[position : position + slave.body_left]
                if not peer.log.end and slave.frame_offset:
                    peer.log.begin_at(slave.frame_offset)
                peer.log.append(piece)
                slave.body_received(piece, self.now)
                position += len(piece)
            else:
                position += slave.receive(data[position:], self.now)
        peer.epoch = slave.epoch
        return bool(data)

    # --- what is to be seen ------------------------------------------------------------------

    def _expect(self, text: str) -> None:
        for pattern, check in EXPECTATIONS:
            match = re.fullmatch(pattern, text)
            if match is not None:
                seen, wanted = check(self, match)
                if seen != wanted:
                    raise ScenarioError(f"expected {text!r}, but it is {seen!r}")
                return
        raise ScenarioError(f"what is {text!r}?")


def _options(words: list[str]) -> dict[str, str]:
    """Read words of which some are flags and some are followed by a value."""
    flags = {"sync", "async", "flushed", "unflushed", "native-only", "last-file"}
    options: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        options[word] = "" if word in flags else next(rest)
    return options


def _rules(rules: InSyncRules, options: dict[str, str]) -> InSyncRules:
    return replace(
        rules,
        needed=int(options.get("needed", rules.needed)),
        minimum=int(options.get("minimum", rules.minimum)),
        lag_s_max=float(options.get("lag", rules.lag_s_max)),
        lag_bytes_max=int(options.get("lag-bytes", rules.lag_bytes_max)),
        counts_flushed="flushed" in options
        or (rules.counts_flushed and "unflushed" not in options),
    )


def play(path: Path) -> None:
    """Play a scenario; raise `ScenarioError` with the number of the line that is not so."""
    stage = Stage()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.partition("#")[0].strip()
        if text:
            try:
                stage.play(text)
            except ScenarioError as exc:
                raise ScenarioError(f"{path.name}:{number}: {text}: {exc}") from None
