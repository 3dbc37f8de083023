"""The Spark pipelines: what they found when they ran last, and whether they run."""

from __future__ import annotations

from typing import Final

from rmq.cli.generate.grafana.dashboard import Dashboard, Row, Section, Variable
from rmq.cli.generate.grafana.panels import Query, Stat, TimeSeries, Unit, Word, levels
from rmq.cli.generate.grafana.queries import PIPELINES as SELECTED
from rmq.cli.generate.grafana.queries import of
from rmq.cli.generate.grafana.shared import BAD_ABOVE_0, LAG_SECONDS, ODD_ABOVE_0, PIPELINES

_LEGEND: Final = "{{pipeline}} {{target}}"
_GROUP: Final = "{{group}} {{topic}}"
_DAY_S: Final = 86_400
_OUTCOMES: Final = (
    Word(0, "holds", "green"),
    Word(1, "does not hold", "red"),
    Word(2, "could not tell", "orange"),
)


def _of(name: str) -> str:
    return of(f"rmq_pipeline_{name}", among=SELECTED)


def _query(name: str, legend: str) -> tuple[Query, ...]:
    return (Query(_of(name), legend),)


_VERDICTS: Final = (
    Row(
        5,
        (
            Stat(
                "Verdict of the last run",
                "What each pipeline found when it ran last. 'Could not tell' means that it failed"
                " itself: its own output says why.",
                Unit.NONE,
                _query("outcome", _LEGEND),
                words=_OUTCOMES,
                levels=levels("green", (1, "red"), (2, "orange")),
                text="value_and_name",
                absent="no pipeline has run",
                alert="RocketMQPipelineDoesNotHold",
            ),
        ),
    ),
    Row(
        4,
        (
            Stat(
                "Since the last run",
                "How long ago each pipeline ended. A schedule that does not run any more shows"
                " here, whatever it said last.",
                Unit.SECONDS,
                (Query(f"time() - {_of('end_time_seconds')}", _LEGEND),),
                levels=levels("green", (25 * 3600, "orange"), (2 * _DAY_S, "red")),
                text="value_and_name",
                absent="no pipeline has run",
                alert="RocketMQPipelineNotRun",
            ),
        ),
    ),
)

_LAG: Final = Row(
    9,
    (
        TimeSeries(
            "Lag by group, in messages",
            "From the report: how many messages each group had not read. What is right depends on"
            " the group; a line that only rises is not.",
            Unit.COUNT,
            _query("lag_messages", _GROUP),
            absent="no report has run",
        ),
        TimeSeries(
            "Lag by group, in seconds",
            "From the report: the age of the first message that a group had not read.",
            Unit.SECONDS,
            _query("lag_seconds", _GROUP),
            levels=LAG_SECONDS,
            absent="none was behind",
        ),
    ),
)

_RUNS: Final = Row(
    8,
    (
        TimeSeries(
            "Duration of runs",
            "How long each run took, the start of Spark included. Well below the time between two"
            " runs is right.",
            Unit.SECONDS,
            _query("duration_seconds", _LEGEND),
        ),
        TimeSeries(
            "Messages per run",
            "How many messages each run looked at.",
            Unit.COUNT,
            _query("records", _LEGEND),
        ),
        TimeSeries(
            "Bytes per run",
            "How many bytes each run read.",
            Unit.BYTES,
            _query("bytes", _LEGEND),
        ),
    ),
)

_SAFETY: Final = Section(
    "Copies and stores",
    (
        Row(
            7,
            (
                TimeSeries(
                    "Records that differ",
                    "From the audit: records of master and slave that differ, are missing or cannot"
                    " be read. 0 is right.",
                    Unit.COUNT,
                    _query("differences", "{{target}}"),
                    levels=BAD_ABOVE_0,
                    absent="no audit has run",
                ),
                TimeSeries(
                    "Slave behind its master",
                    "From the audit: bytes that the slave had not received when it ran.",
                    Unit.BYTES,
                    _query("replica_lag_bytes", "{{target}}"),
                    absent="no audit has run",
                ),
                TimeSeries(
                    "Findings in stores",
                    "From verify: records, queue entries or index entries that contradict each"
                    " other. 0 errors is right; notes are what a crash may leave.",
                    Unit.COUNT,
                    (
                        Query(_of("store_errors"), "{{target}} errors"),
                        Query(_of("store_notes"), "{{target}} notes"),
                    ),
                    absent="no check has run",
                    alert="RocketMQStoreDamaged",
                ),
                TimeSeries(
                    "Waiting in stores",
                    "From verify: half messages not decided, and delayed messages not delivered.",
                    Unit.COUNT,
                    (
                        Query(_of("undecided_half_messages"), "{{target}} half messages"),
                        Query(_of("undelivered_delayed_messages"), "{{target}} delayed"),
                    ),
                    absent="no check has run",
                ),
            ),
        ),
    ),
)

