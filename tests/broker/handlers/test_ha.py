"""Replication from outside: requests 9001 to 9010."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.broker.handlers.ha import HaHandlers
from rmq.broker.replication.log_digests import STEP_BYTES_MAX, STEP_BYTES_MIN, log_digests
from rmq.errors import RefusedError
from rmq.model.offsets import PhysicalOffset
from rmq.remoting.bodies import (
    HaDemoteBody,
    HaDigestsBody,
    HaPromoteBody,
    HaResyncBody,
    HaStatusBody,
    HaStepDownBody,
)
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.headers import (
    HaDemoteRequest,
    HaDigestsRequest,
    HaForgetRequest,
    HaPromoteRequest,
    HaRecordsRequest,
    HaRenounceRequest,
    HaResyncRequest,
    HaStatusRequest,
    HaStepDownRequest,
)
from tests.remoting.server_kit import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rmq.remoting.header import Header
    from tests.remoting.server_kit import Frame, Peer, Served

code = RequestCode
LOG = bytes(number % 251 for number in range(50_000))


class MemoryLog:
    """A log that begins at 0."""

    begin = PhysicalOffset(0)
    end = PhysicalOffset(len(LOG))

    def digest(self, start: int, stop: int) -> bytes:
        return hashlib.sha256(LOG[start:stop]).digest()


class Pair:
    """A broker that can be master or slave, and nothing else."""

    def __init__(self) -> None:
        self.is_master = False
        self.epoch = 3
        self.master: str | None = "10.0.0.2:10912"
        self.mode = "SLAVE"
        self.lacks = 0
        """What the last master had and this broker has not."""
        self.end = len(LOG)
        self.diverged_at: int | None = None
        self.renounced_for = ""
        self.other_masters: list[str] = []
        self.busy = trio.Event()
        """While it is not set, promotions do not come to an end."""
        self.busy.set()

    def status(self) -> HaStatusBody:
        role = "MASTER" if self.is_master else "SLAVE"
        return HaStatusBody(role=role, mode=self.mode, epoch=self.epoch, end=self.end)

    def note_other_master(self, address: str) -> None:
        self.other_masters.append(address)

    async def promote(self, accept_loss: bool, mode: str | None) -> HaPromoteBody:
        await self.busy.wait()
        if self.is_master:
            raise RefusedError(ResponseCode.NO_PERMISSION, "it is master already")
        if self.lacks and not accept_loss:
            raise RefusedError(ResponseCode.NO_PERMISSION, f"{self.lacks} bytes may be lost")
        self.is_master, self.mode = True, mode or "ASYNC_MASTER"
        self.epoch += 1
        return HaPromoteBody(
            mode=self.mode, epoch=self.epoch, start=self.end, missing_bytes=self.lacks
        )

    async def demote(self, ha_master_address: str | None, force: bool) -> HaDemoteBody:
        self.is_master, self.mode = False, "SLAVE"
        self.master = ha_master_address
        return HaDemoteBody(epoch=self.epoch, end=self.end, ha_master_address=self.master or "")

    async def resync(self, dry_run: bool, planned: tuple[int, int] | None) -> HaResyncBody:
        common = self.end if self.diverged_at is None else self.diverged_at
        if planned is not None and planned != (common, self.end):
            raise RefusedError(ResponseCode.NO_PERMISSION, f"nothing was cut: {planned}")
        outcome = HaResyncBody(
            common_end=common,
            local_end=self.end,
            master_end=self.end,
            cut_bytes=self.end - common,
            dry_run=dry_run,
        )
        if not dry_run:
            self.end, self.diverged_at = common, None
        return outcome

    def forget(self, slave: str) -> HaStatusBody:
        if slave != "broker-a:1":
            raise RefusedError(ResponseCode.NO_PERMISSION, f"no slave {slave} is remembered")
        return self.status()

    async def records(self, start: int, stop: int) -> tuple[bytes, int]:
        return LOG[start : min(stop, start + 100)], min(stop, start + 100)

    async def digests(self, start: int, stop: int, step: int) -> HaDigestsBody:
        return await log_digests(MemoryLog(), start, stop, step)

    async def step_down(self, epoch: int, address: str | None) -> HaStepDownBody:
        if epoch != self.epoch:
            raise RefusedError(ResponseCode.STALE_EPOCH, f"this is epoch {self.epoch}")
        self.is_master = False
        return HaStepDownBody(epoch=self.epoch, end=self.end)

    async def fence(self, address: str, epoch: int) -> None:
        if address != "10.0.0.2:10911":
            raise RefusedError(ResponseCode.NO_PERMISSION, f"{address} is no master")
        self.is_master = epoch <= self.epoch

    async def renounce(self, address: str) -> HaStatusBody:
        if self.is_master:
            raise RefusedError(ResponseCode.NO_PERMISSION, "it is no slave")
        self.renounced_for = address
        return self.status()


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.fixture
async def served(pair: Pair) -> AsyncIterator[Served]:
    table = HandlerTable()
    HaHandlers(pair).add_to(table)
    async with serving(table) as running:
        yield running


async def ask(
    peer: Peer,
    request: RequestCode,
    header: Header | None = None,
    serialization: Serialization = Serialization.JSON,
) -> Frame:
    return await peer.request(
        encode_frame(code=request, header=header, serialization=serialization)
    )


# --- questions -------------------------------------------------------------------------------


async def test_a_status_is_told_at_once_even_while_a_role_changes(
    served: Served, pair: Pair
) -> None:
    pair.busy = trio.Event()
    peer, other = served.attach(), served.attach()
    await peer.send(encode_frame(code=code.HA_PROMOTE, header=HaPromoteRequest()))
    answer = await ask(other, code.HA_STATUS)
    assert (answer.code, answer.fields) == (ResponseCode.SUCCESS, None)
    assert HaStatusBody.decode(answer.body) == pair.status()
    assert pair.status().role == "SLAVE"
    pair.busy.set()
    assert (await peer.read()).code == ResponseCode.SUCCESS
    assert pair.status().role == "MASTER"


async def test_digests_of_the_log_are_told(served: Served) -> None:
    header = HaDigestsRequest(start=4096, stop=20_000, step=8192)
    answer = await ask(served.attach(), code.HA_DIGESTS, header)
    body = HaDigestsBody.decode(answer.body)
    assert (body.begin, body.end) == (0, len(LOG))
    assert [(each.start, each.stop, each.sha256) for each in body.digests] == [
        (4096, 12_288, hashlib.sha256(LOG[4096:12_288]).hexdigest()),
        (12_288, 20_000, hashlib.sha256(LOG[12_288:20_000]).hexdigest()),
    ]


@pytest.mark.parametrize(
    ("start", "stop", "step", "remark"),
    [
        pytest.param(-1, 10, 4096, "no range: from -1 to 10", id="before the beginning"),
        pytest.param(11, 10, 4096, "no range: from 11 to 10", id="backwards"),
        pytest.param(0, 10, 0, "step 0 is not between", id="no step"),
        pytest.param(0, 10, STEP_BYTES_MIN - 1, "is not between", id="a small step"),
        pytest.param(0, 10, STEP_BYTES_MAX + 1, "is not between", id="a large step"),
    ],
)
async def test_digests_of_what_is_no_range_are_refused(
    served: Served, start: int, stop: int, step: int, remark: str
) -> None:
    header = HaDigestsRequest(start=start, stop=stop, step=step)
    answer = await ask(served.attach(), code.HA_DIGESTS, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert remark in answer.remark


# --- changes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("serialization", Serialization)
async def test_a_slave_is_promoted(
    served: Served, pair: Pair, serialization: Serialization
) -> None:
    header = HaPromoteRequest(mode="SYNC_MASTER")
    answer = await ask(served.attach(), code.HA_PROMOTE, header, serialization)
    assert HaPromoteBody.decode(answer.body) == HaPromoteBody(
        mode="SYNC_MASTER", epoch=4, start=len(LOG)
    )
    assert pair.is_master


async def test_a_promotion_that_may_lose_messages_is_refused_unless_that_is_accepted(
    served: Served, pair: Pair
) -> None:
    pair.lacks = 100
    peer = served.attach()
    answer = await ask(peer, code.HA_PROMOTE, HaPromoteRequest())
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "100 bytes may be lost")
    assert not pair.is_master
    answer = await ask(peer, code.HA_PROMOTE, HaPromoteRequest(accept_loss=True))
    assert HaPromoteBody.decode(answer.body).missing_bytes == 100


@pytest.mark.parametrize("mode", ["SLAVE", "sync", ""])
async def test_a_promotion_to_what_is_no_master_is_refused(
    served: Served, pair: Pair, mode: str
) -> None:
    answer = await ask(served.attach(), code.HA_PROMOTE, HaPromoteRequest(mode=mode))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"mode {mode} is not one of ASYNC_MASTER, SYNC_MASTER"
    assert not pair.is_master


@pytest.mark.parametrize(
    ("address", "followed"),
    [
        ("10.0.0.9:10912", "10.0.0.9:10912"),
        ("[::1]:10912", "[::1]:10912"),
        (None, None),
        ("", None),
    ],
    ids=["given", "of six parts", "none", "empty"],
)
async def test_a_master_is_demoted(
    served: Served, pair: Pair, address: str | None, followed: str | None
) -> None:
    pair.is_master = True
    header = HaDemoteRequest(ha_master_address=address)
    answer = await ask(served.attach(), code.HA_DEMOTE, header)
    body = HaDemoteBody.decode(answer.body)
    assert (body.end, body.ha_master_address) == (len(LOG), followed or "")
    assert (pair.is_master, pair.master) == (False, followed)


@pytest.mark.parametrize("address", ["nowhere", ":10912", "host:", "host:0", "host:65536", "h:²"])
async def test_a_master_is_not_demoted_for_an_address_that_is_none(
    served: Served, pair: Pair, address: str
) -> None:
    pair.is_master = True
    header = HaDemoteRequest(ha_master_address=address)
    answer = await ask(served.attach(), code.HA_DEMOTE, header)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"{address} is not HOST:PORT",
    )
    assert pair.is_master


async def test_a_repair_can_be_looked_at_before_it_is_made(served: Served, pair: Pair) -> None:
    pair.diverged_at = 40_000
    peer = served.attach()
    plan = HaResyncBody.decode(
        (await ask(peer, code.HA_RESYNC, HaResyncRequest(dry_run=True))).body
    )
    assert (plan.common_end, plan.cut_bytes, plan.dry_run) == (40_000, 10_000, True)
    assert pair.end == len(LOG)
    done = HaResyncBody.decode((await ask(peer, code.HA_RESYNC, HaResyncRequest())).body)
    assert (done.cut_bytes, done.dry_run) == (10_000, False)
    assert pair.end == 40_000


async def test_a_master_steps_down_for_a_slave_of_its_epoch_only(
    served: Served, pair: Pair
) -> None:
    pair.is_master = True
    peer = served.attach()
    answer = await ask(peer, code.HA_STEP_DOWN, HaStepDownRequest(epoch=2))
    assert (answer.code, answer.remark) == (ResponseCode.STALE_EPOCH, "this is epoch 3")
    answer = await ask(peer, code.HA_STEP_DOWN, HaStepDownRequest(epoch=3))
    assert HaStepDownBody.decode(answer.body) == HaStepDownBody(epoch=3, end=len(LOG))
    assert not pair.is_master


async def test_a_slave_renounces_for_another_that_says_where_it_is(
    pair: Pair, served: Served
) -> None:
    header = HaRenounceRequest(address="10.0.0.2:10911")
    answer = await ask(served.attach(), code.HA_RENOUNCE, header)
    assert (answer.code, pair.renounced_for) == (ResponseCode.SUCCESS, "10.0.0.2:10911")
    assert HaStatusBody.decode(answer.body).end == pair.end
    header = HaRenounceRequest(address="nowhere")
    answer = await ask(served.attach(), code.HA_RENOUNCE, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "HOST:PORT" in (answer.remark or "")


async def test_a_repair_that_is_no_longer_as_planned_is_refused(served: Served, pair: Pair) -> None:
    pair.diverged_at = 40_000
    header = HaResyncRequest(common_end=39_000, local_end=len(LOG))
    answer = await ask(served.attach(), code.HA_RESYNC, header)
    assert (answer.code, pair.end) == (ResponseCode.NO_PERMISSION, len(LOG))
    header = HaResyncRequest(common_end=40_000, local_end=len(LOG))
    answer = await ask(served.attach(), code.HA_RESYNC, header)
    assert (answer.code, pair.end) == (ResponseCode.SUCCESS, 40_000)


async def test_a_slave_is_forgotten_by_its_name(served: Served) -> None:
    peer = served.attach()
    answer = await ask(peer, code.HA_FORGET, HaForgetRequest(slave="broker-a:1"))
    assert HaStatusBody.decode(answer.body).epoch == 3
    answer = await ask(peer, code.HA_FORGET, HaForgetRequest(slave="broker-a:2"))
    assert answer.code == ResponseCode.NO_PERMISSION


async def test_records_are_given_until_an_answer_is_full(served: Served) -> None:
    peer = served.attach()
    answer = await ask(peer, code.HA_RECORDS, HaRecordsRequest(start=10, stop=200))
    assert (bytes(answer.body or b""), (answer.fields or {})["nextOffset"]) == (LOG[10:110], "110")
    for start, stop in ((-1, 5), (5, 5), (6, 5)):
        answer = await ask(peer, code.HA_RECORDS, HaRecordsRequest(start=start, stop=stop))
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            f"no range: from {start} to {stop}",
        )


async def test_a_master_that_asks_is_noted_and_others_that_ask_are_not(
    served: Served, pair: Pair
) -> None:
    peer = served.attach()
    for header in (None, HaStatusRequest(), HaStatusRequest(master="")):
        assert (await ask(peer, code.HA_STATUS, header)).code == ResponseCode.SUCCESS
    assert pair.other_masters == []
    await ask(peer, code.HA_STATUS, HaStatusRequest(master="10.0.0.9:10911"))
    assert pair.other_masters == ["10.0.0.9:10911"]
    answer = await ask(peer, code.HA_STATUS, HaStatusRequest(master="nowhere"))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "nowhere is not HOST:PORT")
