"""Consumers: which groups are behind, by how much, and whether they catch up."""

from __future__ import annotations

from typing import Final

from rmq.cli.generate.grafana.dashboard import Dashboard, Row, Section
from rmq.cli.generate.grafana.panels import (
    NEUTRAL,
    BarGauge,
    Column,
    Query,
    Stat,
    Table,
    TimeSeries,
    Unit,
    levels,
)
from rmq.cli.generate.grafana.queries import increase, of, rate, total
from rmq.cli.generate.grafana.shared import (
    ANNOTATIONS,
    BAD_ABOVE_0,
    BROKER_VARIABLES,
    CONSUMERS,
    GROUP,
    LAG_SECONDS,
    ODD_ABOVE_0,
    TOPIC,
)

_PAIR: Final = "topic, consumer_group"
_LEGEND: Final = "{{consumer_group}} {{topic}}"
_TOPIC: Final = 'topic=~"$topic"'
_GROUP: Final = 'consumer_group=~"$group"'
_NO_SYSTEM: Final = 'is_system="false"'
_USERS: Final = (_TOPIC, _GROUP, _NO_SYSTEM)
_RETRIES: Final = (_GROUP, 'is_retry="true"')
_LAG: Final = total(of("rocketmq_consumer_lag_messages", *_USERS), by=_PAIR)
_AGE: Final = f"max by ({_PAIR}) ({of('rocketmq_consumer_lag_seconds', *_USERS)})"
_OUT: Final = rate("rocketmq_messages_out_total", *_USERS, by=_PAIR)
_OUT_5M: Final = rate("rocketmq_messages_out_total", *_USERS, by=_PAIR, over="5m")
_IN: Final = rate("rocketmq_messages_in_total", _TOPIC, _NO_SYSTEM, by="topic")
_IN_5M: Final = rate("rocketmq_messages_in_total", _TOPIC, _NO_SYSTEM, by="topic", over="5m")
_GAIN: Final = f"({_OUT_5M} - on (topic) group_left () {_IN_5M})"
_LAG_OF_GROUP: Final = total(
    of("rocketmq_consumer_lag_messages", _GROUP, _NO_SYSTEM), by="consumer_group"
)
_CONNECTED: Final = total(of("rocketmq_consumer_connections", _GROUP), by="consumer_group")
_DEAD: Final = total(of("rocketmq_dlq_messages", _GROUP))
_QUEUE_LAG: Final = of("rocketmq_consumer_queue_lag_messages", _TOPIC, _GROUP)

