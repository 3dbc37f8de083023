"""`rmq bench`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rmq.cli.common.exit_codes import ExitCode

if TYPE_CHECKING:
    from tests.cli.admin_kit import Rmq, RmqJson

SMALL = ("bench", "--messages", "300", "--singles", "20", "--queues", "2")


def test_it_measures_and_leaves_nothing_behind(rmq: Rmq, rmq_json: RmqJson) -> None:
    code, output, errors = rmq(*SMALL)
    assert (code, errors) == (ExitCode.OK, "")
    assert re.search(r"^one by one +\d+\.\d+ ms median, \d+\.\d+ ms p99, ", output, re.MULTILINE)
    assert re.search(r"^64 at a time +[\d,]+ per second, ", output, re.MULTILINE)
    assert re.search(r"^outcomes +320 SEND_OK$", output, re.MULTILINE)
    assert re.search(r"^read back +320 messages, [\d,]+ per second$", output, re.MULTILINE)
    assert "RMQ_BENCH" not in rmq("topic", "list", "--all")[1]
    found = rmq_json(*SMALL, "--keep", "--topic", "Kept", "--in-flight", "8")
    assert (found["outcomes"], found["read"], found["is_complete"]) == ({"SEND_OK": 320}, 320, True)
    # Only what this run sent counts, in a topic that was there before.
    assert rmq_json(*SMALL, "--topic", "Kept")["read"] == 320
    assert rmq_json("topic", "describe", "Kept")["messages"] == 2 * 340
