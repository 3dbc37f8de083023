"""A slave takes over from a master that was killed: nothing promised is lost, and one is master."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import trio

from rmq.remoting.bodies import ClusterInfo
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import EndTransactionRequest, SendMessageRequestV2, SendMessageResponse
from tests.ha.processes.load import QUEUES, TOPIC, Consumer, wait_settled
from tests.ha.processes.pair import MASTER, SLAVE, running_pair

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ha.processes.pair import Pair

OK = ResponseCode.SUCCESS
NO_SLAVE = ResponseCode.SLAVE_NOT_AVAILABLE
REFUSED = ResponseCode.SERVICE_NOT_AVAILABLE

PREPARED: Final = 4
COMMIT: Final = 8
ROLL_BACK: Final = 12


async def test_a_slave_takes_over_and_the_old_master_is_turned_away(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as it:
        async with it.producer.sending(it.address(MASTER)):
            await it.until_codes(OK, count=300)
            await it.consumer.read_all(it.address(MASTER))
            await it.until_codes(OK, count=100)
            await it.kill(MASTER)
        await wait_settled(it.client, it.address(SLAVE))
        promoted = await it.ha.promote(it.address(SLAVE), accept_loss=False, mode=None)
        assert (promoted.epoch, promoted.mode) == (2, "SYNC_MASTER")
        # A consumer that was in the middle of it goes on where it was.
        await it.check_none_lost(SLAVE)
        sent = len(it.consumer.bodies)
        it.producer.codes.clear()
        async with it.producer.sending(it.address(SLAVE)):
            await it.until_codes(NO_SLAVE, count=50)
        await it.consumer.read_all(it.address(SLAVE))
        assert set(it.producer.codes) == {NO_SLAVE}
        assert len(it.consumer.bodies) >= sent + 50
        assert set(it.consumer.bodies.values()) == {1}, "queue offsets were given twice"
        assert await _master_by_nameserver(it) == it.address(SLAVE)

        await it.start(MASTER)
        said = await it.until(
            MASTER, lambda said: "epoch 2" in (said.last_error or ""), "the old master is fenced"
        )
        assert said.state != "writable"
        it.producer.codes.clear()
        assert await it.producer.send_one(it.address(MASTER))
        assert set(it.producer.codes) == {REFUSED}
        assert await _master_by_nameserver(it) == it.address(SLAVE)

        await it.ha.demote(it.address(MASTER), None)
        said = await it.until(
            MASTER, lambda said: said.state in ("diverged", "streaming"), "it has a master"
        )
        if said.state == "diverged":
            # It was killed with messages that nobody else has and that nobody was promised.
            await it.ha.resync(it.address(MASTER), dry_run=False)
        await it.check_equal(SLAVE, MASTER)
        it.producer.codes.clear()
        async with it.producer.sending(it.address(SLAVE)):
            await it.until_codes(OK)
        await it.check_equal(SLAVE, MASTER)
        assert (await it.status(MASTER)).epoch == 2


async def test_delayed_messages_are_delivered_by_whoever_is_master_then(tmp_path: Path) -> None:
    settings = {"messageDelayLevel": "1s 3s", "flushDelayOffsetInterval": "200"}
    async with running_pair(tmp_path, settings=settings) as it:
        # Some are delivered before the kill, at the time of it, and after.
        started = trio.current_time()
        for _ in range(20):
            for level in (1, 2):
                await it.producer.send_one(it.address(MASTER), f"DELAY\x01{level}\x02")
            await trio.sleep(0.05)
        assert it.producer.codes == {OK: 40}
        await trio.sleep_until(started + 1.5)
        await it.kill(MASTER)
        await wait_settled(it.client, it.address(SLAVE))
        await it.ha.promote(it.address(SLAVE), accept_loss=False, mode=None)
        await trio.sleep_until(started + 4.5)
        with trio.fail_after(5):
            while len(it.consumer.bodies) < 40:
                await it.consumer.read_all(it.address(SLAVE))
                await trio.sleep(0.05)
        await trio.sleep(0.2)
        await it.check_none_lost(SLAVE)
        doubled = sum(count - 1 for count in it.consumer.bodies.values())
        # Only what was delivered after the slave last heard how far its master was.
        assert doubled < 20, f"{doubled} of 40 were delivered twice"


async def test_transactions_are_decided_by_whoever_is_master_then(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as it:
        halves = [await _send_half(it, b"half %d" % number) for number in range(20)]
        for half in halves[:5]:
            await _end(it, MASTER, half, COMMIT)
        for half in halves[5:10]:
            await _end(it, MASTER, half, ROLL_BACK)
        end = (await it.status(MASTER)).end
        await it.until(SLAVE, lambda said: said.end >= end, "the slave has the decisions")
        await it.kill(MASTER)
        await wait_settled(it.client, it.address(SLAVE))
        await it.ha.promote(it.address(SLAVE), accept_loss=False, mode=None)
        assert await _visible(it) == Counter(b"half %d" % number for number in range(5))
        for half in halves[10:15]:
            await _end(it, SLAVE, half, COMMIT)
        for half in halves[15:]:
            await _end(it, SLAVE, half, ROLL_BACK)
        expected = [b"half %d" % number for number in (*range(5), *range(10, 15))]
        assert await _visible(it) == Counter(expected)


async def _master_by_nameserver(it: Pair) -> str:
    answer = await it.client.request(
        it.cluster.nameserver_address, RequestCode.GET_BROKER_CLUSTER_INFO, timeout_s=10
    )
    addresses = ClusterInfo.decode(answer.body).broker_addr_table["broker-a"].broker_addrs
    return addresses[0]


async def _send_half(it: Pair, body: bytes) -> SendMessageResponse:
    header = SendMessageRequestV2(
        producer_group="orders",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=QUEUES,
        queue_id=0,
        sys_flag=PREPARED,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=f"TRAN_MSG\x01true\x02PGROUP\x01orders\x02UNIQ_KEY\x01{body.hex()}",
    )
    answer = await it.client.request(
        it.address(MASTER), RequestCode.SEND_MESSAGE_V2, header, body=body, timeout_s=10
    )
    assert answer.code == OK, answer.remark
    return answer.header(SendMessageResponse)


async def _end(it: Pair, name: str, half: SendMessageResponse, decision: int) -> None:
    """Decide about a half message, as its producer does with whoever is master."""
    header = EndTransactionRequest(
        producer_group="orders",
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=int(half.msg_id[-16:], 16),
        commit_or_rollback=decision,
    )
    answer = await it.client.request(
        it.address(name), RequestCode.END_TRANSACTION, header, timeout_s=10
    )
    assert answer.code in (OK, NO_SLAVE), answer.remark


async def _visible(it: Pair) -> Counter[bytes]:
    consumer = Consumer(it.client)
    await consumer.read_all(it.address(SLAVE))
    return consumer.bodies
