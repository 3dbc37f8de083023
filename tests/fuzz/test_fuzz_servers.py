"""A short run of the fuzz target of the servers, and proof that it would notice."""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Any

import trio

from rmq.remoting.bodies import TopicConfig
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.protocol import REQUESTS
from tests.fuzz.fuzz_servers import fuzz
from tests.fuzz.servers.probe import TOPIC
from tests.fuzz.servers.requests import Maker
from tests.fuzz.servers.scenarios import SCENARIOS
from tests.fuzz.servers.sweep import sweep
from tests.fuzz.servers.values import Values

if TYPE_CHECKING:
    from rmq.remoting.request import Request
    from tests.fuzz.fuzz_servers import Report
    from tests.fuzz.servers.rig import Rig


def assert_nothing_found(report: Report) -> None:
    assert not report.findings, "\n".join([str(report), *report.findings])


def test_every_request_with_every_value_at_the_edge_is_answered_once_and_with_a_reason() -> None:
    report = fuzz(rounds=1, steps=1, seed=498, scenarios={sweep: 1})
    assert_nothing_found(report)
    assert report.frames > 4000
    # Refusals alone would prove little: of each request one at least was answered well.
    answered = {code for code, _ in report.answers}
    assert len(answered) > 70
    well = {code for code, answer in report.answers if answer == ResponseCode.SUCCESS}
    # Three numbers of the first have to fit together, which one value at the edge does not bring.
    # No slave has left this broker, so there is none to forget.
    # The others change the accounts of access control, which this broker does not have.
    assert answered - well <= {
        f"broker {code}"
        for code in (
            RequestCode.HA_DIGESTS,
            RequestCode.HA_FORGET,
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
            RequestCode.DELETE_ACL_CONFIG,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        )
    }


def test_each_scenario_leaves_the_servers_as_they_were() -> None:
    report = fuzz(rounds=1, steps=14, seed=499, scenarios=dict.fromkeys(SCENARIOS, 1))
    assert_nothing_found(report)
    assert report.steps == 14
    assert report.frames > 300
    assert report.acknowledged > 30


async def do_what_must_not_be(rig: Rig) -> None:
    """Break one promise after the other, in the place of servers that would."""
    peer = await rig.dial("broker")
    maker = peer.server.maker
    bound = rig.broker.server._dispatcher._bound

    def twice(requests: list[Request[Any]]) -> None:
        for request in requests:
            frame = request.channel.encoder.response(request.command.opaque, 0, None, 0)
            request.channel.send(frame + frame)

    def fail(requests: list[Request[Any]]) -> None:
        raise KeyError("topic")

    def make_up(requests: list[Request[Any]]) -> None:
        for request in requests:
            request.reply(code=4711)

    bound[RequestCode.GET_ALL_TOPIC_CONFIG].handle_batch = twice
    bound[RequestCode.GET_BROKER_RUNTIME_INFO].handle_batch = lambda requests: None
    bound[RequestCode.GET_BROKER_CONFIG].handle_batch = fail
    bound[RequestCode.CLEAN_UNUSED_TOPIC].handle_batch = make_up
    for code in (
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.CLEAN_UNUSED_TOPIC,
    ):
        await peer.send(maker.frame(code, {}, flag=0))
    rig.waits_s, rig.patience_s = 1, 0.1
    await rig.settle()
    logging.getLogger("rmq.broker").error("something is wrong")
    rig.nursery.start_soon(_burn, name="rmq that takes its time")
    rig.broker.store.queues.open("FuzzA", 0).is_watched = True
    rig.answers.ledger[10**9] = (1, 1)
    for other in rig.broker.server.channels:
        if other.peer.endswith(f":{peer.stream.socket.getsockname()[1]}"):
            other.close("no reason")
    await trio.sleep(0.01)
    rig.broker.topics.put(TopicConfig(topic_name=TOPIC, perm=2))


async def _burn() -> None:
    end = time.thread_time() + 0.3
    while time.thread_time() < end:
        pass


def test_what_must_not_be_is_found() -> None:
    report = fuzz(rounds=1, steps=1, seed=7, scenarios={do_what_must_not_be: 1})
    found = set(report.counts)
    assert {
        "broker answers what nobody asked",
        "no answer to 28 from broker",
        "broker 26: KeyError",
        "broker 316: unknown code 4711",
        "error logged by rmq.broker: something is wrong",
        "the event loop is kept by rmq that takes its time, do_what_must_not_be",
        "left after a scenario: watched queues",
        "broker closed a sound connection",
        "no normal service",
        "an acknowledged message is lost after a restart",
        "an acknowledged message is lost after a kill",
    } <= found, report.findings
    assert any(kind.startswith("traceback logged: KeyError in fail (") for kind in found)


async def end_badly(rig: Rig) -> None:
    raise OSError("the servers cannot go on")


def test_servers_that_end_are_found() -> None:
    report = fuzz(rounds=1, steps=1, seed=7, scenarios={end_badly: 1})
    (finding,) = report.findings
    assert finding.startswith("a server ended: OSError in end_badly (test_fuzz_servers.py:")


def test_requests_come_of_the_seed_alone() -> None:
    table = HandlerTable()
    for request in REQUESTS.values():
        table.add(request, lambda _: None)

    def requests(seed: int) -> list[bytes]:
        maker = Maker(table, Values(random.Random(seed)))
        return [maker.stream(damage=0.2) for _ in range(300)]

    assert requests(5) == requests(5)
    assert requests(5) != requests(6)
