"""What all connections of a client have in common, and how its frames are encoded. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from rmq.remoting.codes import FLAG_ONEWAY, LanguageCode, Serialization
from rmq.remoting.command import FrameEncoder
from rmq.remoting.layout import FRAME_BYTES_MAX

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from rmq.remoting.header import Header
    from rmq.remoting.signing import Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What all connections of a client have in common."""

    connect_timeout_s: float = 3.0
    serialization: Serialization = Serialization.JSON
    context: ssl.SSLContext | None = None
    """None: connections are not encrypted."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    busy_wait_s: float = 0.0
    """How long to busy-wait for answers before sleeping."""
    credentials: Credentials | None = None
    """What requests are signed with; None: they are not signed."""
    frames: RequestFrames = field(init=False)

    def __post_init__(self) -> None:
        frames = RequestFrames(self.serialization, frame_bytes_max=self.frame_bytes_max)
        object.__setattr__(self, "frames", frames)


@final
class RequestFrames:
    """Encodes the requests of one client, and its answers to requests of brokers."""

    __slots__ = ("_encoder", "_serialization")

    def __init__(self, serialization: Serialization, *, frame_bytes_max: int) -> None:
        self._encoder = FrameEncoder(language=LanguageCode.PYTHON, frame_bytes_max=frame_bytes_max)
        self._serialization = serialization

    def request(
        self,
        code: int,
        opaque: int,
        header: Header | None,
        extra: Mapping[str, str] | None,
        body_length: int,
    ) -> bytes:
        """Return everything of a request before its body; raise `LocalProtocolError`."""
        return self._encoder.request(
            opaque, code, header, body_length, self._serialization, extra=extra
        )

    def oneway(
        self,
        code: int,
        opaque: int,
        header: Header | None,
        extra: Mapping[str, str] | None,
        remark: str | None,
        body_length: int,
    ) -> bytes:
        """Return everything of a one-way request before its body."""
        return self._encoder.frame(
            code=code,
            flag=FLAG_ONEWAY,
            opaque=opaque,
            header=header,
            extra=extra,
            remark=remark,
            body_length=body_length,
            serialization=self._serialization,
        )

    def response(
        self,
        opaque: int,
        code: int,
        remark: str | None,
        body_length: int,
        serialization: Serialization,
    ) -> bytes:
        """Return everything of an answer before its body."""
        return self._encoder.response(
            opaque, code, None, body_length, serialization=serialization, remark=remark
        )
