"""The replication identity of a store: its id, epoch, incarnation and in-sync records.

The store id is 16 random bytes, so that a master can tell its slaves apart whatever address they
use. The epoch counts the masters of a broker name: each promotion begins a new one, and a slave
adopts its master's before it acknowledges anything of it. An epoch never goes back. The history
lists at which physical offset each epoch began, as far as this store has seen it. The incarnation
goes up with every start, when the log is cut, and when another slave is to be promoted: no master
counts on a store by an earlier incarnation. It is the time of day, so that a store restored from a
backup gets another one than the store had after that backup. The store remembers all incarnations
since it last may have lost something. The records say by what rules sends were answered
(`in_sync_record`).

The state is a small file in the store, `config/haState.json`. It is written before anything is done
in a new epoch, and an unreadable file is an error: with a new identity or an older epoch a broker
could follow a master that was replaced. A copy of a store has the same identity; the file must be
removed from a copy that is to become a slave of its own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from rmq.errors import ConfigError
from rmq.files import ConfigFile, storage_error
from rmq.model.in_sync_record import InSyncRecord, member_name, member_names
from rmq.model.offsets import PhysicalOffset

if TYPE_CHECKING:
    from pathlib import Path


STORE_ID_BYTES: Final = 16
FIRST_EPOCH: Final = 1
EPOCH_MAX: Final = 2**63 - 1
NAMES_MAX: Final = 64
"""How many earlier incarnations are remembered."""
FORMER_MASTERS_MAX: Final = 8
"""How many masters whose place was taken are remembered."""
HISTORY_MAX: Final = 256
"""How many epochs are remembered with their beginning; the oldest go first."""

_Number = Annotated[int, msgspec.Meta(ge=0, le=EPOCH_MAX)]


@dataclass(frozen=True, slots=True)
class HaIdentity:
    """The state of one store."""

    store_id: bytes
    """16 random bytes that name the store."""
    epoch: int = FIRST_EPOCH
    history: tuple[tuple[int, PhysicalOffset], ...] = ((FIRST_EPOCH, PhysicalOffset(0)),)
    """Epochs and the physical offsets at which they began, in order."""
    role: str = ""
    """The last brokerRole; empty before the first one."""
    incarnation: int = 0
    records: tuple[InSyncRecord, ...] = ()
    """Slave: the last one it received. Master: all that a slave may still decide by."""
    before: tuple[int, ...] = ()
    """Earlier incarnations since which nothing was lost, in order."""
    epoch_before: int = 0
    """New master, until its first record counts: the epoch to which it returns if the former master
    has gone on. 0: it never returns."""
    former_masters: tuple[str, ...] = ()
    """The addresses of masters whose place it took, in order: where one may come back."""

    def __post_init__(self) -> None:
        if len(self.store_id) != STORE_ID_BYTES:
            raise ValueError(f"a name of {len(self.store_id)} bytes, not {STORE_ID_BYTES}")
        if not FIRST_EPOCH <= self.epoch <= EPOCH_MAX:
            raise ValueError(f"epoch {self.epoch}")
        if any(one >= other for one, other in pairwise((*self.before, self.incarnation))):
            raise ValueError(f"incarnation {self.incarnation} after {self.before}")
        if not 0 <= self.epoch_before < self.epoch:
            raise ValueError(f"epoch {self.epoch} after {self.epoch_before}")
        before = (0, 0)
        for epoch, start in self.history:
            if epoch <= before[0] or start < before[1]:
                raise ValueError(f"history: {(epoch, start)} after {before}")
            before = epoch, start
        if before[0] > self.epoch:
            raise ValueError(f"history: epoch {before[0]} is later than the present {self.epoch}")

    @property
    def name(self) -> str:
        """The store id as hexadecimal text."""
        return self.store_id.hex()

    @property
    def member(self) -> str:
        """The name of this store in in-sync records."""
        return member_name(self.store_id, self.incarnation)

    @property
    def members(self) -> frozenset[str]:
        """All member names by which it still holds what it has confirmed."""
        return member_names(self.store_id, (*self.before, self.incarnation))


def with_epoch(identity: HaIdentity, epoch: int, start: PhysicalOffset) -> HaIdentity:
    """Return the state in a later epoch, which begins at `start`; the same one if it is the same.

    Raise ValueError for an earlier one.
    """
    if epoch < identity.epoch:
        raise ValueError(f"epoch {epoch} after {identity.epoch}")
    if epoch == identity.epoch:
        return identity
    # Whatever began at `start` or behind it was never written here, or was cut off.
    kept = tuple(entry for entry in identity.history if entry[1] < start)
    return replace(identity, epoch=epoch, history=(*kept, (epoch, start))[-HISTORY_MAX:])


def with_role(identity: HaIdentity, role: str) -> HaIdentity:
    """Return the state in another role."""
    return replace(identity, role=role)


def with_records(identity: HaIdentity, records: tuple[InSyncRecord, ...]) -> HaIdentity:
    """Return the state with other in-sync records.

    If all are of the present epoch, that has begun for good.
    """
    is_begun = all(record.epoch == identity.epoch for record in records)
    return replace(identity, records=records, epoch_before=0 if is_begun else identity.epoch_before)


def with_former_master(identity: HaIdentity, address: str) -> HaIdentity:
    """Return the state of a store that takes the place of the master at `address`, if any."""
    if not address:
        return identity
    others = tuple(each for each in identity.former_masters if each != address)
    return replace(identity, former_masters=(*others, address)[-FORMER_MASTERS_MAX:])


def reborn(identity: HaIdentity, now_ms: int) -> HaIdentity:
    """Return the state with a new incarnation, for a store that may have lost bytes."""
    return replace(identity, incarnation=max(identity.incarnation + 1, now_ms), before=())


def renamed(identity: HaIdentity, now_ms: int) -> HaIdentity:
    """Return the state with a new incarnation, for a store that renounces its present one."""
    return replace(
        identity,
        incarnation=max(identity.incarnation + 1, now_ms),
        before=(*identity.before, identity.incarnation)[-NAMES_MAX:],
    )


def begun(
    identity: HaIdentity, epoch: int, start: PhysicalOffset, records: tuple[InSyncRecord, ...]
) -> HaIdentity:
    """Return the state of a store that begins an epoch; `records` are those before it."""
    before = identity.epoch if records else 0
    return replace(with_epoch(identity, epoch, start), records=records, epoch_before=before)


def withdrawn(identity: HaIdentity) -> HaIdentity:
    """Return the state from before an epoch that is withdrawn, in which nothing was written.

    A master without a record of its own (its store is new) has no epoch to return to: it keeps the
    present one, which is earlier than that of the master that it has found.
    """
    epoch = identity.epoch_before or identity.epoch
    return replace(
        identity,
        epoch=epoch,
        history=tuple(entry for entry in identity.history if entry[0] <= epoch),
        records=tuple(record for record in identity.records if record.epoch <= epoch)[-1:],
        epoch_before=0,
    )


class _State(msgspec.Struct, frozen=True, kw_only=True):
    """The content of haState.json."""

    store_id: str = msgspec.field(name="replica")
    epoch: _Number
    history: tuple[tuple[_Number, _Number], ...]
    role: str = ""
    incarnation: _Number = 0
    records: tuple[InSyncRecord, ...] = ()
    before: tuple[_Number, ...] = ()
    epoch_before: _Number = 0
    former_masters: tuple[str, ...] = ()


def identity_path(root: Path) -> Path:
    """Return where the state of the store in `root` is."""
    return root / "config" / "haState.json"


def load_identity(root: Path) -> HaIdentity:
    """Read the state of the store in `root`; make it, durably, if there is none. Blocks.

    Raise `ConfigError` for a file that cannot be understood, `StorageError` for one that cannot be
    read or written.
    """
    path = identity_path(root)
    file = ConfigFile(path)
    try:
        text: bytes | None = path.read_bytes()
    except FileNotFoundError:
        text = None
    except OSError as exc:
        raise storage_error("read", path, exc) from exc
    if text is not None:
        # Not the `.bak` instead: it may be of an earlier epoch.
        try:
            return _parse(text.decode())
        except ValueError as exc:
            raise _damaged(path, str(exc)) from exc
    # Only its `.bak` is there if a write was interrupted between two renames, and never counted.
    identity = file.load(_parse)
    if identity is None:
        identity = HaIdentity(os.urandom(STORE_ID_BYTES))
        file.write(_render(identity))
    return identity


def save_identity(root: Path, identity: HaIdentity) -> None:
    """Replace the state of the store in `root`; it is on disk on return. Blocks.

    Raise `StorageError` if that fails; what is to happen in the new state must not happen then.
    """
    ConfigFile(identity_path(root)).write(_render(identity))


def _parse(text: str) -> HaIdentity:
    state = msgspec.json.decode(text, type=_State)
    return HaIdentity(
        bytes.fromhex(state.store_id),
        state.epoch,
        tuple((epoch, PhysicalOffset(start)) for epoch, start in state.history),
        state.role,
        state.incarnation,
        state.records,
        state.before,
        state.epoch_before,
        state.former_masters,
    )


def _render(identity: HaIdentity) -> str:
    state = _State(
        store_id=identity.name,
        epoch=identity.epoch,
        history=identity.history,
        role=identity.role,
        incarnation=identity.incarnation,
        records=identity.records,
        before=identity.before,
        epoch_before=identity.epoch_before,
        former_masters=identity.former_masters,
    )
    return msgspec.json.format(msgspec.json.encode(state), indent=1).decode() + "\n"


def _damaged(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        str(path),
        f"cannot be understood: {reason}",
        hint="restore it from a copy; only if this store is to begin as a new slave of its master,"
        " move it away",
    )
