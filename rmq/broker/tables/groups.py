"""The consumer groups of a broker: what is allowed to each, and by which rules new ones are
created.

Follows RocketMQ 4.9.8's SubscriptionGroupManager. Like the table of topics it does no I/O; the
function in `on_change` has the file written.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from rmq.broker.tables.versioned import FILE_BYTES_MAX, VersionedTable
from rmq.model.names import SYSTEM_GROUP_PREFIX
from rmq.remoting.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

logger = logging.getLogger(__name__)

BUILT_IN_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
GROUP_LENGTH_MAX: Final = 255
"""What stock clients check the names of their groups against."""


class GroupSettings(Protocol):
    """The settings of a broker that its groups depend on."""

    @property
    def auto_create_group(self) -> bool: ...


class GroupTable(VersionedTable[SubscriptionGroupConfig]):
    """All consumer groups of one broker by name; `get` never creates one, `find` may."""

    def __init__(self, config: GroupSettings, now_ms: Callable[[], int]) -> None:
        super().__init__("subscriptionGroupTable", now_ms)
        self._config = config
        for group in BUILT_IN_GROUPS:
            self._put_quietly(group, SubscriptionGroupConfig(group_name=group))

    def reconfigure(self, config: GroupSettings) -> None:
        """Use other settings from now on."""
        self._config = config

    # --- changing ---

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group, created if it is new and groups may be; None if they may not.

        Unlike a stock broker this does not create a group whose name no stock client can have.
        """
        known = self.get(group)
        if known is not None:
            return known
        if not (self._config.auto_create_group or group.startswith(SYSTEM_GROUP_PREFIX)):
            return None
        if not group or group.isspace() or len(group) > GROUP_LENGTH_MAX:
            return None
        created = SubscriptionGroupConfig(group_name=group)
        logger.info("create new group %s because a client uses it", created.group_name)
        self._put(group, created)
        return created

    def put(self, config: SubscriptionGroupConfig) -> bool:
        """Create or update a group; tell whether it differs from what was there."""
        old = self.get(config.group_name)
        if old is None:
            logger.info("create new group %s", config)
        else:
            logger.info("update group, old %s, new %s", old, config)
        self._put(config.group_name, config)
        return old != config

    def delete(self, group: str) -> bool:
        """Remove a group; tell whether it was there."""
        old = self._remove(group)
        if old is None:
            logger.warning("delete subscription group failed, group %s does not exist", group)
            return False
        logger.info("delete group %s", group)
        return True

    def disable_consume(self, group: str) -> bool:
        """Forbid reading to a group until it is updated; tell whether it exists."""
        old = self.get(group)
        if old is None:
            return False
        self._put(group, msgspec.structs.replace(old, consume_enable=False))
        return True

    # --- the table as a whole ---

    def to_body(self) -> SubscriptionGroupWrapper:
        """Return all groups, as slaves get them."""
        return SubscriptionGroupWrapper(
            subscription_group_table=self._ordered(), data_version=self.version
        )

    def load(self, text: str) -> int:
        """Take the groups of a subscriptionGroup.json on top of the built-in; return how many.

        Raises `MalformedJsonError` or `BodyError`, and then nothing has changed.
        """
        loaded = SubscriptionGroupWrapper.decode(text.encode(), lenient_bytes_max=FILE_BYTES_MAX)
        return self._load(loaded.subscription_group_table, loaded.data_version)

    def replacing(self, wrapper: SubscriptionGroupWrapper) -> Generator[None, None, bool]:
        """Replace the groups by those of a master, prepared in steps and changed at once.

        The result tells whether there was anything to change.
        """
        return self._replacing(wrapper.subscription_group_table, wrapper.data_version)
