"""In what our answers may not be the captured ones, and why: the only such list.

`EXPECTED` has what differs in every replay; what no longer does has to leave the list. `UNSTABLE`
has values that may be anything: all that is compared is that they are there.
"""

from __future__ import annotations

import re
import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.e2e.wire_compare import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.wire_compare import Difference
    from tests.e2e.wire_replay import Heard

_REPLAY_MS: Final = 10 * 60 * 1000
_OP_RECORD_BYTES: Final = 135


class Expected(NamedTuple):
    """A difference that is there for a reason. Patterns are those of a shell."""

    name: str
    """What was asked."""
    where: str
    why: str
    agrees: Callable[[object, object], bool]
    """Tells whether the value is what it should be, given the captured one and ours."""
    run: str = "*"
    server: str = "*"

    def covers(self, heard: Heard, difference: Difference) -> bool:
        return (
            fnmatchcase(heard.run, self.run)
            and fnmatchcase(heard.row.server, self.server)
            and fnmatchcase(heard.row.request_name, self.name)
            and fnmatchcase(difference.where, self.where)
            and self.agrees(difference.captured, difference.ours)
        )

    def __str__(self) -> str:
        return " ".join((self.run, self.server, self.name, self.where)).replace("* ", "")


class Unstable(NamedTuple):
    """Values that depend on the machine, or on how fast it is today."""

    name: str
    where: str
    why: str

    def covers(self, heard: Heard, difference: Difference) -> bool:
        return (
            fnmatchcase(heard.row.request_name, self.name)
            and fnmatchcase(difference.where, self.where)
            and NOTHING not in (difference.captured, difference.ours)
        )

    def __str__(self) -> str:
        return f"{self.name} {self.where}"


def _is(value: object) -> Callable[[object, object], bool]:
    return lambda _, ours: ours == value


def _is_recent(_: object, ours: object) -> bool:
    """Whether this is a time during the replay, in milliseconds."""
    now_ms = time.time_ns() // 1_000_000
    return isinstance(ours, str | int) and now_ms - _REPLAY_MS < int(ours) <= now_ms


def _is_same_host(captured: object, ours: object) -> bool:
    assert isinstance(captured, bytes)
    return isinstance(ours, bytes) and captured[:-4] == ours[:-4]


def _is_one_record_later(captured: object, ours: object) -> bool:
    assert isinstance(captured, str)
    host, offset = captured[:16], int(captured[16:], 16)
    return ours == f"{host}{offset + _OP_RECORD_BYTES:016X}"


def _is_short(_: object, ours: object) -> bool:
    pattern = r"\[ 0 days, 0 hours, \d minutes, \d+ seconds ]"
    return isinstance(ours, str) and re.fullmatch(pattern, ours) is not None


def _is_fewer(captured: object, ours: object) -> bool:
    return 0 < int(str(ours)) < int(str(captured))


_NOW: Final = "it is today"
_HAS_PROGRESS: Final = "a stock slave knows how far delays are only when it becomes a master"
_HAS_OLDEST: Final = "a slave has the log from its beginning; a stock one began with the last file"
_LEFT_OVER: Final = "Java forgets to take away what every answer says before it is filled in"
_INFO: Final = "GET_BROKER_RUNTIME_INFO"

