"""In-sync records: by what rule a master answers SEND_OK, stored where it survives the loss of the
master.

A record says: from now on the master of this epoch answers SEND_OK by itself (async), or when
`needed` of `members` hold the message (sync). The master keeps it on nameservers, on its slaves and
on its own disk (`record_keeper`), and relies on nothing that is not recorded. So a slave that is to
be promoted can find out whether it holds all acknowledged messages, also if it was cut off when the
rule changed (`promotion`).

A member is a store in one incarnation: a slave that was stopped without saving its log, or whose
log was cut, may lack what it confirmed before, and comes back as another member. Stock slaves have
no store id and are members by their host; they cannot be promoted, so they need no record.

Nameservers keep it in their KV config, in the namespace `RMQ_IN_SYNC`, by broker name; stock ones
can do that, too. Where brokers have a secret, a record carries a proof that its writer knows it.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from rmq.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMESPACE: Final = "RMQ_IN_SYNC"
STOCK: Final = "stock "
"""How the name of a stock member begins; its host follows."""
RECORD_BYTES_MAX: Final = 8 * 1024
_NUMBER_MAX: Final = 2**63 - 1
_Number = Annotated[int, msgspec.Meta(ge=0, le=_NUMBER_MAX)]


def member_name(store_id: bytes, incarnation: int) -> str:
    """Return the name of a store as a member."""
    return f"{store_id.hex()}.{incarnation}"


def member_names(store_id: bytes, incarnations: Iterable[int]) -> frozenset[str]:
    """Return the names of a store as a member in several incarnations."""
    return frozenset(member_name(store_id, number) for number in incarnations)


def store_of(member: str) -> str:
    """Return what all incarnations of a member have in common."""
    return member if member.startswith(STOCK) else member.rpartition(".")[0]


class InSyncRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record. Of two, the later one counts."""

    epoch: _Number
    version: _Number
    """Counts the records of an epoch."""
    is_sync: bool
    needed: _Number = 0
    members: tuple[str, ...] = ()
    """In order; none of an async master."""
    nameservers: tuple[str, ...] = ()
    """Addresses of the nameservers that keep the record, too."""
    rivals: tuple[str, ...] = ()
    """Without nameservers: members of earlier records that may not have heard of this one, and can
    be promoted by those."""
    master: str = ""
    """Names the store of the master that wrote it."""
    proof: str = ""

    @property
    def order(self) -> tuple[int, int]:
        return self.epoch, self.version

    @property
    def native_members(self) -> tuple[str, ...]:
        """Those that can be promoted."""
        return tuple(member for member in self.members if not member.startswith(STOCK))

    def says_same(self, other: InSyncRecord) -> bool:
        """Return whether two records are equal but for their version."""
        return msgspec.structs.replace(self, version=other.version, proof=other.proof) == other

    def allows(self, member: str) -> bool:
        """Return whether an acknowledgement may rest on what this member holds."""
        return not self.is_sync or member in self.members

    def encode(self, secret: bytes, broker_name: str) -> bytes:
        """Return the record as bytes, with its proof."""
        proven = msgspec.structs.replace(self, proof=self._prove(secret, broker_name))
        return msgspec.json.encode(proven)

    def is_genuine(self, secret: bytes, broker_name: str) -> bool:
        """Return whether its writer knows the secret; always true without a secret."""
        # As bytes: texts of other characters than ASCII cannot be compared in constant time.
        given, right = self.proof.encode("utf-8", "replace"), self._prove(secret, broker_name)
        return not secret or hmac.compare_digest(given, right.encode())

    def _prove(self, secret: bytes, broker_name: str) -> str:
        if not secret:
            return ""
        content = msgspec.json.encode(msgspec.structs.replace(self, proof=broker_name))
        return hmac.digest(secret, b"in-sync record " + content, "sha256").hex()


def read_record(data: bytes | str) -> InSyncRecord:
    """Read a record; raise `RemoteProtocolError` for anything else."""
    if len(data) > RECORD_BYTES_MAX:
        raise RemoteProtocolError(f"an in-sync record of {len(data)} bytes")
    try:
        return msgspec.json.decode(data, type=InSyncRecord)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise RemoteProtocolError(f"an in-sync record cannot be read: {exc}") from None


def number_of(record: InSyncRecord | None) -> str:
    """Return epoch and version as text, 0.0 for no record."""
    return "0.0" if record is None else f"{record.epoch}.{record.version}"


def newest(*records: InSyncRecord | None) -> InSyncRecord | None:
    """Return the latest of several records."""
    return max((record for record in records if record), key=lambda r: r.order, default=None)
