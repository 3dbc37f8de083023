"""What `rmq ha status` shows about the brokers of a name, as text and as JSON. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from rmq.cli.common.shown import shown
from rmq.cli.ha.health import WRITABLE, findings, in_sync_count, is_sync_in_force
from rmq.cli.ha.members import SYNC_MASTER
from rmq.cli.ha.text import count_text, facts, ms_text, offset_text, size_text, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmq.cli.ha.health import Finding
    from rmq.cli.ha.members import Group, Member
    from rmq.remoting.bodies import HaMaster, HaSlave, HaStatusBody

HEAD: Final = (
    "ROLE",
    "BROKER",
    "ADDRESS",
    "STATE",
    "IN SYNC",
    "LOG END",
    "LAG",
    "LAG TIME",
    "HEARD FROM",
)
_ALIGN: Final = "<<<<<>>>>"

Row = tuple[str, ...]


def status_text(groups: Sequence[Group]) -> str:
    """Return the lines of text."""
    return "\n\n".join("\n".join(_lines(group)) for group in groups)


def status_json(groups: Sequence[Group]) -> str:
    """Return one JSON object with all answers."""
    told = [(group, findings(group)) for group in groups]
    return json.dumps(
        {
            "healthy": not any(each.is_problem for _, found in told for each in found),
            "brokers": [_as_object(group, found) for group, found in told],
        },
        indent=2,
    )


def _as_object(group: Group, found: Sequence[Finding]) -> dict[str, object]:
    return {
        "brokerName": group.name,
        "clusterName": group.cluster,
        "healthy": not any(finding.is_problem for finding in found),
        "findings": [
            {
                "problem": finding.is_problem,
                "address": finding.where,
                "what": finding.what,
                "todo": finding.todo,
            }
            for finding in found
        ],
        "nameservers": [
            {
                "address": listing.nameserver,
                "master": listing.master,
                "error": listing.problem,
            }
            for listing in group.listings
        ],
        "members": [
            {
                "address": member.address,
                "answers": member.status is not None or member.is_stock,
                "stock": member.is_stock,
                "stockLogEnd": member.stock_end,
                "error": member.problem,
                "status": None if member.status is None else msgspec.to_builtins(member.status),
            }
            for member in group.members
        ],
    }


# --- as text ---------------------------------------------------------------------------------


class Parts(NamedTuple):
    """What is shown of the brokers of one name."""

    title: str
    verdict: str
    is_healthy: bool
    facts: list[tuple[str, str]]
    rows: list[Row]
    """As many cells as `HEAD` has."""
    findings: list[Finding]


def parts_of(group: Group) -> Parts:
    """Return what is shown of a group."""
    found = findings(group)
    problems = sum(finding.is_problem for finding in found)
    verdict = f"NOT HEALTHY, {count_text(problems, 'problem')}" if problems else "healthy"
    cluster = f" of {group.cluster}" if group.cluster else ""
    return Parts(
        title=f"{group.name or 'broker'}{cluster}",
        verdict=verdict,
        is_healthy=not problems,
        facts=list(_facts(group)),
        rows=list(_rows(group)),
        findings=found,
    )


def _lines(group: Group) -> Iterator[str]:
    parts = parts_of(group)
    yield shown(f"{parts.title}: {parts.verdict}")
    yield ""
    for line in facts(parts.facts):
        yield shown(line)
    yield ""
    for line in table(HEAD, parts.rows, _ALIGN):
        yield shown(line)
    for finding in parts.findings:
        yield ""
        sign = "problem" if finding.is_problem else "note"
        yield shown(f"{sign}: {finding.where} {finding.what}")
        if finding.todo:
            yield shown(f"  -> {finding.todo}")


def _facts(group: Group) -> Iterator[tuple[str, str]]:
    for master in group.masters:
        if master.status is not None:
            yield from _facts_of_master(master.status)
            return
    seen = group.as_seen_by_slaves()
    is_followed = any(slave.is_following for slave in group.slaves)
    if seen is not None and seen.native:
        known = "as its slave knows" if is_followed else "when its slave last heard of it"
        yield "mode", f"{_mode_text(is_sync=seen.sync, needed=seen.needed)}, {known}"
        yield "in sync", f"{count_text(seen.in_sync_count, 'slave')}, {seen.needed} needed, {known}"
        yield "epoch", str(seen.epoch)
    elif is_followed:
        yield "mode", "not known: its master is not of rmq"
    else:
        yield "mode", "not known: no master answers"


def _facts_of_master(status: HaStatusBody) -> Iterator[tuple[str, str]]:
    is_sync = is_sync_in_force(status)
    since = f"from offset {offset_text(status.mode_offset)} on"
    if is_sync != (status.mode == SYNC_MASTER):
        configured = "async" if is_sync else "sync"
        since += f"; brokerRole={status.mode} is not in force yet, {configured} will be next"
    yield "mode", f"{_mode_text(is_sync=is_sync, needed=status.needed)}, {since}"
    names = ", ".join(dict.fromkeys(status.in_sync))
    known = len({slave.identity for slave in status.slaves})
    demand = f", {status.expected or 'none'} expected" if status.expected >= 0 else ""
    demand += f", {status.needed} needed" if is_sync else ""
    demand += f", {status.minimum} at least" if is_sync and status.minimum else ""
    counted = f"{in_sync_count(status)} of {count_text(known, 'slave')}" if known else "no slave"
    yield "in sync", f"{counted}{demand}{f': {names}' if names else ''}"
    held = (
        f"up to {offset_text(status.replicated)}, {_distance(status.end - status.replicated)}"
        if status.replicated >= 0
        else "not known: too few slaves in sync"
    )
    yield "replicated", held
    if 0 <= status.visible < status.end:
        yield "hidden", f"{size_text(status.end - status.visible)} that consumers do not see yet"
    if status.waiting:
        yield "waiting", f"{count_text(status.waiting, 'send')} for slaves"
    yield "epoch", str(status.epoch)


def _distance(size: int) -> str:
    return f"{size_text(size)} behind the end" if size > 0 else "the end of the log"


def _mode_text(*, is_sync: bool, needed: int) -> str:
    if is_sync:
        slaves = count_text(max(needed, 1), "slave")
        return f"sync: a send is answered when the master and {slaves} in sync hold it"
    return "async: a send is answered when the master holds it"


# --- the table -------------------------------------------------------------------------------


def _rows(group: Group) -> Iterator[Row]:
    shown_slaves: set[str] = set()
    for master in group.masters:
        yield _row_of_master(group, master)
    seen_master = group.as_seen_by_slaves()
    is_followed = any(slave.is_following for slave in group.slaves)
    if not group.masters and seen_master is not None and (is_followed or seen_master.native):
        # One that no slave was ever connected to may be no master at all.
        yield _row_of_master_seen(group, seen_master)
    for slave in group.slaves:
        if slave.status is not None:
            seen = group.as_seen_by_master(slave.status)
            if seen is not None:
                shown_slaves.add(seen.identity)
            yield _row_of_slave(group, slave, slave.status, seen)
        elif slave.is_stock:
            yield _row_of_stock(group, "slave", slave)
        elif not _is_listed(group, slave.address):
            yield _row_of_silent(group, "slave", slave)
    for master in group.masters:
        if master.is_fenced and len(group.masters) > 1:
            # Its slaves are those of another master by now.
            continue
        for seen in master.status.slaves if master.status is not None else ():
            if seen.identity not in shown_slaves:
                yield _row_of_slave_seen(seen)


def _is_listed(group: Group, address: str) -> bool:
    """Whether a master reports the slave at this address."""
    return any(
        seen.address == address
        for master in group.masters
        for seen in (master.status.slaves if master.status is not None else ())
    )


def _row_of_master(group: Group, member: Member) -> Row:
    status = member.status
    if status is None:
        if member.is_stock:
            return _row_of_stock(group, "master", member)
        return _row_of_silent(group, "master", member)
    # Why it is not stands below the table.
    state = WRITABLE if status.state == WRITABLE else "NOT WRITABLE"
    end = offset_text(status.end)
    return ("master", group.label(member), member.address, state, "", end, "", "", "")


def _row_of_stock(group: Group, role: str, member: Member) -> Row:
    end = offset_text(member.stock_end) if member.stock_end is not None else ""
    return (role, group.label(member), member.address, "not of rmq", "", end, "", "", "")


def _row_of_silent(group: Group, role: str, member: Member) -> Row:
    return (role, group.label(member), member.address, "does not answer", "", "", "", "", "")


def _row_of_master_seen(group: Group, master: HaMaster) -> Row:
    address = master.address or master.ha_address
    end = offset_text(master.end) if master.end > 0 else ""
    heard = _heard(master.heard_ms_ago)
    return ("master", f"{group.name}:0", address, "as its slave knows", "", end, "", "", heard)


def _row_of_slave(group: Group, member: Member, status: HaStatusBody, seen: HaSlave | None) -> Row:
    master = status.master
    in_sync, lag_bytes, lag_ms, heard_ms = False, -1, -1, -1
    if master is not None:
        in_sync, lag_bytes, lag_ms = master.in_sync, master.lag_bytes, master.lag_ms
        heard_ms = master.heard_ms_ago
    if seen is not None:
        # What the master reports counts: it decides which slaves are in sync.
        in_sync, lag_bytes, lag_ms = seen.in_sync, seen.lag_bytes, seen.lag_ms
        heard_ms = seen.heard_ms_ago
    return (
        "slave",
        group.label(member),
        member.address,
        status.state,
        "yes" if in_sync and member.is_following else "NO",
        offset_text(status.end),
        *_lag(lag_bytes, lag_ms),
        _heard(heard_ms),
    )


def _row_of_slave_seen(seen: HaSlave) -> Row:
    if not seen.connected:
        state = "gone"
    elif seen.native:
        state = "connected"
    else:
        state = "connected, stock"
    return (
        "slave",
        seen.name,
        seen.address,
        state,
        "yes" if seen.in_sync else "NO",
        offset_text(seen.appended) if seen.appended >= 0 else "",
        *_lag(seen.lag_bytes, seen.lag_ms),
        _heard(seen.heard_ms_ago),
    )


def _lag(lag_bytes: int, lag_ms: int) -> tuple[str, str]:
    # No time: it has never caught up, or nothing is known.
    unknown = "always" if lag_bytes > 0 else "?"
    return (
        size_text(lag_bytes) if lag_bytes >= 0 else "?",
        ms_text(lag_ms) if lag_ms >= 0 else unknown,
    )


def _heard(ms_ago: int) -> str:
    return f"{ms_text(ms_ago)} ago" if ms_ago >= 0 else "never"
