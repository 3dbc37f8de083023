"""What the live view shows."""

from __future__ import annotations

from typing import Any

from rmq.cli.common.tables import BAD, GOOD, Styled
from rmq.cli.top.view import Asked, view_of


def group(name: str, lag: int, members: int | None = 1) -> dict[str, Any]:
    return {
        "group": name,
        "members": members,
        "lag": lag,
        "per_second": 1.5,
        "topics": ["T"],
        "has_dead_letters": False,
    }


BROKER = {
    "broker": "a",
    "broker_id": 0,
    "address": "h:1",
    "role": "master",
    "answers": True,
    "in_per_second": 10.0,
    "out_per_second": 2.0,
    "disk_used_ratio": 0.95,
}
SILENT = {**BROKER, "broker_id": 1, "answers": False}
del SILENT["in_per_second"], SILENT["out_per_second"], SILENT["disk_used_ratio"]


def test_the_worst_group_comes_first_and_lags_have_a_direction() -> None:
    before = Asked(10.0, [BROKER], [group("calm", 5), group("late", 100), group("gone", 0)])
    now = Asked(12.0, [BROKER, SILENT], [group("new", 7), group("calm", 1), group("late", 300)])
    view = view_of(now, before)
    assert [line[0] for line in view.groups] == ["late", "new", "calm"]
    assert [line[3] for line in view.groups] == [
        Styled("+100", BAD),
        None,
        Styled("-2", GOOD),
    ]
    assert isinstance(view.head, Styled)
    assert "2 brokers   10.0 in/s   2.0 out/s   3 groups   lag 308" in view.head.text
    assert "1 without an answer" in view.head.text
    assert view.brokers[0][5] == Styled("95%", BAD)
    assert view.brokers[1][3] == Styled("no answer", BAD)


def test_a_cluster_that_does_not_answer_is_told() -> None:
    view = view_of(Asked(1.0, (), (), "nobody there"), None)
    assert (view.head, view.brokers, view.groups) == (Styled("nobody there", BAD), [], [])
