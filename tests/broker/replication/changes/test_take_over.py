"""Which master a slave that is promoted relieves, and what it does if that one hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.broker.registration.registration import Registered, RegistrationListener
from rmq.broker.replication.changes import take_over
from rmq.broker.replication.peers import ASK_S
from rmq.errors import RequestTimeoutError
from rmq.remoting.bodies import HaPromoteBody
from rmq.remoting.codes import RequestCode, ResponseCode
from tests.ha.pair_kit import pair

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.broker.broker import Broker
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header
    from tests.ha.pair_kit import Pair

OK = ResponseCode.SUCCESS


def _tell(it: Pair, slave: Broker, master_address: str | None) -> None:
    """Tell a slave what a nameserver answers that lists this master, or none."""
    slave.replication.registered(Registered(it.nameserver, None, master_address, None, 1))


async def test_the_master_that_a_slave_follows_hands_over_though_no_nameserver_listed_it(
    tmp_path: Path,
) -> None:
    """The slave asked while its master was starting again, and found it by its last address."""
    async with pair(tmp_path) as it:
        master, slave = await it.sync_pair()
        _tell(it, slave, None)
        answer = await it.promote(slave)
        assert answer.code == OK, answer.remark
        promoted = HaPromoteBody.decode(answer.body)
        assert (promoted.epoch, promoted.is_safe) == (2, True)
        assert promoted.previous_master == master.address
        assert promoted.previous_end == promoted.start
        assert not master.replication.is_master


async def test_the_master_that_a_slave_follows_counts_and_not_what_a_nameserver_listed_before(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as it:
        master, slave = await it.sync_pair()
        _tell(it, slave, "127.0.0.1:1")
        answer = await it.promote(slave)
        assert answer.code == OK, answer.remark
        assert HaPromoteBody.decode(answer.body).previous_master == master.address


async def test_a_slave_that_has_lost_sight_of_its_master_finds_it_before_it_is_promoted(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as it:
        master, slave = await it.sync_pair()
        # As after a change of roles, before a nameserver has told who is master now.
        slave.replication.known.forget()
        _tell(it, slave, None)
        await it.until(lambda: slave.replication.linked_master is None, "the link has ended")
        answer = await it.promote(slave)
        assert answer.code == OK, answer.remark
        promoted = HaPromoteBody.decode(answer.body)
        assert promoted.previous_master == master.address
        assert promoted.previous_end == promoted.start


@pytest.mark.parametrize("is_listed", [True, False], ids=["listed", "not listed"])
async def test_a_slave_that_does_not_join_the_master_there_is_refuses_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    """The master has another slave, to which it could hand over: then nobody would be master."""
    monkeypatch.setattr(take_over, "JOIN_S", 0.05)
    async with pair(tmp_path) as it:
        master, _ = await it.sync_pair()
        stranger = await it.start("three", "SLAVE", {"haMasterAddress": "127.0.0.1:1"})
        # What nameservers say is what the test says.
        unheard = RegistrationListener(
            registered=lambda _: None, fenced=lambda *_: None, doubted=lambda _: None
        )
        monkeypatch.setattr(stranger.registration, "_listener", unheard)
        _tell(it, stranger, master.address if is_listed else None)
        answer = await it.promote(stranger)
        assert answer.code == ResponseCode.NO_PERMISSION
        remark = answer.remark or ""
        assert f"{master.address} is master already, of epoch 1" in remark
        assert "does not follow it within 0.05 s (connecting: cannot connect to" in remark
        assert master.replication.is_master
        assert await it.send(master, 1) == [OK]


async def test_a_master_that_hangs_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told to step down all the same, and does so before anything else when it wakes up."""
    asked: list[tuple[RequestCode, float]] = []
    async with pair(tmp_path) as it:
        master, slave = await it.sync_pair()
        peers = slave.role_change.promotion.take_over.peers
        ask = peers.ask

        async def hang(
            address: str,
            code: RequestCode,
            header: Header | None = None,
            *,
            timeout_s: float = ASK_S,
        ) -> Command:
            if address != master.address:
                return await ask(address, code, header, timeout_s=timeout_s)
            asked.append((code, timeout_s))
            raise RequestTimeoutError(address, code.name, timeout_s)

        monkeypatch.setattr(peers, "ask", hang)
        answer = await it.promote(slave)
        assert answer.code == OK, answer.remark
        assert HaPromoteBody.decode(answer.body).is_safe
    assert asked == [
        (RequestCode.HA_STATUS, ASK_S),
        (RequestCode.HA_STEP_DOWN, 0.5),
        (RequestCode.HA_FENCE, ASK_S),
    ]
