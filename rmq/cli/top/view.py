"""What the live view shows: lines of brokers and groups, worst first. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmq.cli.admin.brokers import disk_cell
from rmq.cli.common.tables import BAD, DIM, GOOD, ODD, Cell, Styled
from rmq.model.words import count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

BROKER_COLUMNS = ("BROKER", "ADDRESS", "ROLE", "IN/S", "OUT/S", "DISK")
GROUP_COLUMNS = ("GROUP", "MEMBERS", "LAG", "LAG/S", "READ/S", "TOPICS")
GROUPS_MAX = 500
"""More lines than that are no view."""


class Asked(NamedTuple):
    """What a cluster told at one time."""

    at_s: float
    """By a clock that only goes forth."""
    brokers: Sequence[dict[str, Any]]
    groups: Sequence[dict[str, Any]]
    problem: str | None = None
    """Why there is no answer."""


class View(NamedTuple):
    """What is on the screen."""

    head: Cell
    brokers: list[tuple[Cell, ...]]
    groups: list[tuple[Cell, ...]]


def view_of(now: Asked, before: Asked | None) -> View:
    """Return what is shown; what was told before gives how lags change."""
    if now.problem is not None:
        return View(Styled(now.problem, BAD), [], [])
    into = sum(each.get("in_per_second", 0.0) for each in now.brokers)
    out = sum(each.get("out_per_second", 0.0) for each in now.brokers)
    lag = sum(each["lag"] for each in now.groups)
    silent = sum(not each["answers"] for each in now.brokers)
    text = (
        f"{count_text(len(now.brokers), 'broker')}   {into:,.1f} in/s   {out:,.1f} out/s"
        f"   {count_text(len(now.groups), 'group')}   lag {lag:,}"
    )
    if silent:
        text += f"   {silent} without an answer"
    return View(
        Styled(text, BAD if silent else "bold"),
        [_broker_line(each) for each in now.brokers],
        [_group_line(each, now, before) for each in _worst_first(now.groups)[:GROUPS_MAX]],
    )


def _worst_first(groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(groups, key=lambda group: (-group["lag"], group["group"]))


def _broker_line(broker: dict[str, Any]) -> tuple[Cell, ...]:
    place = (f"{broker['broker']}:{broker['broker_id']}", broker["address"], broker["role"])
    if not broker["answers"]:
        return (*place, Styled("no answer", BAD), None, None)
    return (
        *place,
        broker["in_per_second"],
        broker["out_per_second"],
        disk_cell(broker["disk_used_ratio"]),
    )


def _group_line(group: dict[str, Any], now: Asked, before: Asked | None) -> tuple[Cell, ...]:
    lag = group["lag"]
    return (
        group["group"],
        Styled("0", DIM) if group["members"] == 0 else group["members"],
        Styled(f"{lag:,}", ODD) if lag else 0,
        _change(group, now, before),
        group["per_second"],
        ", ".join(group["topics"]),
    )


def _change(group: dict[str, Any], now: Asked, before: Asked | None) -> Cell:
    """Return how fast the lag of a group grows or shrinks; None if it is not known yet."""
    if before is None or now.at_s <= before.at_s:
        return None
    known = {each["group"]: each["lag"] for each in before.groups}
    if group["group"] not in known:
        return None
    change = (group["lag"] - known[group["group"]]) / (now.at_s - before.at_s)
    if not change:
        return "0"
    return Styled(f"{change:+,.0f}", BAD if change > 0 else GOOD)
