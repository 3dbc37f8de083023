"""Settings of producers. Values only: they can be compared and pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from rmq.client.core.messages import BODY_BYTES_MAX, check_group
from rmq.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How a producer sends. Defaults are those of 4.9.8 where it has the setting."""

    group: str
    """Names the producer to brokers, which ask members of the group about transactions."""
    send_timeout_s: float = 3.0
    """How long a send may take, all its attempts, finding brokers and waiting for a master
    included."""
    retries: int = 2
    """Attempts after the first, on another broker where there is one. A broker that is no master
    at the moment does not count."""
    compress_above: int = 4096
    """Bodies of at least this many bytes are compressed."""
    compress_level: int = 5
    """Of zlib: 1 is fastest, 9 is smallest, 0 only wraps."""
    message_bytes_max: int = BODY_BYTES_MAX
    """The largest body, before compression; brokers have a limit of their own."""
    retries_when_not_ok: bool = False
    """Whether a message that is stored, but neither flushed nor replicated in time, is sent again
    to another broker. It is stored twice then."""
    avoids_slow_brokers: bool = False
    """Whether sends avoid a broker that was slow or failed, the longer the slower it was."""
    default_queues: int = 4
    """How many queues a topic gets that the first send creates."""
    pending_max: int = 10_000
    """Pipelined sends under way; more have to wait."""
    pending_bytes_max: int = 64 * 1024**2
    """Bytes of their bodies; one message may always go."""

    def __post_init__(self) -> None:
        check_group(self.group)
        if not self.send_timeout_s > 0:
            raise ConfigError("send_timeout_s", f"{self.send_timeout_s} is not above 0")
        if self.retries < 0:
            raise ConfigError("retries", f"{self.retries} is below 0")
        if not 0 <= self.compress_level <= 9:
            raise ConfigError("compress_level", f"{self.compress_level} is not 0 to 9")
        for name in (
            "compress_above",
            "message_bytes_max",
            "default_queues",
            "pending_max",
            "pending_bytes_max",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(name, f"{getattr(self, name)} is below 1")


class ProducerOptions(TypedDict, total=False):
    """The settings of a `ProducerConfig` beside its group, as keyword arguments."""

    send_timeout_s: float
    retries: int
    compress_above: int
    compress_level: int
    message_bytes_max: int
    retries_when_not_ok: bool
    avoids_slow_brokers: bool
    default_queues: int
    pending_max: int
    pending_bytes_max: int
