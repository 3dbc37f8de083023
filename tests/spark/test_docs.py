"""The examples of docs/spark.md run one after the other and print what they say; so does the page
of options.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from rmq.spark.option_docs import page
from rmq.spark.pipelines.catalogue import PIPELINES
from rmq.spark.wire.clients import close_clients
from tests.paths import DOCS
from tests.spark.wire.wire_cluster import wire_cluster

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

PAGE: Final = (DOCS / "spark.md").read_text()
ADDRESS: Final = "127.0.0.1:9876"
STORE: Final = "/var/lib/rocketmq/store"
_EXAMPLE: Final = re.compile(
    r"```python\n(?P<code>.*?)```\n(?:```\n(?P<output>.*?)```\n)?", re.DOTALL
)


def test_the_examples_print_what_they_say(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = [match.groupdict() for match in _EXAMPLE.finditer(PAGE)]
    assert len(examples) == PAGE.count("```python") == 6
    assert spark.version
    scope: dict[str, Any] = {}
    with wire_cluster(tmp_path) as cluster:
        for example in examples:
            code = example["code"].replace(ADDRESS, cluster.nameserver)
            exec(code.replace(STORE, str(cluster.master_store)), scope)
            assert capsys.readouterr().out == (example["output"] or "")
    close_clients()


def test_the_page_of_options_is_up_to_date() -> None:
    shown = (DOCS / "spark-options.md").read_text()
    assert shown == page(), "run: python -m rmq.spark.option_docs > docs/spark-options.md"


def test_the_page_names_every_pipeline() -> None:
    for pipeline in PIPELINES:
        assert f"| `{pipeline.name} " in PAGE, pipeline.name
