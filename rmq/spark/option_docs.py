"""The page of all options, made from their declarations: `python -m rmq.spark.option_docs`.

    python -m rmq.spark.option_docs > docs/spark-options.md

A test compares the page with what this prints.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from rmq.settings.schema import format_value
from rmq.spark.files.settings import SCHEMA as STORE
from rmq.spark.options import CLUSTER_SETTINGS, COLUMN_SETTINGS
from rmq.spark.schema import COLUMNS
from rmq.spark.sink.settings import BATCH_OPTIONS
from rmq.spark.wire.settings import SCHEMA as WIRE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.settings.schema import Setting

_HEAD: Final = """\
# Options of the Spark formats

Made from their declarations by `python -m rmq.spark.option_docs`; [Spark](spark.md) shows them at
work. Names may be written in any case. A name that is not here is refused, with the nearest one
that is.
"""

_SHARED: Final = {setting.key for setting in (*CLUSTER_SETTINGS, *COLUMN_SETTINGS)}


def page() -> str:
    """Return the page."""
    parts = [
        _HEAD,
        "## The cluster\n\nFor reading and writing `rocketmq`.\n",
        _table(CLUSTER_SETTINGS),
        "## The table\n\nFor reading `rocketmq` and `rocketmq-store`.\n",
        _table(COLUMN_SETTINGS),
        "## Reading `rocketmq`\n",
        _table(_own(WIRE)),
        "## Reading `rocketmq-store`\n",
        _table(_own(STORE)),
        "## Writing `rocketmq`\n",
        _table(_own(BATCH_OPTIONS)),
        "## Columns\n\nOf both sources, in this order; all may be null.\n",
        "| column | type |\n| --- | --- |\n"
        + "".join(f"| `{column.name}` | {column.spark_type} |\n" for column in COLUMNS.values()),
    ]
    return "\n".join(parts)


def _own(settings: Iterable[Setting]) -> list[Setting]:
    return [setting for setting in settings if setting.key not in _SHARED]


def _table(settings: Iterable[Setting]) -> str:
    lines = ["| option | default | meaning |", "| --- | --- | --- |"]
    for setting in settings:
        default = format_value(setting.default)
        shown = f"`{default}`" if default else ""
        if setting.default_text is not None:
            shown = setting.default_text
        elif setting.default == -1:
            # What stands for "not set" where a number is wanted.
            shown = ""
        meaning = setting.help.replace("|", "\\|")
        if setting.choices:
            meaning += f" ({', '.join(f'`{choice}`' for choice in setting.choices)})"
        lines.append(f"| `{setting.key}` | {shown} | {meaning} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
