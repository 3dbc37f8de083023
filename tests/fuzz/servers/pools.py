"""The values that requests for servers under fuzz are made of: names that mean something, and texts
and numbers at the edge of what fields can hold.
"""

from __future__ import annotations

from typing import Any, Final

TOPICS: Final = ("FuzzA", "FuzzB", "FuzzC", "%RETRY%fuzz-g1", "%DLQ%fuzz-g1")
GROUPS: Final = ("fuzz-g1", "fuzz-g2", "fuzz-p1", "TOOLS_CONSUMER", "CID_RMQ_SYS_x")
CLIENTS: Final = ("10.0.0.1@1", "10.0.0.1@2", "client")
BROKERS: Final = ("fuzz-b1", "fuzz-b2")
"""Not the broker's own name: who registers with it takes its place, as at a stock nameserver."""
ADDRESSES: Final = ("10.0.0.1:10911", "10.0.0.2:10911", "[::1]:10911")
CLUSTERS: Final = ("FuzzCluster", "DefaultCluster")
QUEUES: Final = 4

SYSTEM_TOPICS: Final = (
    *("TBW102", "SCHEDULE_TOPIC_XXXX", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC", "BenchmarkTest"),
    *("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"),
    *("RMQ_SYS_TRACE_TOPIC", "rmq_sys_any", "DefaultCluster", "DefaultCluster_REPLY_TOPIC"),
    *("DefaultHeartBeatSyncerTopic", "%RETRY%", "%DLQ%", "%RETRY%TOOLS_CONSUMER"),
)
EDGE_TEXTS: Final = (
    *("", " ", "\t", "0", "-1", "null", "true", "{}", "[]", "*", "%", "%s%d%n", "@", "a@b", "@@"),
    *(".", "..", "../..", "../../../../var/fuzz", "/", "/x/y", "a/b", "\\", 'quo"te', "'"),
    *("\0", "a\0b", "\x01", "\x02", "a\x01b\x02c", "\n", "a\r\nb", "\x7f", "\u2028", "\ufeff"),
    *(
        "é",
        "消息",
        "😀",
        "\ud800",
        "a\udc00",
        "\uff46ull",
        "\u0663",
        "x" * 127,
        "x" * 128,
        "x" * 255,
    ),
    *(
        "x" * 256,
        "消" * 100,
        "x" * 10_000,
        "é" * 10_000,
        "|",
        "a|b",
        "-",
        "_",
        "ORDER_TOPIC_CONFIG",
    ),
    *SYSTEM_TOPICS,
)
EDGE_NUMBERS: Final = (
    *(0, 1, -1, 2, 3, 4, 7, 16, 100, 255, 256, 1023, 1024, 32_767, 32_768, 65_535, 65_536),
    *(2**31 - 1, -(2**31), 2**31, 2**32, 2**53, 2**63 - 1, -(2**63), 2**63, 10**30),
)
NO_NUMBERS: Final = (
    "",
    "-",
    "abc",
    "1.5",
    "1e3",
    "+5",
    " 1",
    "1 ",
    "0x10",
    "\u0661",
    "1_0",
    "9" * 400,
)
NO_TEXTS: Final[tuple[Any, ...]] = (None, 0, -1, 1.5, True, [], {}, ["x"], {"a": 1}, 10**25)
EXPRESSIONS: Final = (
    *("*", "", "a", "a || b", "||", " || ", "a||" * 500, "\0", "TAG", "é||b", "*||a"),
    *("a > 1", "a IS NOT NULL AND b BETWEEN 1 AND 5", "a IN ('x', 'y')", "a LIKE '%b'", "TRUE"),
    *("(" * 300 + "a > 1" + ")" * 300, "NOT " * 500 + "a", "a = 'x", "a > 99999999999999999999"),
    *("a = 1 OR " * 200 + "b = 2", "1 / 0 > 1", "a" * 5000 + " = 1", "-" * 2000 + "1 = a"),
)
DELAYS: Final = ("0", "1", "2", "18", "19", "-1", "2147483648", "x", "", " 1", "99999999999999")
STATS: Final = (
    *("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS"),
    *("BROKER_PUT_NUMS", "BROKER_GET_NUMS", "GROUP_GET_FALL_TIME", "nothing"),
)
