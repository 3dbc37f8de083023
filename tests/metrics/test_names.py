"""Names of all metrics, as `promtool check metrics` and dashboards want them."""

from __future__ import annotations

import re

from rmq.nameserver.metrics import CATALOGUE as NAMESERVER_CATALOGUE
from tests.metrics.all_families import ALL, OF_BROKER, SHARED


def test_names_follow_the_conventions_of_prometheus() -> None:
    for family in ALL:
        assert re.fullmatch(r"rocketmq(_[a-z0-9]+)+", family.name)
        assert (family.kind == "counter") == family.name.endswith("_total")
        assert not re.search(r"_(ms|milliseconds|kb|mb|count|sum|bucket|created)(_|$)", family.name)
        assert family.help[0].isupper() or family.help[0].isdigit()
        assert family.help.endswith(".")
        assert family.help.count("\n") == 0
        # Prometheus sets these itself.
        assert not {"job", "instance", "le", "quantile", "node_type", "node_id"} & set(
            family.labels
        )


def test_offsets_bytes_and_seconds_say_so_at_the_end_of_their_name() -> None:
    for family in ALL:
        words = family.name.removesuffix("_total").split("_")
        for unit in ("bytes", "seconds"):
            assert unit not in words[:-1], family.name
        assert "offset" not in words or words[-1] == "bytes", family.name


def test_no_name_is_there_twice() -> None:
    names = [family.name for family in (*OF_BROKER, *SHARED)]
    assert len(set(names)) == len(names)
    names = [family.name for family in (*NAMESERVER_CATALOGUE, *SHARED)]
    assert len(set(names)) == len(names)


def test_a_label_of_a_broker_is_none_that_all_have() -> None:
    for family in (*OF_BROKER, *SHARED):
        assert "cluster" not in family.labels
