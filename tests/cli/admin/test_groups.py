"""`rmq group` and `rmq client`."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from rmq.cli.common.exit_codes import ExitCode
from rmq.client.core.messages import Message
from tests.cli.client_kit import DEADLINE_S

if TYPE_CHECKING:
    from tests.cli.admin_kit import Rmq, RmqJson
    from tests.cli.client_kit import Processes


def test_a_group_is_seen_moved_and_deleted(
    rmq: Rmq, rmq_json: RmqJson, processes: Processes
) -> None:
    assert rmq("topic", "create", "Bills", "--queues", "2")[0] == ExitCode.OK
    processes.put(*(Message("Bills", b"%d" % number) for number in range(6)))
    assert rmq("consume", "Bills", "--group", "billing", "--count", "6")[0] == ExitCode.OK
    processes.put(*(Message("Bills", b"%d" % number) for number in range(4)))

    (listed,) = (g for g in rmq_json("group", "list")["groups"] if g["group"] == "billing")
    assert (listed["lag"], listed["members"], listed["topics"]) == (4, 0, ["Bills"])
    described = rmq_json("group", "describe", "billing")
    assert described["lag"] == 4
    queues = [each for each in described["queues"] if each["topic"] == "Bills"]
    assert [(each["consumer_offset"], each["broker_offset"]) for each in queues] == [(3, 5)] * 2
    assert all(0 <= each["lag_s"] < 60 for each in queues)
    assert described["lag_s"] == max(each["lag_s"] for each in queues)

    move = ("group", "reset", "billing", "--topic", "Bills", "--to")
    code, output, _ = rmq(*move, "earliest", "--dry-run")
    assert code == ExitCode.OK
    assert len(re.findall(r"^broker-a +[01] +3 +0 +-3$", output, re.MULTILINE)) == 2
    assert "6 messages will be delivered again" in output
    assert rmq_json("group", "describe", "billing")["lag"] == 4
    code, output, errors = rmq(*move, "latest")
    assert code == ExitCode.USAGE
    assert "4 messages will be skipped" in output
    assert "--yes does it without asking" in errors
    done = rmq_json(*move, "latest", "--yes")
    assert [(each["old_offset"], each["new_offset"]) for each in done["queues"]] == [(3, 5)] * 2
    assert done["brokers_without_consumers"] == ["broker-a"]
    assert rmq_json("group", "describe", "billing")["lag"] == 0
    code, _, errors = rmq("group", "reset", "biling", *move[3:], "latest", "--yes")
    assert code == ExitCode.FAILURE
    assert "group biling: no broker knows it" in errors
    code, _, errors = rmq(*move, "yesterday")
    assert code == ExitCode.USAGE
    assert "--to is earliest, latest or a time: 'yesterday'" in errors

    code, output, _ = rmq("group", "delete", "billing", "--yes")
    assert code == ExitCode.OK
    assert "billing is deleted at broker-a" in output
    code, _, errors = rmq("group", "describe", "billing")
    assert code == ExitCode.FAILURE
    assert "rmq: error: group billing: no broker knows it\nhint: `rmq group list`" in errors


def test_members_are_shown_with_the_queues_they_have(
    rmq_json: RmqJson, rmq: Rmq, processes: Processes
) -> None:
    assert rmq("topic", "create", "Parcels", "--queues", "2")[0] == ExitCode.OK
    processes.put(Message("Parcels", b"one"))
    consumer = processes.start("consume", "Parcels", "--group", "shipping", "--follow")
    try:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"one\n"
        described = rmq_json("group", "describe", "shipping")
        (member,) = described["members"]
        assert (member["language"], member["answers"], member["queues"]) == ("PYTHON", True, 2)
        assert described["subscriptions"] == {"Parcels": "*"}
        queues = [each for each in described["queues"] if each["topic"] == "Parcels"]
        assert {each["member"] for each in queues} == {member["client_id"]}
        code, output, _ = rmq("group", "describe", "shipping")
        assert code == ExitCode.OK
        assert re.search(r"^members +1 member$", output, re.MULTILINE)
        (seen,) = rmq_json("client", "list", "--group", "shipping")["clients"]
        assert (seen["kind"], seen["client_id"]) == ("consumer", member["client_id"])
    finally:
        consumer.send_signal(signal.SIGINT)
        consumer.communicate(timeout=DEADLINE_S)
