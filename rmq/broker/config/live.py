"""The settings in force, and how they change while the broker runs.

Every part that wants the latest value of a setting reads `live.current` when it needs it, or
subscribes. `current` is replaced as a whole, never changed, and only by settings that can take
effect at once; for the others it keeps the values the broker was started with.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from rmq.broker.config.schema import SCHEMA, adjusted, build_config
from rmq.errors import ConfigError, RefusedError
from rmq.remoting.bodies import DataVersion
from rmq.remoting.codes import ResponseCode
from rmq.settings.guard import guarded_changes
from rmq.settings.schema import Effect, change, format_value
from rmq.settings.settings_file import change_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq.broker.config.loading import LoadedConfig
    from rmq.broker.config.service import BrokerRole
    from rmq.broker.config.values import BrokerConfig
    from rmq.settings.schema import Change, Value, Values

BLACK_LIST_REMARK: Final = "Can not update config in black list."
POOL_REASON: Final = (
    "cannot be changed while messages are written to the pool first; set transientStorePoolEnable "
    "to false and restart"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOutcome:
    """The result of an update, by key."""

    applied: tuple[str, ...]
    """Changed, and in force."""
    needs_restart: tuple[str, ...]
    """Changed for the next start."""
    ignored: tuple[str, ...]
    """Without a meaning here; they are kept in the file nevertheless."""


@final
class LiveConfig:
    """The settings of a running broker. Everything but `persist` is for the broker's own thread."""

    def __init__(self, loaded: LoadedConfig, *, now_ms: int) -> None:
        self.current: BrokerConfig = loaded.config
        self.version = DataVersion(timestamp=now_ms, counter=0)
        self._running = loaded.values
        """What `current` was made of."""
        self._configured = loaded.values
        """What `current` would be made of after a restart."""
        self._subscribers: list[Callable[[BrokerConfig, BrokerConfig], object]] = []
        self._lasting: list[Callable[[BrokerConfig, BrokerConfig], object]] = []
        self._unsaved: dict[str, str] = {}
        self._unsaved_lock = threading.Lock()
        self._file_lock = threading.Lock()
        self._keeps_pool = False
        self.role_changes: dict[tuple[BrokerRole, BrokerRole], int] = {}
        """How often the role was changed since the start, by what it was and what it became."""

    @property
    def pending_restart(self) -> frozenset[str]:
        """Keys whose value after a restart is not the one in force."""
        return frozenset(
            setting.key
            for setting in SCHEMA
            if setting.effect is not Effect.IGNORED
            and self._configured[setting.key] != self._running[setting.key]
        )

    def subscribe(
        self, callback: Callable[[BrokerConfig, BrokerConfig], object], *, is_lasting: bool = False
    ) -> None:
        """Have `callback(old, new)` called after each change of `current`, in order.

        A lasting one is of the process and not of a part of the broker.
        """
        (self._lasting if is_lasting else self._subscribers).append(callback)

    def forget_subscribers(self) -> None:
        """Remove the callbacks of parts of the broker, which are gone."""
        self._subscribers.clear()

    def as_properties(self) -> dict[str, str]:
        """All settings as texts, under their keys, as they are or will be after a restart."""
        return SCHEMA.as_properties(self._configured)

    def guarded(self, changes: Mapping[str, str]) -> list[str]:
        """Return the keys of an update that only an administrator may change by a request."""
        return guarded_changes(SCHEMA, self._configured, changes)

    def update(self, changes: Mapping[str, str], *, now_ms: int) -> UpdateOutcome:
        """Take new values: all of them, or none and an error that says why.

        Raises `RefusedError` for keys that must not be changed this way, and `ConfigError` for
        keys that are not known and values that make no sense. `persist` is to be called next.
        """
        if not self.current.config_black_list.isdisjoint(changes):
            raise RefusedError(ResponseCode.NO_PERMISSION, BLACK_LIST_REMARK)
        wanted = change(SCHEMA, self._configured, changes, running=self._running)
        outcome = self._take(wanted, now_ms)
        with self._unsaved_lock:
            self._unsaved.update({key: format_value(wanted.values[key]) for key in changes})
        return outcome

    def reload(self, values: Values, *, now_ms: int) -> UpdateOutcome:
        """Take the values that were just read from the file; raise `ConfigError` like `update`.

        What an update changed and could not be written is lost: the file counts.
        """
        changes = {
            each.key: format_value(values[each.key])
            for each in SCHEMA
            if values[each.key] != self._configured[each.key]
        }
        wanted = change(SCHEMA, self._configured, changes, running=self._running)
        outcome = self._take(wanted, now_ms)
        with self._unsaved_lock:
            self._unsaved.clear()
        return outcome

    def _take(self, wanted: Change, now_ms: int) -> UpdateOutcome:
        configured = adjusted(wanted.values)
        for key in (*wanted.now, *wanted.restart):
            if configured[key] != wanted.values[key]:
                raise ConfigError(key, f"is {format_value(configured[key])}, whatever is set")
        in_force = dict.fromkeys((*wanted.now, *wanted.ignored))
        running = self._running.with_changes({key: configured[key] for key in in_force})
        new = self._build(running)
        if new.store.transient_pool_enabled != self.current.store.transient_pool_enabled:
            raise ConfigError("flushDiskType", POOL_REASON)
        self._configured, self._running = configured, running
        self.version = DataVersion(timestamp=now_ms, counter=self.version.counter + 1)
        self._replace(new)
        pending = self.pending_restart
        return UpdateOutcome(
            applied=tuple(key for key in (*wanted.now, *wanted.restart) if key not in pending),
            needs_restart=tuple(key for key in wanted.restart if key in pending),
            ignored=wanted.ignored,
        )

    def assume_role(self, role: BrokerRole, broker_id: int, *, now_ms: int) -> None:
        """Set the role to master or slave now; `persist` is to be called next, to save it.

        The one setting that is bound to the role and to the open store, the transient pool, stays
        as it is until the next start.
        """
        changes: dict[str, Value] = {"brokerRole": role.value, "brokerId": broker_id}
        self._keeps_pool = True
        self._configured = adjusted(self._configured.with_changes(changes))
        self._running = adjusted(self._running.with_changes(changes))
        self.version = DataVersion(timestamp=now_ms, counter=self.version.counter + 1)
        with self._unsaved_lock:
            self._unsaved.update({key: format_value(value) for key, value in changes.items()})
        self._replace(self._build(self._running))

    def _build(self, running: Values) -> BrokerConfig:
        new = build_config(running, self.current.config_path)
        if self._keeps_pool:
            pool = self.current.store.transient_pool_enabled
            new = replace(new, store=replace(new.store, transient_pool_enabled=pool))
        return new

    def _replace(self, new: BrokerConfig) -> None:
        if new != self.current:
            old, self.current = self.current, new
            if old.role is not new.role:
                change_of_role = (old.role, new.role)
                self.role_changes[change_of_role] = self.role_changes.get(change_of_role, 0) + 1
            for callback in (*self._subscribers, *self._lasting):
                callback(old, new)

    def persist(self) -> None:
        """Write what was changed into the file, in a thread: it blocks.

        Only the changed values are touched; comments, order and everything else stay. Raises
        `StorageError` if that fails; the next call tries again.
        """
        path = self.current.config_path
        if path is None:
            return
        with self._file_lock:
            with self._unsaved_lock:
                changes = dict(self._unsaved)
            if changes:
                change_file(path, changes, SCHEMA)
            with self._unsaved_lock:
                for key, value in changes.items():
                    if self._unsaved.get(key) == value:
                        del self._unsaved[key]
