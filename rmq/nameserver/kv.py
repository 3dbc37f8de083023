"""Settings by namespace and key: the KV config of a nameserver.

Clients and operators store small texts here. The namespace `ORDER_TOPIC_CONFIG` is special: it
lists the ordered topics and how many queues each broker has of them, as `broker-a:4;broker-b:4`;
brokers get it with the response to each registration.

The file is `{"configTable":{namespace:{key:value}}}`, as RocketMQ 4.9.8 KVConfigManager writes it.
A namespace whose last key was deleted stays, as it does there: it is empty, not unknown.

Pure: `kv_keeper` writes the file.
"""

from __future__ import annotations

from typing import Final, Self, final

import msgspec

from rmq.errors import RefusedError
from rmq.remoting.bodies.base import Body
from rmq.remoting.bodies.kv import KVTable
from rmq.remoting.codes import ResponseCode

ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"

CHARS_MAX: Final = 4 * 1024 * 1024
"""Characters of all names and values together. Every change writes all of it, and one namespace
must fit in an answer.
"""

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

    def __len__(self) -> int:
        """How many values there are."""
        return sum(map(len, self._values.values()))

    def get(self, namespace: str, key: str) -> str | None:
        values = self._values.get(namespace)
        return None if values is None else values.get(key)

    def encoded(self, namespace: str) -> bytes | None:
        """All of a namespace, as the body of an answer; None when there is no such namespace."""
        body = self._encoded.get(namespace)
        if body is None and namespace in self._values:
            body = self._encoded[namespace] = KVTable(table=self._values[namespace]).encode()
        return body

    def put(self, namespace: str, key: str, value: str) -> bool:
        """Set a value and return whether it has changed; raise `RefusedError` when full."""
        before = self.get(namespace, key)
        if before == value:
            return False
        more = len(value) - len(before or "")
        if before is None:
            more += len(key)
        if namespace not in self._values:
            more += len(namespace)
        if more > 0 and self._chars + more > CHARS_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the KV config holds {self._chars} characters; {more} more would pass the limit"
                f" of {CHARS_MAX}",
            )
        self._values.setdefault(namespace, {})[key] = value
        self._encoded.pop(namespace, None)
        self._chars += more
        return True

    def delete(self, namespace: str, key: str) -> bool:
        """Remove a value; return whether it was there."""
        value = self._values.get(namespace, {}).pop(key, None)
        if value is None:
            return False
        self._encoded.pop(namespace, None)
        self._chars -= len(key) + len(value)
        return True

    def copy(self) -> KvTable:
        """Return an independent table with the same values."""
        table = KvTable()
        table._values = {namespace: dict(values) for namespace, values in self._values.items()}
        table._encoded = dict(self._encoded)
        table._chars = self._chars
        return table

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
        table._chars = sum(
            len(namespace) + sum(len(key) + len(value) for key, value in values.items())
            for namespace, values in file.config_table.items()
        )
        return table
