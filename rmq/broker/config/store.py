"""Settings of the message store as a part of those of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.settings.declaration import attributes, read_attributes
from rmq.store.config import StoreConfig

if TYPE_CHECKING:
    from rmq.settings.schema import Values

STORE_KEYS: Final = tuple(attributes(StoreConfig, section="store"))
"""The attributes of `StoreConfig` that have a key in `broker.conf`."""


def store_config(values: Values) -> StoreConfig:
    """Make the store's settings of those of the broker."""
    given = read_attributes(STORE_KEYS, values)
    if not pool_is_possible(values):
        given["transient_pool_enabled"] = False
    return StoreConfig(**given)


def pool_is_possible(values: Values) -> bool:
    """A pool of buffers serves only masters that do not wait for the disk."""
    return values["flushDiskType"] == "ASYNC_FLUSH" and values["brokerRole"] != "SLAVE"
