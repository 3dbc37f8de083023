"""A broker that is no master says who is, when it refuses a message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rmq.broker.replication import master_role
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    HaPromoteRequest,
    SendMessageErrorResponse,
    SendMessageRequestV2,
)
from rmq.store.core import Refusal
from tests.ha.pair_kit import QUEUES, TOPIC, pair

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from rmq.broker.broker import Broker
    from rmq.remoting.command import Command
    from tests.ha.pair_kit import Pair

OK = ResponseCode.SUCCESS


async def _send(it: Pair, broker: Broker) -> Command:
    header = SendMessageRequestV2(
        producer_group="pair",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=QUEUES,
        queue_id=0,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
    )
    return await it.ask(broker, RequestCode.SEND_MESSAGE_V2, header, b"hello")


async def _pair(it: Pair) -> tuple[Broker, Broker]:
    master = await it.start("one", "SYNC_MASTER")
    await it.create_topic(master)
    slave = await it.start("two", "SLAVE")
    await it.in_sync(master)
    await it.until(lambda: slave.topics.get(TOPIC) is not None, "the topic is known")
    return master, slave


def _names(answer: Command, address: str | None) -> bool:
    """Tell whether an answer refuses a message and names this master to people and clients."""
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    # What a client without our field reads is what it has always been.
    header = answer.header(SendMessageErrorResponse)
    assert (header.trace_on, header.msg_region) == (True, "DefaultRegion")
    remark = answer.remark or ""
    assert remark.startswith("service not available now. ")
    if address is None:
        return "masterAddr" not in answer.ext_fields and "the master is" not in remark
    return answer.ext_fields["masterAddr"] == address and remark.endswith(
        f"; the master is {address}"
    )


async def test_a_slave_names_its_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master, slave = await _pair(it)
        answer = await _send(it, slave)
        assert _names(answer, master.address), answer
        assert "this broker is a slave, only its master takes them" in (answer.remark or "")


async def test_a_slave_that_knows_no_master_names_none(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        _, slave = await _pair(it)
        await it.stop("one")
        await it.until(lambda: slave.replication.linked_master is None, "the link has ended")
        await it.until(lambda: slave.replication.master_address is None, "nobody is listed")
        answer = await _send(it, slave)
        assert _names(answer, None), answer


async def test_a_former_master_names_the_one_it_handed_over_to(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master, slave = await _pair(it)
        answer = await it.ask(slave, RequestCode.HA_PROMOTE, HaPromoteRequest(accept_loss=False))
        assert answer.code == OK, answer.remark
        await it.in_sync(slave)
        assert _names(await _send(it, master), slave.address)


async def test_a_fenced_master_names_the_one_that_took_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as it:
        _, slave = await _pair(it)
        await it.stop("one")
        answer = await it.ask(slave, RequestCode.HA_PROMOTE, HaPromoteRequest(accept_loss=True))
        assert answer.code == OK, answer.remark
        monkeypatch.setattr(master_role, "CONFIRM_S", 0.1)
        former = await it.restart("one")
        assert former.replication.fenced is not None
        assert _names(await _send(it, former), slave.address)


async def test_a_master_that_takes_no_messages_for_other_reasons_names_nobody(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as it:
        master, _ = await _pair(it)
        master.store.set_refused(Refusal.DISK_FULL, True)
        answer = await _send(it, master)
        assert _names(answer, None), answer
        assert "the disk is full" in (answer.remark or "")
