"""Whether a request was signed with a secret key, quickly: a server asks this of every send. Pure.

What is signed is the rule of `rmq.remoting.signing`. Requests of a kind have the same fields in the
same order, so the order of their values is worked out once per kind.
"""

from __future__ import annotations

from hmac import compare_digest
from operator import itemgetter
from typing import TYPE_CHECKING, Final, final

from rmq.remoting.signing import SIGNATURE, UNSIGNED, signed_order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rmq.remoting.signing import SigningKey

ORDERS_MAX: Final = 512
"""How many kinds of requests are remembered; a client sends a few dozen."""
_FIELDS_MAX: Final = 64
"""Requests with more fields are of no kind: no client sends them."""


@final
class SignatureChecks:
    """Checks signatures and remembers the order of fields of requests that were in order."""

    def __init__(self) -> None:
        self._orders: dict[tuple[str, ...], Callable[[Mapping[str, str]], Sequence[str]]] = {}

    def __len__(self) -> int:
        return len(self._orders)

    def is_signed(self, fields: Mapping[str, str], body: bytes | None, key: SigningKey) -> bool:
        """Return whether the signature among `fields` is right.

        `_UNIQUE_KEY_QUERY` may be signed, as stock clients do, or not, as stock brokers expect.
        """
        given = fields.get(SIGNATURE)
        if given is None:
            return False
        kind = tuple(fields)
        values = self._orders.get(kind)
        if values is not None:
            return is_right(given, "".join(values(fields)), body, key)
        for left_out in ((SIGNATURE, UNSIGNED), (SIGNATURE,)):
            order = signed_order(name for name in fields if name not in left_out)
            if is_right(given, "".join([fields[name] for name in order]), body, key):
                # Kinds of strangers are not remembered: they could fill the memory with them.
                if UNSIGNED not in fields and 1 < len(order) <= _FIELDS_MAX:
                    self._remember(kind, itemgetter(*order))
                return True
            if UNSIGNED not in fields:
                break
        return False

    def _remember(
        self, kind: tuple[str, ...], values: Callable[[Mapping[str, str]], Sequence[str]]
    ) -> None:
        if len(self._orders) < ORDERS_MAX:
            self._orders[kind] = values


def is_right(given: str, text: str, body: bytes | None, key: SigningKey) -> bool:
    """Return whether a signature is that of the texts of all fields and a body."""
    right = key.signature(text.encode("utf-8", "replace"), body)
    return compare_digest(given.encode("utf-8", "replace"), right)
