"""`rmq pipeline NAME ...`: the jobs of `rmq.spark`, and a demo that shows them at work.

The pipelines declare their own options: they are programs for `spark-submit`, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.cli.common.command import Command

if TYPE_CHECKING:
    from collections.abc import Sequence


def _actions() -> Sequence[Command]:
    from rmq.cli.pipeline.command import actions

    return actions()


COMMAND: Final = Command(
    name="pipeline",
    help="archive, audit, report, triage and replay messages with Spark",
    description=(
        "Jobs over topics and stores, on embedded Spark or on a cluster. Each prints a verdict and"
        " exits with 0 (it holds), 1 (it does not hold) or 2 (could not tell)."
    ),
    actions=_actions,
    action_word="pipeline",
    examples=(
        "rmq pipeline demo",
        "rmq pipeline report -n 127.0.0.1:9876 --out report",
        "rmq pipeline archive -n 127.0.0.1:9876 --topic Orders --out archive",
        "rmq pipeline audit --master-store DIR --slave-store DIR",
    ),
)
