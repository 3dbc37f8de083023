"""Decides which in-sync records a nameserver accepts: none that is earlier, and no epoch leap.

Our masters write records into the KV config, in a namespace of their own
(`rmq.model.in_sync_record`), and brokers decide by them which slave may be promoted. So a record of
an earlier epoch or version is refused: its writer was replaced, or overtaken. So is a record whose
writer read another record here than there is now: it decided by outdated information. A value that
is not a record is refused, too. The same record may be written again. Operators may delete records.

A promotion uses the last known epoch + 1. A record that is further ahead of what this nameserver
knows (a leap) is either forged, or the nameserver has missed promotions: it was down, or could not
be reached. A nameserver cannot tell the two apart: it has no secret to check the record, and the
listed master may be the one that was replaced. But a live master writes its record again every
second until it is accepted. So a leap is refused at first, and accepted from a connection that
still writes the same epoch `LEAP_S` later. A leap over a connection that closes changes nothing; a
nameserver that has missed promotions is up to date a few seconds later. A stranger that stays
connected can have a record accepted, as it could by counting up one by one; brokers with a secret
do not believe it.

Pure: no tasks, no clock, no bytes of frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, NoReturn, final

from rmq.errors import RefusedError, RemoteProtocolError
from rmq.model.in_sync_record import number_of, read_record
from rmq.nameserver.registration import C
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.model.in_sync_record import InSyncRecord

LEAP_S: Final = 3.0
"""How long a connection has to repeat a leap until it is accepted."""


def recorded_epoch(value: str | None) -> int:
    """Return the epoch of a kept record; 0 if there is none that can be read."""
    record = _read(value)
    return 0 if record is None else record.epoch


class _Claim(NamedTuple):
    name: str
    epoch: int
    since: float


@final
class RecordGuard(Generic[C]):
    """Accepts or refuses the records of all broker names."""

    def __init__(self, registered: Callable[[str], int]) -> None:
        """`registered` returns the latest registered epoch of a name, 0 for none."""
        self._registered = registered
        self._claims: dict[C, _Claim] = {}
        """The last leap that each connection tried."""

    def check(
        self,
        name: str,
        value: str,
        kept: str | None,
        connection: C,
        now: float,
        *,
        instead_of: str | None = None,
    ) -> None:
        """Raise `RefusedError` if `value` must not replace `kept`.

        `instead_of` is the record that the writer read, as epoch and version; None: any.
        """
        try:
            record = read_record(value)
        except RemoteProtocolError as exc:
            _refuse_value(name, str(exc))
        if not record.epoch:
            _refuse_value(name, "it is of epoch 0, and epochs begin with 1")
        before = _read(kept)
        if before is not None:
            _check_order(name, record, before)
        if instead_of is not None and instead_of != number_of(before):
            raise RefusedError(
                ResponseCode.STALE_EPOCH,
                f"in-sync record refused: it is to take the place of record {instead_of} of {name},"
                f" and this nameserver keeps {number_of(before)}",
            )
        known = max(self._registered(name), 0 if before is None else before.epoch)
        if known and record.epoch > known + 1:
            self._check_leap(name, record.epoch, known, connection, now)

    def connection_lost(self, connection: C) -> None:
        """Forget the leap of a connection that has ended."""
        self._claims.pop(connection, None)

    def _check_leap(self, name: str, epoch: int, known: int, connection: C, now: float) -> None:
        claim = self._claims.get(connection)
        if claim is None or (claim.name, claim.epoch) != (name, epoch):
            claim = self._claims[connection] = _Claim(name, epoch, now)
        if now < claim.since + LEAP_S:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"in-sync record refused: it is of epoch {epoch}, and the last master of {name}"
                f" that this nameserver knows was of epoch {known}; it is taken if the same"
                f" connection still brings it after {LEAP_S:g} s",
            )
        del self._claims[connection]


def _check_order(name: str, record: InSyncRecord, kept: InSyncRecord) -> None:
    if record.order < kept.order:
        raise RefusedError(
            ResponseCode.STALE_EPOCH,
            f"in-sync record refused: this nameserver keeps record {number_of(kept)} of {name},"
            f" which is later than {number_of(record)}",
        )
    if record.order == kept.order and not record.says_same(kept):
        raise RefusedError(
            ResponseCode.STALE_EPOCH,
            f"in-sync record refused: this nameserver keeps another record {number_of(kept)} of"
            f" {name}; two brokers must not be master of a name in one epoch: promote the one that"
            " is to stay again",
        )


def _refuse_value(name: str, why: str) -> NoReturn:
    raise RefusedError(
        ResponseCode.SYSTEM_ERROR, f"not taken as the in-sync record of {name}: {why}"
    )


def _read(value: str | None) -> InSyncRecord | None:
    if value is None:
        return None
    try:
        return read_record(value)
    except RemoteProtocolError:
        return None