EXPECTED: Final = (
    Expected("*", "version", "the captured servers were of version 4.9.7", _is(409)),
    Expected(_INFO, "body.table.brokerVersion", "the captured brokers were 4.9.7", _is("409")),
    Expected(
        _INFO, "body.table.brokerVersionDesc", "the captured brokers were 4.9.7", _is("V4_9_8")
    ),
    # --- times and ports ---
    Expected("*", "body.*.store_ms", _NOW, _is_recent),
    Expected("*", "body.*.born_host", "clients have other ports today", _is_same_host),
    Expected(
        "CHECK_TRANSACTION_STATE",
        "body.0.born_ms",
        "half messages are sent as if they were born now, or they would be too old",
        _is_recent,
    ),
    Expected("PULL_MESSAGE", "body.5.born_ms", "the same ones, committed", _is_recent, run="pull"),
    Expected("GET_EARLIEST_MSG_STORETIME", "ext.timestamp", _NOW, _is_recent),
    Expected("QUERY_MESSAGE", "ext.indexLastUpdateTimestamp", _NOW, _is_recent),
    Expected("GET_CONSUME_STATS", "body.offsetTable.*.lastTimestamp", _NOW, _is_recent),
    Expected("GET_ALL_TOPIC_CONFIG", "body.dataVersion.timestamp", _NOW, _is_recent),
    Expected("GET_ALL_SUBSCRIPTIONGROUP_CONFIG", "body.dataVersion.timestamp", _NOW, _is_recent),
    Expected(_INFO, "body.table.bootTimestamp", _NOW, _is_recent),
    Expected(_INFO, "body.table.runtime", "the captured brokers ran for minutes", _is_short),
    # --- what the captured servers had been through ---
    Expected(
        "SEND_MESSAGE_V2",
        "ext.msgId",
        "a SYNC_MASTER waits for its slave between a committed message and the record that ends"
        " the transaction; the next half message came in between, here it comes after it",
        _is_one_record_later,
        run="transaction",
    ),
    Expected(
        "GET_ROUTEINFO_BY_TOPIC",
        "body.queueDatas.0.perm",
        "given write permission, TBW102 has lost the permission to inherit, until its broker"
        " registers a new version of its topics; the captured one had done so when it heard that"
        " GoldenTopic is ordered, up to a minute later",
        _is(6),
        run="mqadmin-4[24]-*",
    ),
    Expected(
        _INFO,
        "body.table.msgGetTotalTodayNow",
        "clients that were not captured had pulled messages, too",
        _is_fewer,
        server="master",
    ),
    # --- what is done otherwise on purpose ---
    Expected(
        _INFO,
        "body.table.scheduleMessageOffset_*",
        _HAS_PROGRESS,
        lambda captured, ours: captured is NOTHING and isinstance(ours, str),
        server="slave",
    ),
    Expected(_INFO, "body.table.earliestMessageTimeStamp", _HAS_OLDEST, _is_recent, server="slave"),
    Expected("UPDATE_AND_CREATE_TOPIC", "remark", _LEFT_OVER, _is(None)),
    Expected("QUERY_CONSUME_QUEUE", "remark", _LEFT_OVER, _is(None)),
    Expected(
        "UPDATE_BROKER_CONFIG",
        "remark",
        "an operator is told what the original keeps to itself",
        _is("takes effect after a restart: flushDelayOffsetInterval"),
    ),
    Expected(
        "GET_BROKER_CLUSTER_ACL_INFO",
        "answer",
        "the captured broker, which has no access control either, failed and did not answer",
        _is(1),
    ),
    Expected(
        _INFO,
        "body.table.earliestMessageTimeStamp",
        "the original reads twice maxMessageSize for it, and says -1 if a segment is smaller",
        _is_recent,
        server="master",
    ),
)

UNSTABLE: Final = (
    *(
        Unstable(_INFO, f"body.table.{keys}", "the disk of this machine")
        for keys in ("commitLogDirCapacity", "commitLogDiskRatio*", "consumeQueueDiskRatio")
    ),
    *(
        Unstable(
            _INFO, f"body.table.{keys}", "how fast this machine is, and how much has been done"
        )
        for keys in (
            "*Tps",
            "*EntireTimeMax",
            "*TimeMills",
            "putLatency99*",
            "putMessageDistributeTime",
            "remainHowManyDataToFlush",
        )
    ),
    Unstable(
        "GET_CONSUME_STATS", "body.consumeTps", "whether a replay takes ten seconds and is sampled"
    ),
)
