"""A broker that a test plays: one queue, whose messages go missing as the test likes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmq.model.queues import MessageQueue
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    GetMaxOffsetResponse,
    GetMinOffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    QueryConsumerOffsetResponse,
    SearchOffsetResponse,
)
from rmq.spark.wire.settings import SourceOptions
from tests.client.blocking.scripted_cluster import TOPIC, scripted_cluster
from tests.store.built_records import build_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmq.remoting.command import Command
    from tests.client.blocking.scripted_cluster import Play, ScriptedCluster
    from tests.client.blocking.scripted_peer import Link

QUEUE = MessageQueue(topic=TOPIC, broker_name="a", queue_id=0)
PULLED = 10


def record(offset: int, **fields: int | bytes) -> bytes:
    """Return the record of a message whose body is its offset."""
    wanted: dict[str, int | bytes] = {"queue_offset": offset, "physical_offset": offset * 100}
    return build_record(topic=TOPIC.encode(), body=b"%d" % offset, **{**wanted, **fields})  # type: ignore[arg-type]


class PlayedQueue:
    """Serves pulls of ten messages each, of those that are there."""

    def __init__(self, first: int = 0, end: int = 100) -> None:
        self.first = first
        self.end = end
        self.missing: set[int] = set()
        """Offsets that have entries and no messages any more."""
        self.deleted = range(0)
        """Offsets whose file of the queue is gone, though a stock broker begins the queue there."""
        self.record: Callable[[int], bytes] = record
        self.failures: dict[int, Play] = {}
        """What to do at the pull from this offset, once."""
        self.pulls: list[int] = []
        self.address = ""
        self.cluster: ScriptedCluster | None = None

    def options(self, **given: str) -> SourceOptions:
        assert self.cluster is not None
        wanted = {"nameservers": self.cluster.nameserver, "subscribe": TOPIC, "pullRetries": "2"}
        return SourceOptions({**wanted, **given})

    def play(self, link: Link, request: Command) -> None:
        match request.code:
            case RequestCode.GET_MIN_OFFSET:
                link.answer(request, header=GetMinOffsetResponse(offset=self.first))
            case RequestCode.GET_MAX_OFFSET:
                link.answer(request, header=GetMaxOffsetResponse(offset=self.end))
            case RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
                link.answer(request, header=SearchOffsetResponse(offset=self.first))
            case RequestCode.QUERY_CONSUMER_OFFSET:
                link.answer(request, header=QueryConsumerOffsetResponse(offset=0))
            case RequestCode.PULL_MESSAGE:
                offset = request.header(PullMessageRequest).queue_offset
                self.pulls.append(offset)
                self.failures.pop(offset, self.answer)(link, request)
            case _:
                link.answer(request, code=ResponseCode.SYSTEM_ERROR, remark="not played")

    def answer(self, link: Link, request: Command) -> None:
        asked = request.header(PullMessageRequest)
        start = asked.queue_offset
        if not self.first <= start < self.end:
            self._say(link, request, ResponseCode.PULL_OFFSET_MOVED, self.first)
            return
        if start in self.deleted:
            self._say(link, request, ResponseCode.PULL_NOT_FOUND, self.deleted.stop)
            return
        stop = min(start + PULLED, start + asked.max_msg_nums, self.end)
        body = b"".join(self.record(at) for at in range(start, stop) if at not in self.missing)
        if body:
            self._say(link, request, ResponseCode.SUCCESS, stop, body)
        else:
            self._say(link, request, ResponseCode.PULL_RETRY_IMMEDIATELY, stop)

    def _say(
        self, link: Link, request: Command, code: int, next_offset: int, body: bytes = b""
    ) -> None:
        header = PullMessageResponse(
            suggest_which_broker_id=0,
            next_begin_offset=next_offset,
            min_offset=self.first,
            max_offset=self.end,
        )
        remark = "" if body else "MESSAGE_WAS_REMOVING"
        link.answer(request, code=code, header=header, body=body, remark=remark)


@contextmanager
def played_queue(first: int = 0, end: int = 100) -> Iterator[PlayedQueue]:
    """Run a nameserver and a broker with one queue for the length of a block."""
    queue = PlayedQueue(first, end)
    with scripted_cluster("a") as cluster:
        cluster.queues = 1
        cluster["a"].play = queue.play
        queue.cluster = cluster
        queue.address = cluster["a"].address
        yield queue
