"""What can be asked of brokers of either kind, and of ours only; and comparing two of them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from ha_members import BROKER_NAME, SEGMENT_BYTES

from interop.support.cases import MismatchError, expect, expect_true
from interop.support.waiting import wait_until
from rmq.errors import RmqError
from rmq.remoting.bodies import (
    ClusterInfo,
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    HaStatusBody,
    KVTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rmq.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from ha_members import Member, Members

    from rmq.remoting.client import RemotingClient
    from rmq.remoting.header import Header

CAUGHT_UP_S: Final = 30.0
"""A stock slave needs 5 s to dial again, and more to say what it wants."""
TABLES_S: Final = 25.0
"""Without news of changes a slave asks every 10 s."""


class Extent(NamedTuple):
    """Where a log begins and ends."""

    begin: int
    end: int


class Tables(NamedTuple):
    """What a slave copies besides the log."""

    topics: object
    groups: object
    consumer_offsets: dict[str, dict[int, int]]
    delay_offsets: dict[int, int]


async def ask(
    client: RemotingClient, address: str, code: RequestCode, header: Header | None = None
) -> bytes:
    """Return the body of an answer that must be a good one."""
    answer = await client.request(address, code, header, timeout_s=15)
    expect(f"{code.name} ({answer.remark})", answer.code, int(ResponseCode.SUCCESS))
    return bytes(answer.body or b"")


async def extent(client: RemotingClient, member: Member) -> Extent:
    body = await ask(client, member.address, RequestCode.GET_BROKER_RUNTIME_INFO)
    table = KVTable.decode(body).table
    return Extent(max(0, int(table["commitLogMinOffset"])), int(table["commitLogMaxOffset"]))


async def status(client: RemotingClient, member: Member) -> HaStatusBody:
    """Ask a broker of ours how replication is going."""
    return HaStatusBody.decode(await ask(client, member.address, RequestCode.HA_STATUS))


async def wait_state(
    client: RemotingClient, member: Member, state: str, *, timeout_s: float = CAUGHT_UP_S
) -> HaStatusBody:
    """Wait until a slave of ours is in a state."""
    found: list[HaStatusBody] = []

    async def is_so() -> bool:
        with suppress(RmqError):
            found[:] = [await status(client, member)]
        return bool(found) and found[0].state == state

    try:
        await wait_until(f"the slave to be {state}", is_so, timeout_s=timeout_s)
    except MismatchError as exc:
        raise MismatchError(f"{exc}; it is {found}") from None
    return found[0]


async def wait_in_sync(client: RemotingClient, master: Member) -> HaStatusBody:
    """Wait until a master of ours has one slave in sync."""
    found: list[HaStatusBody] = []

    async def is_so() -> bool:
        found[:] = [await status(client, master)]
        return len(found[0].in_sync) == 1

    try:
        await wait_until("a slave in sync", is_so, timeout_s=CAUGHT_UP_S)
    except MismatchError as exc:
        raise MismatchError(f"{exc}; the master says {found}") from None
    return found[0]


async def wait_caught_up(client: RemotingClient, master: Member, slave: Member) -> int:
    """Wait until a slave has all of a master that is at rest; return where the logs end."""
    ends: list[int] = []

    async def is_so() -> bool:
        # A stock broker fails to answer in the first second of its life, one of ours is away for a
        # moment when it begins anew.
        with suppress(MismatchError, RmqError):
            ends[:] = [(await extent(client, member)).end for member in (master, slave)]
        return len(ends) == 2 and ends[0] == ends[1]

    try:
        await wait_until("the slave to have everything", is_so, timeout_s=CAUGHT_UP_S)
    except MismatchError as exc:
        raise MismatchError(f"{exc}; the logs end at {ends}") from None
    return ends[0]


async def wait_listed(
    client: RemotingClient, members: Members, wanted: dict[int, str], *, timeout_s: float = 15
) -> None:
    """Wait until the nameserver has exactly these brokers of the name, by their ids."""
    found: list[dict[int, str]] = []

    async def is_so() -> bool:
        try:
            body = await ask(client, members.nameserver, RequestCode.GET_BROKER_CLUSTER_INFO)
        except RmqError:
            return False
        known = ClusterInfo.decode(body).broker_addr_table.get(BROKER_NAME)
        found[:] = [dict(known.broker_addrs) if known is not None else {}]
        return found[0] == wanted

    try:
        await wait_until(f"{wanted} to be listed", is_so, timeout_s=timeout_s)
    except MismatchError as exc:
        raise MismatchError(f"{exc}; listed is {found}") from None


# ---- what a slave copies besides the log ---------------------------------------------------------


async def tables(client: RemotingClient, member: Member) -> Tables:
    address = member.address
    topics = await ask(client, address, RequestCode.GET_ALL_TOPIC_CONFIG)
    groups = await ask(client, address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    offsets = await ask(client, address, RequestCode.GET_ALL_CONSUMER_OFFSET)
    delays = await ask(client, address, RequestCode.GET_ALL_DELAY_OFFSET)
    return Tables(
        TopicConfigSerializeWrapper.decode(topics),
        SubscriptionGroupWrapper.decode(groups),
        ConsumerOffsetSerializeWrapper.decode(offsets).offset_table,
        DelayOffsetSerializeWrapper.decode(delays).offset_table,
    )


async def wait_same_tables(client: RemotingClient, master: Member, slave: Member) -> Tables:
    """Wait until a slave has the topics, groups and offsets of its master; return them."""
    found: list[Tables] = []

    async def is_so() -> bool:
        found[:] = [await tables(client, master), await tables(client, slave)]
        # A stock slave writes delay offsets into its file, and reads that when it starts.
        kept = _kept_delay_offsets(slave)
        return found[0] == found[1]._replace(delay_offsets=kept)

    try:
        await wait_until("the same tables", is_so, timeout_s=TABLES_S)
    except MismatchError as exc:
        differing = [
            f"{name}: {mine!r} and {theirs!r}"
            for name, mine, theirs in zip(Tables._fields, *found, strict=True)
            if mine != theirs
        ]
        raise MismatchError(f"{exc}: {differing}, kept {_kept_delay_offsets(slave)}") from None
    return found[0]


def _kept_delay_offsets(slave: Member) -> dict[int, int]:
    path = slave.store / "config" / "delayOffset.json"
    if not path.exists() or not (text := path.read_text().strip()):
        return {}
    return DelayOffsetSerializeWrapper.decode(text.encode()).offset_table


# ---- the log itself ------------------------------------------------------------------------------


def expect_same_log(one: Member, other: Member, start: int, stop: int) -> None:
    """Compare two logs byte by byte, as they are in their files."""
    expect_true(f"something to compare ({start} to {stop})", start < stop)
    while start < stop:
        first = start - start % SEGMENT_BYTES
        size = min(stop, first + SEGMENT_BYTES) - start
        mine, theirs = (_read(member, first, start - first, size) for member in (one, other))
        if mine != theirs:
            place = next(i for i in range(size) if mine[i] != theirs[i])
            raise MismatchError(f"the logs differ at {start + place}, from {start} to {stop}")
        start += size


def _read(member: Member, first: int, position: int, size: int) -> bytes:
    path = member.store / "commitlog" / f"{first:020d}"
    with path.open("rb") as file:
        file.seek(position)
        data = file.read(size)
    if len(data) != size:
        raise MismatchError(f"{path} has {len(data)} bytes of {size} at {position}")
    return data


def logged_errors(member: Member) -> list[str]:
    """Return the lines of a broker of ours that say ERROR or worse, without their time."""
    lines = member.log.read_text(errors="replace").splitlines()
    marks = (" ERROR ", " CRITICAL ", "Traceback ")
    return [line for line in lines if any(mark in f" {line}" for mark in marks)]


def saved_setting(member: Member, key: str) -> str | None:
    """Return what the file of a broker says about a setting."""
    lines = (member.folder / "broker.conf").read_text().splitlines()
    found = dict(line.replace(" ", "").partition("=")[::2] for line in lines if "=" in line)
    return found.get(key)
