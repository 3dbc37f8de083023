"""Groups moved and deleted: `rmq group reset` and `delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rmq.cli.admin.groups import expect_known, group_found, lag_text
from rmq.cli.admin.session import Cluster, confirmed, open_cluster, print_found
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.tables import BAD, GOOD, Column, Styled, print_facts, print_table
from rmq.cli.common.usage import UsageError
from rmq.client.core.admin import groups as group_flows
from rmq.client.core.admin.offsets import QUEUE_ENDS_MS, max_offset, offset_at, reset_offsets
from rmq.client.core.admin.targets import who
from rmq.model.moments import parse_moment_ms
from rmq.model.words import count_text

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from rmq.client.core.admin.targets import Failure
    from rmq.model.queues import MessageQueue

EARLIEST_MS: Final = 0
"""All messages were stored later."""


def reset(args: Namespace) -> int:
    """Show where a group would go on, ask, and move it."""
    time_ms = _time_of(args.to)
    with open_cluster(args) as cluster:
        before, failures = _offsets(cluster, args.group, args.topic)
        if failures:
            print_found(args, {}, lambda: None, failures)
            raise UsageError("all brokers of the topic must answer before a group is moved")
        if not before:
            # One that has not begun may be moved; one that is misspelt may not.
            expect_known(cluster, cluster.groups_of_topic(args.topic), args.group)
        after = _wanted(cluster, args.topic, time_ms)
        found: dict[str, Any] = {
            "group": args.group,
            "topic": args.topic,
            "is_dry_run": args.dry_run,
            "queues": [
                _change(queue, before.get(queue), offset) for queue, offset in after.items()
            ],
        }
        if not args.json:
            _show(found)
        if args.dry_run:
            return print_found(args, found, lambda: None)
        if not confirmed(args, f"move group {args.group}?"):
            return ExitCode.FAILURE
        done = cluster.run(reset_offsets(cluster.nameservers, args.group, args.topic, time_ms))
    found["queues"] = [
        _change(queue, before.get(queue), offset) for queue, offset in done.offsets.items()
    ]
    found["brokers_without_consumers"] = sorted(done.offline)

    def show() -> None:
        told = "no consumer was connected" if done.offline else "its consumers were told"
        print(f"group {args.group} is moved in {count_text(len(done.offsets), 'queue')}; {told}")

    return print_found(args, found, show)


def _time_of(text: str) -> int:
    """Return the time that stands for a place."""
    if text == "latest":
        return QUEUE_ENDS_MS
    if text == "earliest":
        return EARLIEST_MS
    try:
        return parse_moment_ms(text)
    except ValueError as wrong:
        raise UsageError(f"--to is earliest, latest or a time: {wrong}") from None


def _offsets(
    cluster: Cluster, group: str, topic: str
) -> tuple[dict[MessageQueue, int], list[Failure]]:
    """Return where a group goes on in the queues of a topic that it has begun."""
    # Asked for one topic, brokers say 0 of queues that a group has no offset for.
    tried = cluster.read_each(
        f"progress of group {group}",
        cluster.groups_of_topic(topic),
        lambda broker: group_flows.consume_stats(broker.address, group, None),
    )
    return {
        queue: told.consumer_offset
        for _, stats in tried.answers
        for queue, told in stats.offset_table.items()
        if queue.topic == topic
    }, list(tried.failures)


def _wanted(cluster: Cluster, topic: str, time_ms: int) -> dict[MessageQueue, int]:
    """Return where the queues of a topic were at a time."""
    nameservers = cluster.nameservers
    route = cluster.run(nameservers.route(topic))
    offsets, errors = cluster.run_all(
        {
            queue: max_offset(nameservers, queue)
            if time_ms == QUEUE_ENDS_MS
            else offset_at(nameservers, queue, time_ms)
            for queue in route.readable
        }
    )
    if errors:
        raise next(iter(errors.values()))
    return {queue: max(0, offsets[queue]) for queue in route.readable}


def _change(queue: MessageQueue, before: int | None, after: int) -> dict[str, Any]:
    return {
        "broker": queue.broker_name,
        "queue_id": queue.queue_id,
        "old_offset": before,
        "new_offset": after,
    }


def _show(found: Mapping[str, Any]) -> None:
    rows = []
    for change in found["queues"]:
        before, after = change["old_offset"], change["new_offset"]
        moved = None if before is None else after - before
        style = GOOD if moved is not None and moved < 0 else BAD
        rows.append(
            (
                change["broker"],
                change["queue_id"],
                before,
                after,
                Styled(f"{moved:+,}", style) if moved else moved,
            )
        )
    print_table(
        (
            "BROKER",
            Column("QUEUE", True),
            Column("NOW", True),
            Column("THEN", True),
            Column("MOVED", True),
        ),
        rows,
    )
    moves = [
        each["new_offset"] - each["old_offset"]
        for each in found["queues"]
        if each["old_offset"] is not None
    ]
    again, skipped = -sum(min(0, each) for each in moves), sum(max(0, each) for each in moves)
    if again:
        print(f"{count_text(again, 'message')} will be delivered again")
    if skipped:
        print(f"{count_text(skipped, 'message')} will be skipped")


def delete(args: Namespace) -> int:
    """Delete a group, once it is known who reads with it."""
    with open_cluster(args) as cluster:
        found, failures = group_found(cluster, args.group)
        if not args.json:
            print_facts(
                [
                    ("group", args.group),
                    ("members", count_text(len(found["members"]), "member")),
                    ("lag", lag_text(found["lag"], found["lag_s"])),
                ]
            )
        if failures:
            print_found(args, found, lambda: None, failures)
            raise UsageError("all brokers must answer before a group is deleted")
        if not confirmed(args, f"delete group {args.group}, its retries and its dead letters?"):
            return ExitCode.FAILURE
        done = cluster.run(
            group_flows.delete_group(
                cluster.nameservers,
                args.group,
                removes_offsets=not args.keep_offsets,
                cluster=args.cluster,
                broker=args.broker,
            )
        )
    deleted = {
        "group": args.group,
        "deleted_at": [{"broker": each.broker_name, "address": each.address} for each in done],
    }
    return print_found(
        args, deleted, lambda: print(f"{args.group} is deleted at {', '.join(map(who, done))}")
    )