_NOW: Final = Section(
    "Now",
    (
        Row(
            4,
            (
                Stat(
                    "Messages behind",
                    "Stored, but not committed, over all groups. What is right depends on the"
                    " groups; a number that only grows is not.",
                    Unit.COUNT,
                    (Query(total(of("rocketmq_consumer_lag_messages", *_USERS)), "behind"),),
                    levels=levels("green", (100_000, "orange")),
                    absent="none",
                ),
                Stat(
                    "Oldest message behind",
                    "Age of the first message that a group has not committed. Below a minute is"
                    " right for groups that read all the time.",
                    Unit.SECONDS,
                    (Query(f"max({of('rocketmq_consumer_lag_seconds', *_USERS)})", "age"),),
                    levels=LAG_SECONDS,
                    absent="none",
                ),
                Stat(
                    "Groups that stand still",
                    "Groups with messages behind that were handed none for 5 minutes. 0 is right:"
                    " no member is connected, or the listener of all members hangs.",
                    Unit.NONE,
                    (Query(f"count(({_LAG} > 0) unless ({_OUT_5M} > 0)) or vector(0)", "groups"),),
                    levels=BAD_ABOVE_0,
                ),
                Stat(
                    "Groups without members",
                    "Groups with messages behind and no consumer connected. 0 is right, but for"
                    " jobs that run at times.",
                    Unit.NONE,
                    (
                        Query(
                            f"count(({_LAG_OF_GROUP} > 0) unless ({_CONNECTED} > 0)) or vector(0)",
                            "groups",
                        ),
                    ),
                    levels=ODD_ABOVE_0,
                ),
                Stat(
                    "To be tried again",
                    "Messages in retry topics: consumers failed at them before. Few are right.",
                    Unit.COUNT,
                    (Query(total(of("rocketmq_consumer_lag_messages", *_RETRIES)), "retries"),),
                    levels=levels("green", (1_000, "orange")),
                    absent="none",
                ),
                Stat(
                    "Dead letters",
                    "Messages in dead-letter topics: consumers failed at them too often. 0 is"
                    " right; they are kept as long as others, unless they are sent again.",
                    Unit.COUNT,
                    (Query(_DEAD, "dead"),),
                    levels=ODD_ABOVE_0,
                    absent="none",
                ),
            ),
        ),
        Row(
            9,
            (
                Table(
                    "Groups and topics",
                    "Of each group that reads a topic: messages behind, age of the first of them,"
                    " messages per second in and out, and how long the backlog lasts at the rates"
                    " of the last 5 minutes. No time is shown for a group that does not gain.",
                    Unit.NONE,
                    (
                        Column(_LAG, heading="Behind", unit=Unit.COUNT),
                        Column(_AGE, heading="Age", unit=Unit.SECONDS, levels=LAG_SECONDS),
                        Column(_OUT, heading="Out", unit=Unit.PER_SECOND),
                        Column(
                            f"{_OUT} * 0 + on (topic) group_left () {_IN}",
                            heading="In",
                            unit=Unit.PER_SECOND,
                        ),
                        Column(
                            f"({_LAG} > 0) / ({_GAIN} > 0)",
                            heading="Caught up in",
                            unit=Unit.SECONDS,
                        ),
                    ),
                    labels=(("consumer_group", "Group"), ("topic", "Topic")),
                    sort_by="Behind",
                    absent="no group",
                ),
            ),
        ),
    ),
)

_LAGS: Final = Section(
    "Lag",
    (
        Row(
            9,
            (
                TimeSeries(
                    "Messages behind, 20 largest",
                    "Stored, but not committed. Lines that go up and down are right; a line that"
                    " only rises is a group that is too slow, or stands still.",
                    Unit.COUNT,
                    (Query(f"topk(20, {_LAG})", _LEGEND),),
                    absent="no group",
                ),
                TimeSeries(
                    "Age of the first message behind, 20 largest",
                    "A line that rises as fast as time passes is a group that stands still.",
                    Unit.SECONDS,
                    (Query(f"topk(20, {_AGE})", _LEGEND),),
                    levels=LAG_SECONDS,
                    absent="none is behind",
                ),
            ),
        ),
        Row(
            8,
            (
                TimeSeries(
                    "Not handed out, and in flight",
                    "ready: not handed out yet, so members are too slow or too few. in flight:"
                    " handed out, but not committed; it is as large as the buffers of the members"
                    " allow.",
                    Unit.COUNT,
                    (
                        Query(
                            total(
                                of("rocketmq_consumer_ready_messages", *_USERS),
                                by="consumer_group",
                            ),
                            "{{consumer_group}} ready",
                        ),
                        Query(
                            total(
                                of("rocketmq_consumer_inflight_messages", *_USERS),
                                by="consumer_group",
                            ),
                            "{{consumer_group}} in flight",
                        ),
                    ),
                    absent="no group",
                ),
                TimeSeries(
                    "Age of the first message not handed out",
                    "How long a message waits before any member gets it. Below a second is right"
                    " for groups that read all the time.",
                    Unit.SECONDS,
                    (
                        Query(
                            f"max by ({_PAIR})"
                            f" ({of('rocketmq_consumer_queueing_latency_seconds', *_USERS)})",
                            _LEGEND,
                        ),
                    ),
                    levels=LAG_SECONDS,
                    absent="none waits",
                ),
                TimeSeries(
                    "Largest part of one queue",
                    "Of what a group is behind, how much lies in one queue: with four queues 25 %"
                    " is right. More means that the member of that queue hangs, or that one key"
                    " has most messages. Only groups of the setting metricsQueueGroups.",
                    Unit.RATIO,
                    (
                        Query(
                            f"max by ({_PAIR}) ({_QUEUE_LAG})"
                            f" / clamp_min(sum by ({_PAIR}) ({_QUEUE_LAG}), 1)",
                            _LEGEND,
                        ),
                    ),
                    levels=levels("green", (0.5, "orange")),
                    maximum=1,
                    absent="see metricsQueueGroups",
                ),
            ),
        ),
    ),
)

