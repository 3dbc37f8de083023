"""Settings by namespace and key: the KV config of a nameserver.

Clients and operators store small texts here. The namespace `ORDER_TOPIC_CONFIG` is special: it
lists the ordered topics and how many queues each broker has of them, as `broker-a:4;broker-b:4`;
brokers get it with the response to each registration.

The file is `{"configTable":{namespace:{key:value}}}`, as RocketMQ 4.9.8 KVConfigManager writes it.
A namespace whose last key was deleted stays, as it does there: it is empty, not unknown.

Pure: `kv_keeper` writes the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, Self, final

import msgspec

from rmq.errors import RefusedError
from rmq.model import fastjson
from rmq.nameserver.names import problem_of_name, shown
from rmq.remoting.bodies.base import Body
from rmq.remoting.bodies.kv import KVTable
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Generator

ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"

CHARS_MAX: Final = 4 * 1024 * 1024
"""Characters of all names and values together. Every change writes all of it, and one namespace
must fit in an answer.
"""
ORDER_CHARS_MAX: Final = 1024 * 1024
"""Characters of the ordered topics, which go out with the answer to each registration."""
VALUE_CHARS_MAX: Final = 64 * 1024
NAME_CHARS_MAX: Final = 1024
"""Length of a namespace and of a key."""
VALUES_MAX: Final = 100_000
NAMESPACES_MAX: Final = 1_000

_FILE_BYTES_MAX: Final = 64 * 1024 * 1024


class _File(Body, frozen=True, kw_only=True):
    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


@final
class KvTable:
    """The settings of one nameserver."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, str]] = {}
        self._encoded: dict[str, bytes] = {}
        self._chars = 0
        self._order_chars = 0
        self._count = 0
        self._shared: set[str] = set()
        """Namespaces whose values belong to another table, too."""

    def __len__(self) -> int:
        """How many values there are."""
        return self._count

    def get(self, namespace: str, key: str) -> str | None:
        values = self._values.get(namespace)
        return None if values is None else values.get(key)

    def encoded(self, namespace: str) -> Generator[None, None, bytes | None]:
        """Return all of a namespace, as the body of an answer; None when there is no such one."""
        body = self._encoded.get(namespace)
        if body is None and namespace in self._values:
            # A table changes no more once it has been written and is asked.
            table = KVTable(table=self._values[namespace])
            body = self._encoded[namespace] = yield from fastjson.dumps_in_steps(table)
        return body

    def put(self, namespace: str, key: str, value: str) -> bool:
        """Set a value and return whether it has changed; raise `RefusedError` for what cannot be
        kept, and when the table is full.
        """
        before = self.get(namespace, key)
        if before == value:
            return False
        if len(value) > VALUE_CHARS_MAX:
            _refuse(f"a value of {len(value)} characters; the limit for one is {VALUE_CHARS_MAX}")
        more = len(value) - len(before or "")
        if before is None:
            for name in (namespace, key):
                problem = problem_of_name(name, NAME_CHARS_MAX)
                if problem is not None:
                    _refuse(f"{shown(name)!r} {problem}")
            if self._count >= VALUES_MAX:
                _refuse(f"the KV config holds {VALUES_MAX} values, the limit")
            more += len(key)
        if namespace not in self._values:
            if len(self._values) >= NAMESPACES_MAX:
                _refuse(f"the KV config has {NAMESPACES_MAX} namespaces, the limit")
            more += len(namespace)
        if more > 0:
            _check_room(self._chars, more, CHARS_MAX, "the KV config")
            if namespace == ORDER_TOPIC_NAMESPACE:
                _check_room(self._order_chars, more, ORDER_CHARS_MAX, namespace)
        self._own(namespace)[key] = value
        self._count += before is None
        self._count_chars(namespace, more)
        return True

    def delete(self, namespace: str, key: str) -> bool:
        """Remove a value; return whether it was there."""
        value = self.get(namespace, key)
        if value is None:
            return False
        del self._own(namespace)[key]
        self._count -= 1
        self._count_chars(namespace, -len(key) - len(value))
        return True

    def copy(self) -> KvTable:
        """Return an independent table with the same values.

        Until one of the two changes, they are the same in memory, too; this one must not change
        before the copy is dropped.
        """
        table = KvTable()
        table._values = dict(self._values)
        table._encoded = dict(self._encoded)
        table._chars = self._chars
        table._order_chars = self._order_chars
        table._count = self._count
        table._shared = set(self._values)
        return table

    def _own(self, namespace: str) -> dict[str, str]:
        """Return the values of a namespace, to be changed."""
        values = self._values.setdefault(namespace, {})
        if namespace in self._shared:
            self._shared.remove(namespace)
            values = self._values[namespace] = dict(values)
        self._encoded.pop(namespace, None)
        return values

    def _count_chars(self, namespace: str, more: int) -> None:
        self._chars += more
        if namespace == ORDER_TOPIC_NAMESPACE:
            self._order_chars += more

    def render(self) -> str:
        """The text of the file."""
        # Plain JSON, which is what Java reads; writing it Java's way would take fifty times longer.
        return msgspec.json.encode({"configTable": self._values}).decode()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of a file; raise `MalformedJsonError` or `BodyError`."""
        data = text.encode("utf-8", "replace")
        table = cls()
        file = _File.decode(data, lenient_bytes_max=_FILE_BYTES_MAX)
        table._values = file.config_table
        for namespace, values in file.config_table.items():
            chars = sum(len(key) + len(value) for key, value in values.items())
            table._count_chars(namespace, len(namespace) + chars)
            table._count += len(values)
        return table


def _check_room(chars: int, more: int, chars_max: int, where: str) -> None:
    if chars + more > chars_max:
        _refuse(
            f"{where} holds {chars} characters; {more} more would pass the limit of {chars_max}"
        )


def _refuse(remark: str) -> NoReturn:
    raise RefusedError(ResponseCode.SYSTEM_ERROR, remark)
