"""One account: its keys, what it may do, and from where it needs no signature. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmq.access.permissions import is_enough, shown_resource
from rmq.model.names import RETRY_PREFIX
from rmq.remoting.signing import SigningKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmq.access.white_list import WhiteList

KEY_CHARS_MIN: Final = 7
"""Of an access key and of a secret key: 4.9.8 wants more than 6."""

Resource = tuple[str, int]
"""The name of a topic and the permission that is needed on it; of a group, its retry topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account as the files describe it."""

    access_key: str
    secret_key: str = field(repr=False)
    white_list: WhiteList
    """Addresses from which a request needs no signature, only the access key."""
    is_admin: bool
    default_topic_permission: int
    default_group_permission: int
    permissions: Mapping[str, int] = field(default_factory=dict)
    """On single topics, and on groups under the names of their retry topics."""
    signing_key: SigningKey = field(init=False, repr=False, compare=False)
    """The secret key, ready for use."""
    passed: set[tuple[int, str | tuple[str, ...]]] = field(
        init=False, repr=False, compare=False, default_factory=set
    )
    """Requests that were let in, by code and what they named: asked first, because they come again.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "signing_key", SigningKey(self.secret_key))

    def first_refused(self, resources: Iterable[Resource]) -> str | None:
        """Return the first resource that the account may not use as is needed, as text."""
        permissions = self.permissions
        if self.is_admin and not permissions:
            return None
        for name, needed in resources:
            owned = permissions.get(name)
            if owned is None:
                owned = (
                    self.default_group_permission
                    if name.startswith(RETRY_PREFIX)
                    else self.default_topic_permission
                )
            if not is_enough(needed, owned):
                return shown_resource(name)
        return None