_RATES: Final = Section(
    "Rates",
    (
        Row(
            8,
            (
                TimeSeries(
                    "Messages in, by topic",
                    "Stored, per second.",
                    Unit.PER_SECOND,
                    (Query(_IN, "{{topic}}"),),
                    absent="none",
                ),
                TimeSeries(
                    "Messages out, by group",
                    "Handed to consumers, per second. Each group takes what comes in, when it is"
                    " not behind; retries are not in it.",
                    Unit.PER_SECOND,
                    (Query(_OUT, _LEGEND),),
                    absent="none",
                ),
                TimeSeries(
                    "Bytes in and out",
                    "Stored above zero, handed out below.",
                    Unit.BYTES_PER_SECOND,
                    (
                        Query(
                            rate("rocketmq_throughput_in_total", _TOPIC, _NO_SYSTEM, by="topic"),
                            "{{topic}}",
                        ),
                        Query(
                            rate("rocketmq_throughput_out_total", *_USERS, by=_PAIR),
                            _LEGEND,
                        ),
                    ),
                    minimum=None,
                    downward=(1,),
                    absent="none",
                ),
            ),
        ),
    ),
)

_FAILURES: Final = Section(
    "Retries, dead letters, delays",
    (
        Row(
            8,
            (
                TimeSeries(
                    "Sent back",
                    "Messages per second that consumers could not process, by the topic they were"
                    " sent to first. 0 is right.",
                    Unit.PER_SECOND,
                    (
                        Query(
                            rate("rocketmq_send_back_messages_total", _TOPIC, _GROUP, by=_PAIR),
                            _LEGEND,
                        ),
                    ),
                    absent="none",
                ),
                TimeSeries(
                    "To be tried again",
                    "Messages in retry topics that the group has not committed, by group. It"
                    " falls again when the cause is gone.",
                    Unit.COUNT,
                    (
                        Query(
                            total(
                                of("rocketmq_consumer_lag_messages", *_RETRIES),
                                by="consumer_group",
                            ),
                            "{{consumer_group}}",
                        ),
                    ),
                    absent="none",
                ),
                TimeSeries(
                    "Given up",
                    "Messages put to dead-letter topics in each interval, by the topic they were"
                    " sent to first. 0 is right.",
                    Unit.COUNT,
                    (
                        Query(
                            increase(
                                "rocketmq_send_to_dlq_messages_total", _TOPIC, _GROUP, by=_PAIR
                            ),
                            _LEGEND,
                        ),
                    ),
                    absent="none",
                ),
            ),
        ),
        Row(
            8,
            (
                TimeSeries(
                    "Dead letters, by group",
                    "Messages in the dead-letter topic of each group. 0 is right.",
                    Unit.COUNT,
                    (
                        Query(
                            total(of("rocketmq_dlq_messages", _GROUP), by="consumer_group"),
                            "{{consumer_group}}",
                        ),
                    ),
                    absent="none",
                ),
                TimeSeries(
                    "Consumers connected",
                    "By group. A group that reads all the time has its members at all times.",
                    Unit.COUNT,
                    (Query(_CONNECTED, "{{consumer_group}}"),),
                    absent="none",
                ),
                BarGauge(
                    "Delayed messages, by level",
                    "Messages that wait for their time. Level 3 is 10 s, level 18 two hours, unless"
                    " messageDelayLevel says otherwise; retries wait here, too.",
                    Unit.COUNT,
                    (
                        Query(
                            total(of("rocketmq_schedule_pending_messages"), by="level") + " > 0",
                            "level {{level}}",
                        ),
                    ),
                    levels=NEUTRAL,
                    absent="none waits",
                ),
            ),
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    uid=CONSUMERS,
    title="RocketMQ consumers and lag",
    description="Which groups are behind, by how much, whether they catch up, what they fail at.",
    variables=(*BROKER_VARIABLES, TOPIC, GROUP),
    sections=(_NOW, _LAGS, _RATES, _FAILURES),
    annotations=ANNOTATIONS,
)
