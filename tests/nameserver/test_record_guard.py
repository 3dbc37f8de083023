"""Which in-sync records a nameserver takes: the decision by itself, and over connections."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from rmq.errors import RefusedError
from rmq.model.in_sync_record import NAMESPACE, InSyncRecord
from rmq.nameserver.record_guard import LEAP_S, RecordGuard
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    DeleteKvConfigRequest,
    GetKvConfigRequest,
    PutKvConfigRequest,
)
from tests.nameserver.kit import Running, config_for, frame, register, running, saying

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.remoting.server_kit import Frame, Peer

NAME = "a"
TRUE, FORGER = "the master's connection", "a stranger's connection"
LEAP = 2**62


def record(epoch: int, version: int = 1, **changes: object) -> str:
    """Return an in-sync record as text."""
    made = InSyncRecord(epoch=epoch, version=version, is_sync=False, **changes)  # type: ignore[arg-type]
    return made.encode(b"", NAME).decode()


class Guarded:
    """A guard, and the one value that it guards."""

    def __init__(self, kept: str | None = None, registered: int = 0) -> None:
        self.kept = kept
        self.registered = registered
        self.guard: RecordGuard[str] = RecordGuard(lambda _name: self.registered)

    def put(self, value: str, connection: str = TRUE, now: float = 0.0) -> None:
        self.guard.check(NAME, value, self.kept, connection, now)
        self.kept = value

    def refusal(self, value: str, connection: str = TRUE, now: float = 0.0) -> RefusedError:
        before = self.kept
        with pytest.raises(RefusedError) as refusal:
            self.put(value, connection, now)
        assert self.kept == before
        return refusal.value


# ---- in whose place --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kept", "instead_of"),
    [(record(1, 3), "1.3"), (record(1, 3), None), (None, "0.0"), ("no record", "0.0")],
)
def test_a_record_takes_the_place_of_the_one_that_its_writer_found(
    kept: str | None, instead_of: str | None
) -> None:
    guard: RecordGuard[str] = RecordGuard(lambda _name: 1)
    guard.check(NAME, record(2), kept, TRUE, 0.0, instead_of=instead_of)


@pytest.mark.parametrize(
    ("kept", "instead_of"), [(record(1, 4), "1.3"), (None, "1.3"), (record(1, 1), "0.0")]
)
def test_a_record_does_not_take_the_place_of_another_one(kept: str | None, instead_of: str) -> None:
    guard: RecordGuard[str] = RecordGuard(lambda _name: 1)
    with pytest.raises(RefusedError, match=f"record {instead_of} of") as refusal:
        guard.check(NAME, record(2), kept, TRUE, 0.0, instead_of=instead_of)
    assert refusal.value.code == ResponseCode.STALE_EPOCH


# ---- order ---------------------------------------------------------------------------------------


def test_records_of_later_versions_and_of_the_next_epoch_are_taken() -> None:
    it = Guarded()
    for epoch, version in ((1, 1), (1, 2), (1, 9), (2, 1), (3, 4)):
        it.put(record(epoch, version))


@pytest.mark.parametrize(("epoch", "version"), [(2, 4), (1, 9)])
def test_an_earlier_record_is_refused(epoch: int, version: int) -> None:
    refusal = Guarded(record(2, 5)).refusal(record(epoch, version))
    assert refusal.code == ResponseCode.STALE_EPOCH
    assert refusal.remark == (
        f"in-sync record refused: this nameserver keeps record 2.5 of {NAME}, which is later than"
        f" {epoch}.{version}"
    )


def test_the_same_record_is_taken_again_also_with_another_proof() -> None:
    it = Guarded(record(2, 5))
    it.put(record(2, 5))
    # The secret was changed.
    it.put(InSyncRecord(epoch=2, version=5, is_sync=False).encode(b"new", NAME).decode())


def test_another_record_of_the_same_version_is_refused() -> None:
    # Two brokers are master in one epoch.
    refusal = Guarded(record(2, 5)).refusal(record(2, 5, nameservers=("elsewhere:9876",)))
    assert refusal.code == ResponseCode.STALE_EPOCH
    assert refusal.remark == (
        f"in-sync record refused: this nameserver keeps another record 2.5 of {NAME}; two brokers"
        " must not be master of a name in one epoch: promote the one that is to stay again"
    )


@pytest.mark.parametrize(
    "value",
    ["", "text", "{}", '{"epoch":1}', "[]", record(0), '{"epoch":-1,"version":1,"is_sync":true}'],
)
def test_what_is_no_record_is_refused(value: str) -> None:
    refusal = Guarded().refusal(value)
    assert refusal.code == ResponseCode.SYSTEM_ERROR
    assert refusal.remark.startswith(f"not taken as the in-sync record of {NAME}: ")


def test_a_kept_value_that_is_no_record_is_in_nobodys_way() -> None:
    Guarded("what an operator wrote before this version").put(record(7))


# ---- leaps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kept", "registered"), [(record(3), 0), (None, 3), (record(2), 3), (record(3), 1)]
)
def test_a_record_that_leaps_is_refused_where_anything_is_known(
    kept: str | None, registered: int
) -> None:
    it = Guarded(kept, registered)
    refusal = it.refusal(record(5))
    assert refusal.code == ResponseCode.SYSTEM_ERROR
    assert refusal.remark == (
        f"in-sync record refused: it is of epoch 5, and the last master of {NAME} that this"
        f" nameserver knows was of epoch 3; it is taken if the same connection still brings it"
        f" after {LEAP_S:g} s"
    )
    it.put(record(4))


def test_any_epoch_is_taken_where_nothing_is_known() -> None:
    Guarded().put(record(12))


def test_a_forger_who_hangs_up_has_changed_nothing() -> None:
    it = Guarded(record(1, 3), registered=1)
    it.refusal(record(LEAP), FORGER, now=0.0)
    it.guard.connection_lost(FORGER)
    it.refusal(record(LEAP), FORGER, now=LEAP_S)
    it.put(record(1, 4), TRUE, now=LEAP_S)
    it.put(record(2, 1), TRUE, now=LEAP_S)


def test_several_forgers_do_not_confirm_each_other() -> None:
    it = Guarded(record(1))
    it.refusal(record(LEAP), FORGER, now=0.0)
    it.refusal(record(LEAP), "another one", now=LEAP_S)


def test_a_nameserver_that_missed_promotions_takes_the_record_that_is_brought_on() -> None:
    # The master of the last epoch it knows may even be back, and be listed.
    it = Guarded(record(1), registered=1)
    it.refusal(record(4, 1), now=10.0)
    it.refusal(record(4, 2), now=10.0 + LEAP_S - 0.1)
    # Slaves may come and go meanwhile, and strangers may say what they like.
    it.refusal(record(LEAP), FORGER, now=10.0 + LEAP_S - 0.1)
    it.put(record(4, 3), now=10.0 + LEAP_S)
    it.put(record(5), now=11.0 + LEAP_S)


def test_who_brings_another_epoch_begins_anew() -> None:
    it = Guarded(record(1))
    it.refusal(record(4), now=0.0)
    it.refusal(record(5), now=LEAP_S)
    it.put(record(5), now=2 * LEAP_S)


# ---- over connections ----------------------------------------------------------------------------


async def put(peer: Peer, value: str, namespace: str = NAMESPACE) -> Frame:
    header = PutKvConfigRequest(namespace=namespace, key=NAME, value=value)
    return await peer.request(frame(RequestCode.PUT_KV_CONFIG, header))


async def kept(served: Running) -> str | None:
    header = GetKvConfigRequest(namespace=NAMESPACE, key=NAME)
    answer = await served.attach().request(frame(RequestCode.GET_KV_CONFIG, header))
    return None if answer.fields is None else answer.fields.get("value")


async def test_a_nameserver_refuses_earlier_records_and_keeps_the_later_one(tmp_path: Path) -> None:
    async with running(config_for(tmp_path)) as served:
        peer = served.attach()
        assert (await put(peer, record(2, 5))).code == ResponseCode.SUCCESS
        assert (await put(peer, record(2, 5))).code == ResponseCode.SUCCESS
        answer = await put(peer, record(2, 4))
        assert answer.code == ResponseCode.STALE_EPOCH
        assert answer.remark is not None
        assert "record 2.5" in answer.remark
        assert (await put(peer, "nonsense")).code == ResponseCode.SYSTEM_ERROR
        assert await kept(served) == record(2, 5)
    async with running(config_for(tmp_path)) as served:
        assert (await put(served.attach(), record(1))).code == ResponseCode.STALE_EPOCH


async def test_records_that_come_together_are_compared_with_each_other(tmp_path: Path) -> None:
    async with running(config_for(tmp_path)) as served:
        peer = served.attach()
        values = [record(1, 7), record(1, 6), record(1, 8)]
        await peer.send(
            *(
                frame(
                    RequestCode.PUT_KV_CONFIG,
                    PutKvConfigRequest(namespace=NAMESPACE, key=NAME, value=value),
                    opaque=number,
                )
                for number, value in enumerate(values)
            )
        )
        answers = {answer.opaque: answer.code for answer in await peer.read_many(3)}
        assert [answers[number] for number in range(3)] == [0, ResponseCode.STALE_EPOCH, 0]
        assert await kept(served) == record(1, 8)


async def test_operators_delete_records_and_other_namespaces_hold_anything(tmp_path: Path) -> None:
    async with running(config_for(tmp_path)) as served:
        peer = served.attach()
        await put(peer, record(9))
        header = DeleteKvConfigRequest(namespace=NAMESPACE, key=NAME)
        answer = await peer.request(frame(RequestCode.DELETE_KV_CONFIG, header))
        assert answer.code == ResponseCode.SUCCESS
        assert (await put(peer, record(1))).code == ResponseCode.SUCCESS
        assert (await put(peer, "nonsense", "n")).code == ResponseCode.SUCCESS


async def test_the_epoch_of_a_registered_master_keeps_records_from_leaping(tmp_path: Path) -> None:
    async with running(config_for(tmp_path)) as served:
        await register(served.attach(), saying(epoch=1))
        answer = await put(served.attach(), record(LEAP))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert await kept(served) is None
        assert (await put(served.attach(), record(2))).code == ResponseCode.SUCCESS


async def test_a_leap_is_taken_from_the_connection_that_brings_it_on(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running(config_for(tmp_path)) as served:
        # Values are written in a thread, which a clock that jumps does not see.
        mock_clock.autojump_threshold = math.inf
        await put(served.attach(), record(1))
        forger = served.attach()
        assert (await put(forger, record(LEAP))).code == ResponseCode.SYSTEM_ERROR
        await forger.aclose()
        peer = served.attach()
        assert (await put(peer, record(4))).code == ResponseCode.SYSTEM_ERROR
        mock_clock.jump(LEAP_S)
        assert (await put(served.attach(), record(LEAP))).code == ResponseCode.SYSTEM_ERROR
        assert (await put(peer, record(4))).code == ResponseCode.SUCCESS
