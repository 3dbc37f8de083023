"""`rmq admin NAME`: the commands of mqadmin that operators use most, with its names and flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.cli.common.cluster_options import CLUSTER, NAMESERVERS_METAVAR, cluster_options
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import NATURAL, POSITIVE, SECONDS, Option, Parsed, flag

if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

TIMEOUT_S: Final = 5.0


def _yes_no(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is not true or false")
    return text.lower() == "true"


def _perm(text: str) -> int:
    if text not in ("2", "4", "6"):
        raise ValueError(f"{text!r} is not 2 (written), 4 (read) or 6 (both)")
    return int(text)


_FLAG: Final = Parsed("true or false", _yes_no)
_PERM: Final = Parsed("permission", _perm)


def _everywhere() -> list[click.Parameter]:
    _, *others = cluster_options()
    return [
        Option(
            "-n",
            "--namesrvAddr",
            "nameservers",
            metavar=NAMESERVERS_METAVAR,
            section=CLUSTER,
            help="where the nameservers are (default: $NAMESRV_ADDR, else those of the context)",
        ),
        *others,
        Option(
            "--timeout",
            type=SECONDS,
            default=TIMEOUT_S,
            metavar="SECONDS",
            section=CLUSTER,
            help=f"how long to wait for an answer ({TIMEOUT_S:g})",
        ),
    ]


def _do(name: str, help: str, run: str, *own: click.Parameter) -> Command:
    return Command(
        name=name, help=help, params=(*own, *_everywhere()), run=f"rmq.cli.mqadmin.{run}"
    )


def _text(*names: str, required: bool = False, help: str = "") -> Option:
    return Option(*names, metavar="TEXT", required=required, help=help or None)


def _topic(*, required: bool = True) -> Option:
    return Option("-t", "--topic", metavar="TOPIC", required=required, help="the topic")


def _group(*, required: bool = True) -> Option:
    return Option(
        "-g", "--groupName", "group", metavar="GROUP", required=required, help="the group"
    )


def _where() -> tuple[Option, Option]:
    return (
        Option("-b", "--brokerAddr", "broker", metavar="HOST:PORT", help="at this broker"),
        _cluster(),
    )


def _cluster(*, required: bool = False) -> Option:
    return Option(
        "-c",
        "--clusterName",
        "cluster",
        metavar="NAME",
        required=required,
        help="at all masters of this cluster",
    )


def _number(*names: str, default: int, help: str) -> Option:
    return Option(*names, type=NATURAL, default=default, metavar="N", help=f"{help} ({default})")


def _switch(*names: str, help: str) -> Option:
    return Option(*names, type=_FLAG, default=True, metavar="true|false", help=f"{help} (true)")


def _actions() -> Sequence[Command]:
    return (*_brokers(), *_topics(), *_groups(), *_messages(), *_nameservers())


def _brokers() -> Sequence[Command]:
    return (
        _do(
            "clusterList",
            "all brokers, a line each",
            "brokers:cluster_list",
            _cluster(),
            flag("-m", "--moreStats", "moreStats", help="messages of yesterday and today"),
            Option("-i", "--interval", type=POSITIVE, metavar="SECONDS", help="again and again"),
        ),
        _do("brokerStatus", "what brokers tell of themselves", "brokers:status", *_where()),
        _do("getBrokerConfig", "all settings of brokers", "brokers:get_config", *_where()),
        _do(
            "updateBrokerConfig",
            "change a setting of brokers",
            "brokers:update_config",
            *_where(),
            _text("-k", "--key", required=True, help="which one"),
            _text("-v", "--value", required=True, help="what it is to be"),
        ),
        _do("cleanExpiredCQ", "delete expired queues", "brokers:clean_queues", *_where()),
        _do("cleanUnusedTopic", "delete queues without a topic", "brokers:clean_topics", *_where()),
        _do(
            "deleteExpiredCommitLog",
            "delete expired files of the log",
            "brokers:delete_logs",
            *_where(),
        ),
    )


def _topics() -> Sequence[Command]:
    return (
        _do("topicList", "names of all topics", "topics:topic_list", _cluster()),
        _do("topicStatus", "queues of a topic", "topics:topic_status", _topic()),
        _do(
            "topicRoute",
            "where a topic is",
            "topics:print_route",
            _topic(),
            flag("-l", "--list", help="a line for each broker, instead of JSON"),
        ),
        _do("topicClusterList", "clusters of a topic", "topics:clusters", _topic()),
        _do(
            "updateTopic",
            "create a topic, or replace its settings",
            "topics:update",
            _topic(),
            *_where(),
            _number("-r", "--readQueueNums", "read", default=8, help="queues that are read"),
            _number("-w", "--writeQueueNums", "write", default=8, help="queues that are written"),
            Option("-p", "--perm", type=_PERM, default=6, metavar="2|4|6", help="permission (6)"),
            Option(
                "-o",
                "--order",
                type=_FLAG,
                default=False,
                metavar="true|false",
                help="whether it is ordered (false)",
            ),
        ),
        _do(
            "updateTopicPerm",
            "change whether a topic is read and written",
            "topics:update_perm",
            _topic(),
            *_where(),
            Option("-p", "--perm", type=_PERM, required=True, metavar="2|4|6", help="permission"),
        ),
        _do(
            "deleteTopic",
            "delete a topic",
            "topics:delete",
            _topic(),
            _cluster(required=True),
        ),
    )


def _groups() -> Sequence[Command]:
    time = Option(
        "-s",
        "--timestamp",
        required=True,
        metavar="TIME",
        help="now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS",
    )
    force = Option(
        "-f",
        "--force",
        type=_FLAG,
        default=True,
        metavar="true|false",
        help="forth as well as back (true)",
    )
    return (
        _do(
            "consumerProgress",
            "how far groups are",
            "groups:progress",
            _group(required=False),
            _topic(required=False),
            Option(
                "-s",
                "--showClientIP",
                "showClientIP",
                type=_FLAG,
                default=False,
                metavar="true|false",
                help="who reads each queue (false)",
            ),
            _cluster(),
        ),
        _do(
            "consumerConnection",
            "members of a group",
            "groups:consumers",
            Option(
                "-g", "--consumerGroup", "group", metavar="GROUP", required=True, help="the group"
            ),
            Option("-b", "--brokerAddr", "broker", metavar="HOST:PORT", help="as this one knows"),
        ),
        _do(
            "producerConnection",
            "producers of a group",
            "groups:producers",
            Option(
                "-g", "--producerGroup", "group", metavar="GROUP", required=True, help="the group"
            ),
            _topic(),
        ),
        _do(
            "updateSubGroup",
            "create a group, or replace its settings",
            "groups:update",
            _group(),
            *_where(),
            _switch("-s", "--consumeEnable", "consumeEnable", help="it may read"),
            _switch("-m", "--consumeFromMinEnable", "consumeFromMinEnable", help="from the start"),
            _switch("-d", "--consumeBroadcastEnable", "consumeBroadcastEnable", help="broadcasts"),
            _number("-q", "--retryQueueNums", "retryQueueNums", default=1, help="retry queues"),
            _number("-r", "--retryMaxTimes", "retryMaxTimes", default=16, help="tries"),
            _number("-i", "--brokerId", "brokerId", default=0, help="whom it reads from"),
            _number(
                "-w",
                "--whichBrokerWhenConsumeSlowly",
                "whichBrokerWhenConsumeSlowly",
                default=1,
                help="whom it reads from when it is far behind",
            ),
            _switch(
                "-a",
                "--notifyConsumerIdsChanged",
                "notifyConsumerIdsChanged",
                help="members are told of each other",
            ),
        ),
        _do(
            "deleteSubGroup",
            "delete a group",
            "groups:delete",
            _group(),
            *_where(),
            Option(
                "-r",
                "--removeOffset",
                "removeOffset",
                type=_FLAG,
                default=False,
                metavar="true|false",
                help="its offsets, too (false)",
            ),
        ),
        _do(
            "resetOffsetByTime",
            "have a group go on where a topic was at a time",
            "groups:reset",
            Option("-g", "--group", metavar="GROUP", required=True, help="the group"),
            _topic(),
            time,
            force,
        ),
        _do(
            "skipAccumulatedMessage",
            "have a group skip everything that is there",
            "groups:skip",
            Option("-g", "--group", metavar="GROUP", required=True, help="the group"),
            _topic(),
            force,
        ),
        _do(
            "cloneGroupOffset",
            "have one group go on where another one is",
            "groups:clone",
            _text("-s", "--srcGroup", "srcGroup", required=True, help="the other one"),
            _text("-d", "--destGroup", "destGroup", required=True, help="the one"),
            _topic(),
        ),
    )


def _messages() -> Sequence[Command]:
    key = _text("-k", "--msgKey", "key", required=True, help="the key")
    return (
        _do(
            "queryMsgById",
            "a message by the id of its place",
            "messages:by_id",
            _text("-i", "--msgId", "id", required=True, help="the id"),
            _topic(required=False),
        ),
        _do(
            "queryMsgByUniqueKey",
            "a message by the id that its producer gave",
            "messages:by_id",
            _text("-i", "--msgId", "id", required=True, help="the id"),
            _topic(),
        ),
        _do("queryMsgByKey", "messages with a key", "messages:by_key", _topic(), key),
        _do(
            "queryMsgByOffset",
            "a message by its place",
            "messages:by_offset",
            _topic(),
            _text("-b", "--brokerName", "broker", required=True, help="the name of the broker"),
            Option(
                "-i",
                "--queueId",
                "queue",
                type=NATURAL,
                required=True,
                metavar="N",
                help="the queue",
            ),
            Option("-o", "--offset", type=NATURAL, required=True, metavar="N", help="the offset"),
        ),
        _do(
            "sendMessage",
            "send one message",
            "messages:send",
            _topic(),
            _text("-p", "--body", required=True, help="what it says"),
            _text("-k", "--key", help="its key"),
            _text("-c", "--tag", help="its tag"),
        ),
    )


def _nameservers() -> Sequence[Command]:
    name = _text("-b", "--brokerName", "broker", required=True, help="the name of the broker")
    key = _text("-k", "--key", required=True, help="which one")
    value = _text("-v", "--value", required=True, help="what it is to be")
    namespace = _text("-s", "--namespace", required=True, help="of which namespace")
    return (
        _do("wipeWritePerm", "no more messages to a broker", "brokers:wipe_write_perm", name),
        _do("addWritePerm", "messages to a broker again", "brokers:add_write_perm", name),
        _do("getNamesrvConfig", "settings of nameservers", "brokers:get_nameserver_config"),
        _do(
            "updateNamesrvConfig",
            "change a setting of nameservers",
            "brokers:update_nameserver_config",
            key,
            value,
        ),
        _do(
            "updateKvConfig",
            "set a value at nameservers",
            "brokers:update_kv",
            namespace,
            key,
            value,
        ),
        _do("deleteKvConfig", "remove such a value", "brokers:delete_kv", namespace, key),
    )


COMMAND: Final = Command(
    name="admin",
    help="the commands of mqadmin, with its names and flags",
    description=(
        "The commands of mqadmin that operators use most, with its names, flags and columns, for"
        " scripts and habits. Exit codes tell failures, which those of mqadmin do not."
    ),
    actions=_actions,
    action_word="name",
    examples=(
        "rmq admin clusterList -n 127.0.0.1:9876",
        "rmq admin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t Orders -r 8 -w 8",
        "rmq admin consumerProgress -n 127.0.0.1:9876 -g billing",
    ),
)
