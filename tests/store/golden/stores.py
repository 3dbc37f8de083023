"""The golden stores in tests/data/store: what a stock broker wrote, and what its client read back.

Archives are unpacked once per session and kept in memory, about 1.5 MB each: `files` gives their
content, `unpack` writes a copy for tests that open a store or damage it. The copy has the time of
unpacking as its modification time; tests that look for messages by time, or let them expire, set
their own.

`records` walks the CommitLog by the sizes alone and knows nothing of `rmq`, so that it can judge
what `rmq` makes of the same bytes.
"""

from __future__ import annotations

import io
import lzma
import tarfile
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tests import paths

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DATA: Final = paths.DATA / "store"

CLEAN_MASTER: Final = "clean-master"
CLEAN_SLAVE: Final = "clean-slave"
CRASHED: Final = "crashed"
CRASHED_RECOVERED: Final = "crashed-recovered"
TORN: Final = "torn"
TORN_RECOVERED: Final = "torn-recovered"
STORES: Final = (CLEAN_MASTER, CLEAN_SLAVE, CRASHED, CRASHED_RECOVERED, TORN, TORN_RECOVERED)

SEGMENT_BYTES: Final = 262_144
QUEUE_SEGMENT_BYTES: Final = 1_200
INDEX_SLOTS: Final = 500
INDEX_ENTRIES: Final = 2_000

MESSAGES_OF: Final = {
    CLEAN_MASTER: ("clean.GoldenTopic", "clean.GoldenFill"),
    CLEAN_SLAVE: ("clean.GoldenTopic", "clean.GoldenFill"),
    CRASHED: ("crashed.GoldenFill",),
    CRASHED_RECOVERED: ("crashed.GoldenFill",),
    TORN: ("torn.GoldenFill",),
    TORN_RECOVERED: ("torn.GoldenFill",),
}
"""The files of messages that a client reads from each store once it is recovered."""

_BLANK_MAGIC: Final = bytes.fromhex("CBD43194")


class GoldenRecord(NamedTuple):
    """One record of a golden CommitLog, as it lies there."""

    physical_offset: int
    data: bytes


class GoldenMessage(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="event",
    tag="stored",
    rename={
        "queue_id": "queue",
        "queue_offset": "queueOffset",
        "physical_offset": "physical",
        "size": "storeSize",
        "message_id": "msgId",
        "born_ms": "bornTs",
        "store_ms": "storeTs",
        "sys_flag": "sysFlag",
        "body_crc": "bodyCrc",
        "reconsume_times": "reconsume",
        "prepared_offset": "preparedOffset",
        "body_length": "bodyLen",
        "body_sha256": "bodySha256",
        "tags_text": "tags",
        "keys_text": "keys",
        "properties_text": "properties",
    },
):
    """A message as a Java client read it; the fields ending in `text` as Java printed them."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    message_id: str
    """The unique key of the message, or its offset message id if it has none."""
    born_ms: int
    store_ms: int
    sys_flag: int
    flag: int
    body_crc: int
    reconsume_times: int
    prepared_offset: int
    body_length: int
    """That of the decompressed body, as is the digest."""
    body_sha256: str
    tags_text: str
    keys_text: str
    properties_text: str

    @property
    def tags(self) -> str | None:
        return None if self.tags_text == "null" else self.tags_text

    @property
    def keys(self) -> str | None:
        return None if self.keys_text == "null" else self.keys_text

    @property
    def properties(self) -> dict[str, str]:
        """The properties as stored: without the two that the client adds to what it reads."""
        pairs = self.properties_text[1:-1].split(", ")
        properties = dict(pair.split("=", 1) for pair in pairs)
        # No golden name or value contains what separates them, so this reads the text rightly.
        assert java_map_text(properties) == self.properties_text
        del properties["MIN_OFFSET"], properties["MAX_OFFSET"]
        return properties


def java_map_text(properties: Mapping[str, str]) -> str:
    """Return what `TreeMap.toString` gives."""
    return "{" + ", ".join(f"{name}={properties[name]}" for name in sorted(properties)) + "}"


@cache
def files(store: str) -> Mapping[str, bytes]:
    """Return the content of every file of a golden store by its path below the store's root."""
    content: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO((DATA / f"{store}.tar.xz").read_bytes())) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                content[member.name.removeprefix(f"{store}/")] = file.read()
    return MappingProxyType(content)


def files_below(store: str, folder: str) -> dict[str, bytes]:
    """Return the files in a folder of a golden store, in the order of their names."""
    found = {name: data for name, data in files(store).items() if name.startswith(f"{folder}/")}
    return dict(sorted(found.items()))


def unpack(store: str, folder: Path) -> Path:
    """Write a golden store into `folder`, which must exist, and return the root of the copy."""
    root = folder / store
    for name, data in files(store).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


@cache
def records(store: str) -> tuple[GoldenRecord, ...]:
    """Return all records of a golden CommitLog, up to where nothing was written.

    The last one of the torn stores is torn: its second half is zero.
    """
    found: list[GoldenRecord] = []
    for name, segment in files_below(store, "commitlog").items():
        position = 0
        while size := int.from_bytes(segment[position : position + 4]):
            if segment[position + 4 : position + 8] == _BLANK_MAGIC:
                break
            first = int(name.rpartition("/")[2])
            found.append(GoldenRecord(first + position, segment[position : position + size]))
            position += size
    return tuple(found)


@cache
def sound_records(store: str) -> tuple[GoldenRecord, ...]:
    """Return the records of a golden CommitLog that are whole."""
    return records(store)[:-1] if store in (TORN, TORN_RECOVERED) else records(store)


@cache
def messages(name: str) -> tuple[GoldenMessage, ...]:
    """Return the messages of a file such as `clean.GoldenTopic`, by queue and queue offset."""
    decode = msgspec.json.Decoder(GoldenMessage).decode
    lines = lzma.decompress((DATA / f"{name}.jsonl.xz").read_bytes()).splitlines()
    return tuple(decode(line) for line in lines)


def messages_of(store: str) -> list[GoldenMessage]:
    """Return all messages a client reads from a golden store, as far as they were recorded."""
    return [message for name in MESSAGES_OF[store] for message in messages(name)]
