"""Heavy requests that walk tables of the broker: topics, groups, statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.broker_load.frames import SendShape, UniqueKeys, create_topic_frame, send_frame
from benchmarks.fairness.scenario import Scenario, frame
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import (
    EmptyHeader,
    GetBrokerConsumeStatsRequest,
    QueryTopicConsumeByWhoRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.fairness.scenario import Site


def _plain(code: RequestCode) -> Callable[[Site], Sequence[bytes]]:
    return lambda _: [frame(code, EmptyHeader())]


def _new_topic(site: Site) -> Sequence[bytes]:
    """Return the creation of one topic: the broker registers it, and writes its table."""
    return [create_topic_frame(site.fresh("FairOne"), 1, 100_000)]


def _all_topics_after_change(site: Site) -> Sequence[bytes]:
    # What is encoded once per change is not encoded yet.
    return [*_new_topic(site), frame(RequestCode.GET_ALL_TOPIC_CONFIG, EmptyHeader())]


def _groups_of_topic(site: Site) -> Sequence[bytes]:
    header = QueryTopicConsumeByWhoRequest(topic=site.size.topic(0))
    return [frame(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)]


def _all_progress(_: Site) -> Sequence[bytes]:
    header = GetBrokerConsumeStatsRequest(is_order=False)
    return [frame(RequestCode.GET_BROKER_CONSUME_STATS, header)]


def _long_properties(site: Site) -> Sequence[bytes]:
    """Return a send with 7 MB of properties, which is refused."""
    shape = SendShape(site.size.topic(0), b"x")
    keys = _LongKeys(7_000_000 // (10 if site.is_quick else 1))
    return [send_frame(shape, 0, 100_000, keys)]


class _LongKeys(UniqueKeys):
    """Properties of a given size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def properties(self) -> str:
        return "a\x01" + "x" * self._size


def _many_topics(site: Site) -> None:
    """Make the table of topics as long as that of a large installation."""
    count = 1_000 if site.is_quick else 20_000
    site.ask([create_topic_frame(site.fresh("FairMany"), 4, 100_000) for _ in range(count)])


SCENARIOS: Final = (
    Scenario("28 runtime information", _plain(RequestCode.GET_BROKER_RUNTIME_INFO)),
    Scenario("201 all groups", _plain(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)),
    Scenario("43 all offsets", _plain(RequestCode.GET_ALL_CONSUMER_OFFSET)),
    Scenario("300 who reads a topic", _groups_of_topic),
    Scenario("317 progress of all groups", _all_progress),
    Scenario("310 with 7 MB of properties", _long_properties, may_be_cut=True),
    Scenario("17 with 20,000 topics: saved, registered", _new_topic, prepare=_many_topics),
    Scenario("21 with 20,000 topics, after a change", _all_topics_after_change),
)
