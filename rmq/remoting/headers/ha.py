"""Headers of our own requests about replication. RocketMQ 4.9.8 has nothing like them."""

from rmq.remoting.header import Header, Int64


class HaStatusRequest(Header, frozen=True, kw_only=True):
    """9001 HA_STATUS: how replication is going."""

    # The address of the broker that asks, if it is a master that checks whether it was replaced.
    master: str | None = None


class HaPromoteRequest(Header, frozen=True, kw_only=True):
    """9002 HA_PROMOTE: a slave becomes the master of its broker name."""

    # Even if messages that were acknowledged may be missing.
    accept_loss: bool = False
    # ASYNC_MASTER or SYNC_MASTER; as its last master was, when absent.
    mode: str | None = None


class HaDemoteRequest(Header, frozen=True, kw_only=True):
    """9003 HA_DEMOTE: a master becomes a slave."""

    # Whom it follows; whom the nameservers name, when absent.
    ha_master_address: str | None = None
    # Even if no other master of its name is known, so that no broker takes messages then.
    force: bool = False


class HaResyncRequest(Header, frozen=True, kw_only=True):
    """9004 HA_RESYNC: a slave cuts off what its master does not have."""

    # Only say what would be cut.
    dry_run: bool = False
    # Where the common part and the slave's log end, as an earlier answer has told: if that is no
    # longer so, nothing is cut.
    common_end: Int64 | None = None
    local_end: Int64 | None = None


class HaDigestsRequest(Header, frozen=True, kw_only=True):
    """9005 HA_DIGESTS: digests of the CommitLog from `start` to `stop`, one for each `step` bytes.

    The answer covers what the broker holds of it, and may end earlier; a peer that wants more asks
    again from there.
    """

    start: Int64
    stop: Int64
    step: Int64


class HaStepDownRequest(Header, frozen=True, kw_only=True):
    """9006 HA_STEP_DOWN: a slave takes over; the master stops writing and says where it ended."""

    # That of the slave, which must be that of the master.
    epoch: Int64
    # Of the slave, which is asked whether it still wants that: the master may have hung meanwhile.
    address: str | None = None


class HaFenceRequest(Header, frozen=True, kw_only=True):
    """9007 HA_FENCE: another broker is master of the same name by now, of a later epoch.

    The receiver asks that broker itself, and stops writing if that confirms it.
    """

    address: str
    epoch: Int64


class HaRenounceRequest(Header, frozen=True, kw_only=True):
    """9008 HA_RENOUNCE: another slave is about to be promoted.

    The receiver ends its link and takes a new incarnation, so that no master counts on it by the
    recorded one. The answer is that of HA_STATUS.
    """

    # Of the slave that is to become master.
    address: str


class HaForgetRequest(Header, frozen=True, kw_only=True):
    """9009 HA_FORGET: a slave was taken out for good; its master remembers it no longer.

    The answer is that of HA_STATUS.
    """

    # Its address, or its name (`brokerName:brokerId`), as the status of the master has it.
    slave: str


class HaRecordsRequest(Header, frozen=True, kw_only=True):
    """9010 HA_RECORDS: the whole records of a range of the log that begins with one.

    The body holds one after the other, as in the answer to a pull, and may end before `stop`; a
    client that wants more asks again from `next_offset`.
    """

    start: Int64
    stop: Int64


class HaRecordsResponse(Header, frozen=True, kw_only=True):
    """The answer to 9010 HA_RECORDS."""

    next_offset: Int64