_MESSAGES: Final = Section(
    "Messages",
    (
        Row(
            7,
            (
                TimeSeries(
                    "Archived, and left to the next run",
                    "Messages in the archive, and those that came after the run had begun.",
                    Unit.COUNT,
                    (
                        Query(_of("archived_messages"), "{{target}} archived"),
                        Query(_of("archive_left_messages"), "{{target}} left"),
                    ),
                    absent="no archive has run",
                ),
                TimeSeries(
                    "Missing in the archive",
                    "Messages that expired before they were archived. 0 is right.",
                    Unit.COUNT,
                    _query("gap_messages", "{{target}}"),
                    levels=BAD_ABOVE_0,
                    absent="no archive has run",
                ),
                TimeSeries(
                    "Dead letters",
                    "Messages in dead-letter topics, those not sent again, and those that are to be"
                    " tried again. 0 is right.",
                    Unit.COUNT,
                    (
                        Query(_of("dead_letters"), "{{target}} dead"),
                        Query(_of("dead_letters_open"), "{{target}} not sent again"),
                        Query(_of("retrying_messages"), "{{target}} to be tried again"),
                    ),
                    absent="no run of dlq",
                ),
                TimeSeries(
                    "Duplicates and missing messages",
                    "Copies that are too many, by cause, and keys of the ledger without a message."
                    " 0 is right.",
                    Unit.COUNT,
                    (
                        Query(_of("duplicate_messages"), "{{target}} {{cause}}"),
                        Query(_of("missing_messages"), "{{target}} missing"),
                    ),
                    levels=ODD_ABOVE_0,
                    absent="no run of duplicates",
                ),
            ),
        ),
        Row(
            7,
            (
                TimeSeries(
                    "Largest queue of a topic",
                    "From the report: its messages in times of the mean. 1 is even; above 2 one"
                    " consumer has more to do than the others.",
                    Unit.NONE,
                    _query("queue_skew", "{{topic}}"),
                    levels=levels("green", (2, "orange")),
                    absent="no report has run",
                ),
                TimeSeries(
                    "Sent again",
                    "By replay, in the last run.",
                    Unit.COUNT,
                    _query("replayed_messages", "{{target}}"),
                    absent="no replay has run",
                ),
            ),
        ),
    ),
)

_FORECAST: Final = Section(
    "Forecast",
    (
        Row(
            7,
            (
                TimeSeries(
                    "Disk full in",
                    "Time until the disk of a store is full, if it grows as it did. Weeks are"
                    " right; a disk that does not fill has no line.",
                    Unit.SECONDS,
                    (Query(f"{_of('disk_full_seconds')} < Inf", "{{target}} {{disk}}"),),
                    absent="does not fill",
                ),
                TimeSeries(
                    "Growth of stores",
                    "Bytes per second, in the median.",
                    Unit.BYTES_PER_SECOND,
                    _query("disk_growth_bytes", "{{target}} {{disk}}"),
                    absent="no forecast has run",
                ),
                TimeSeries(
                    "Growth of topics",
                    "Bytes per second, in the median.",
                    Unit.BYTES_PER_SECOND,
                    _query("growth_bytes", "{{topic}}"),
                    absent="no forecast has run",
                ),
                TimeSeries(
                    "Groups lose messages in",
                    "Time until messages expire that a group has not read. A group that is not"
                    " about to lose any has no line.",
                    Unit.SECONDS,
                    (Query(f"{_of('loss_in_seconds')} < Inf", _GROUP),),
                    absent="none loses any",
                ),
            ),
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    uid=PIPELINES,
    title="RocketMQ pipelines",
    description="What the Spark pipelines found when they ran last: verdicts, their age, lag.",
    variables=(
        Variable(name="pipeline", label="pipeline", of="rmq_pipeline_outcome"),
        Variable(name="target", label="target", of='rmq_pipeline_outcome{pipeline=~"$pipeline"}'),
    ),
    sections=(Section("", (*_VERDICTS, _LAG, _RUNS)), _SAFETY, _MESSAGES, _FORECAST),
    span="7d",
    refresh="1m",
)
