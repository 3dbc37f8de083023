"""How replication is going, and what a change of roles did. RocketMQ 4.9.8 has nothing like it.

Offsets are physical offsets of the CommitLog, times are milliseconds. -1 stands for a number that
is not known: what no slave holds for certain, or the lag of one that never caught up.
"""

import msgspec

from rmq.remoting.bodies.base import Body
from rmq.remoting.header import Int32, Int64


class HaSlave(Body, frozen=True, kw_only=True):
    """A slave as its master sees it."""

    name: str
    """For people."""
    address: str = ""
    identity: str = ""
    """Names its store; connections with the same count once."""
    native: bool = False
    connected: bool = False
    in_sync: bool = False
    appended: Int64 = -1
    flushed: Int64 = -1
    lag_bytes: Int64 = -1
    lag_ms: Int64 = -1
    heard_ms_ago: Int64 = -1
    why: str = ""
    """Why it is not connected, or not in sync."""


class HaMaster(Body, frozen=True, kw_only=True):
    """A master as its slave sees it."""

    address: str = ""
    ha_address: str = ""
    native: bool = False
    epoch: Int64 = 0
    end: Int64 = -1
    lag_bytes: Int64 = -1
    lag_ms: Int64 = -1
    heard_ms_ago: Int64 = -1
    sync: bool = False
    """Whether it waits for slaves."""
    in_sync: bool = False
    """Whether it counts this slave."""
    needed: Int32 = 0
    in_sync_count: Int32 = 0


class HaStatusBody(Body, frozen=True, kw_only=True):
    """The answer to 9001, HA_STATUS."""

    role: str
    """MASTER or SLAVE."""
    mode: str = ""
    """ASYNC_MASTER, SYNC_MASTER or SLAVE."""
    in_force: str = ""
    """The mode by which a master answers sends: sync until it is recorded that it is async."""
    mode_offset: Int64 = 0
    """From here on the mode in force applies."""
    waits_for: str = ""
    """What a change of mode or of the slaves that count waits for; empty if for nothing."""
    epoch: Int64 = 0
    replica: str = ""
    """Names the store, in hexadecimal."""
    member: str = ""
    """How in-sync records call it."""
    members: tuple[str, ...] = ()
    """All names by which it still holds what it has confirmed."""
    pending: bool = False
    """It is to be master, but the first record of its epoch does not count yet."""
    promoting: bool = False
    """An operator has ordered it to become master, and it is about to."""
    gave_up: bool = False
    """It was the last master of its epoch that it knows of, and has stepped down."""
    record: str = ""
    """The latest in-sync record it knows, as JSON; empty if it knows none."""
    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Int64 = 0
    address: str = ""
    ha_address: str = ""
    state: str = ""
    """Of a slave, how far it is with following; of a master, whether it takes messages."""
    begin: Int64 = 0
    end: Int64 = 0
    flushed: Int64 = 0
    replicated: Int64 = -1
    visible: Int64 = -1
    """Up to here consumers see messages."""
    needed: Int32 = 0
    minimum: Int32 = 0
    expected: Int32 = -1
    """How many slaves the name is to have (`expectedSlaves`); -1: its operator has not said."""
    in_sync: tuple[str, ...] = ()
    """The names of the slaves that count."""
    waiting: Int32 = 0
    """Sends that wait for slaves."""
    counters: dict[str, Int64] = msgspec.field(default_factory=dict)
    last_error: str | None = None
    has_secret: bool | None = None
    """Whether slaves have to know a secret (`haSecret`); None: an older version does not tell."""
    slaves: tuple[HaSlave, ...] = ()
    former_masters: tuple[str, ...] = ()
    """Where masters may be that were replaced: those whose place this broker took, and those that
    asked it of late whether they still are masters."""
    master: HaMaster | None = None


class HaPromoteBody(Body, frozen=True, kw_only=True):
    """The answer to 9002, HA_PROMOTE."""

    mode: str
    epoch: Int64
    start: Int64
    """Where this master began to write."""
    previous_master: str = ""
    """The address of the master before, if one is known."""
    previous_end: Int64 = -1
    """Where its log ended, if it said so."""
    missing_bytes: Int64 = 0
    """What it had and this broker has not, as far as is known."""
    cut_bytes: Int64 = 0
    """The rest of a message that had not arrived as a whole."""
    is_safe: bool = True
    """Nothing that was acknowledged is missing."""
    reason: str = ""
    """Why that is so, or why it is not known."""
    waits_for: str = ""
    """Why sends cannot be answered SEND_OK yet; empty if they can."""


class HaDemoteBody(Body, frozen=True, kw_only=True):
    """The answer to 9003, HA_DEMOTE."""

    epoch: Int64
    end: Int64
    """Where this master stopped writing."""
    ha_master_address: str = ""
    """The master it follows now; empty while none is known."""


class HaResyncBody(Body, frozen=True, kw_only=True):
    """The answer to 9004, HA_RESYNC."""

    common_end: Int64
    """Up to here the two logs are the same, and whole messages."""
    local_end: Int64
    """Where the log of the slave ended before."""
    master_end: Int64
    master_address: str = ""
    cut_bytes: Int64 = 0
    cut_messages: Int64 = 0
    is_reseed: bool = False
    """Nothing is common: the whole log is dropped and copied again."""
    dry_run: bool = False
    """Nothing was done yet."""


class HaDigest(Body, frozen=True, kw_only=True):
    """What a range of the CommitLog holds."""

    start: Int64
    stop: Int64
    sha256: str
    """In hexadecimal."""


class HaDigestsBody(Body, frozen=True, kw_only=True):
    """The answer to 9005, HA_DIGESTS."""

    begin: Int64
    """Where the log of this broker begins."""
    end: Int64
    """Where it ends."""
    digests: tuple[HaDigest, ...] = ()
    """Without a gap, as far as the answer goes."""


class HaStepDownBody(Body, frozen=True, kw_only=True):
    """The answer to 9006, HA_STEP_DOWN: nothing is written behind `end` any more."""

    epoch: Int64
    """Of the master that stepped down."""
    end: Int64
    mode: str = ""
    """ASYNC_MASTER or SYNC_MASTER: what its operator wanted it to be."""
    master: str = ""
    """Its store id, as in its in-sync records; empty: an older version does not tell."""
