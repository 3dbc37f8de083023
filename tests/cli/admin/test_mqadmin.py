"""`rmq admin`: names, flags and columns of mqadmin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rmq.cli.app import load_command
from rmq.cli.common.exit_codes import ExitCode
from rmq.client.core.messages import Message
from tests.paths import DOCS

if TYPE_CHECKING:
    from tests.cli.admin_kit import Rmq
    from tests.cli.client_kit import Processes


def words_of(output: str) -> list[list[str]]:
    return [re.split(r" {2,}| (?=#)", line.strip()) for line in output.splitlines()]


def test_habits_from_mqadmin_work(rmq: Rmq, processes: Processes) -> None:
    def admin(*words: str) -> str:
        code, output, errors = rmq("admin", *words)
        assert (code, errors) == (ExitCode.OK, ""), words
        return output

    heads, line = words_of(admin("clusterList"))
    assert heads[:5] == ["#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version"]
    assert line[:3] == ["DefaultCluster", "broker-a", "0"]
    address = line[3]
    assert admin("clusterList", "-m").splitlines()[0].split("  ")[-1] == "#OutTotalToday"
    assert "create topic Old to broker-a at" in admin(
        "updateTopic", "-c", "DefaultCluster", "-t", "Old", "-r", "2", "-w", "2"
    )
    assert "Old" in admin("topicList").splitlines()
    assert "SEND_OK" in admin("sendMessage", "-t", "Old", "-p", "hello", "-k", "k7", "-c", "t")
    processes.put(Message("Old", b"x"), Message("Old", b"y"))
    status = words_of(admin("topicStatus", "-t", "Old"))
    assert status[0] == ["#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"]
    assert sum(int(row[3]) for row in status[1:]) == 3
    assert admin("topicRoute", "-t", "Old").startswith("{\n")
    assert words_of(admin("topicRoute", "-t", "Old", "-l"))[1][3:] == ["2", "2", "6"]
    assert admin("topicClusterList", "-t", "Old") == "DefaultCluster\n"
    admin("updateTopicPerm", "-t", "Old", "-p", "4", "-b", address)
    assert words_of(admin("topicRoute", "-t", "Old", "-l"))[1][5] == "4"

    (_, found) = words_of(admin("queryMsgByKey", "-t", "Old", "-k", "k7"))
    assert "hello" in admin("queryMsgByUniqueKey", "-t", "Old", "-i", found[0])
    by_place = admin("queryMsgByOffset", "-t", "Old", "-b", "broker-a", "-i", found[1], "-o", "0")
    assert by_place.startswith("id ")

    admin("updateSubGroup", "-b", address, "-g", "old", "-r", "3")
    assert rmq("consume", "Old", "--group", "old", "--count", "3")[0] == ExitCode.OK
    progress = admin("consumerProgress", "-g", "old")
    assert "Diff Total: 0" in progress
    assert "#Client IP" in admin("consumerProgress", "-g", "old", "-s", "true")
    assert "old" in admin("consumerProgress")
    assert len(words_of(admin("resetOffsetByTime", "-g", "old", "-t", "Old", "-s", "0"))) == 3
    assert "Diff Total: 3" in admin("consumerProgress", "-g", "old")
    admin("skipAccumulatedMessage", "-g", "old", "-t", "Old")
    assert "Diff Total: 0" in admin("consumerProgress", "-g", "old")
    admin("cloneGroupOffset", "-s", "old", "-d", "other", "-t", "Old")
    assert "#ClientId" in admin("consumerConnection", "-g", "old")

    assert "fileReservedTime" in admin("getBrokerConfig", "-b", address)
    admin("updateBrokerConfig", "-b", address, "-k", "fileReservedTime", "-v", "71")
    assert re.search(r"^fileReservedTime +=  71$", admin("getBrokerConfig", "-b", address), re.M)
    assert "brokerVersionDesc" in admin("brokerStatus", "-b", address)
    assert "in name server" in admin("wipeWritePerm", "-b", "broker-a")
    assert "in name server" in admin("addWritePerm", "-b", "broker-a")
    assert "listenPort" in admin("getNamesrvConfig")
    admin("updateKvConfig", "-s", "MINE", "-k", "a", "-v", "b")
    admin("deleteKvConfig", "-s", "MINE", "-k", "a")
    for clean in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert "success" in admin(clean, "-b", address)
    admin("deleteSubGroup", "-g", "old", "-c", "DefaultCluster", "-r", "true")
    assert "NameServer success" in admin("deleteTopic", "-t", "Old", "-c", "DefaultCluster")

    code, _, errors = rmq("admin", "topicStatus", "-t", "Old")
    assert code == ExitCode.FAILURE
    assert "no broker has it" in errors
    code, _, errors = rmq("admin", "brokerStatus")
    assert code == ExitCode.USAGE
    assert "give -b HOST:PORT, or -c CLUSTER" in errors


def test_the_page_lists_all_names() -> None:
    section = (DOCS / "cli.md").read_text().partition("## mqadmin")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`([a-z]+[A-Z]\w+)`", section))
    assert listed == {action.name for action in load_command("admin").all_actions()}
