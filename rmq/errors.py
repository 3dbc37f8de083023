"""The error tree of rmq.

Every error that rmq raises on purpose is one of these. Facts are attributes, the text is for
people, and `hint` (where there is one) says what to do about it. This module imports nothing of
ours.

RmqError
|- ConfigError                   a setting is wrong: key, reason
|- ListenError                   a port cannot be opened: address, reason
|- ProtocolError                 a peer (or we) broke the rules of the wire
|  |- LocalProtocolError         we tried to send something illegal
|  |- RemoteProtocolError        the peer sent something that ends the connection
|  |- HeaderError                one request's header cannot be read; the connection lives on
|  `- MalformedJsonError         a JSON body cannot be read: reason, position
|- StoreError                    the message store cannot do what was asked
|  |- StorageError               the operating system refused: path, operation
|  |  `- DiskFullError           no room left on the device
|  |- CorruptStoreError          files contradict each other or the format: path, offset
|  |- StoreLockedError           another process has the store open: path
|  |- StoreUnavailableError      closed, failed or not yet open: reason
|  `- LogGapError                raw bytes for another offset than the end of the log
|- RefusedError                  a handler's no: code, remark
`- ClientError                   a call to a peer did not succeed: peer
   |- ConnectFailedError         no connection could be made
   |- ConnectionLostError        the connection ended before the answer came
   |- RequestTimeoutError        no answer within the time allowed
   |- TooManyRequestsError       the limit of requests under way is reached
   `- ResponseError              the peer answered with a code other than success
"""

from __future__ import annotations


class RmqError(Exception):
    """Base of every error rmq raises on purpose."""

    retriable: bool = False
    """Whether the same call may succeed later without a change by the caller."""

    hint: str | None = None
    """What the reader can do about it, in one sentence."""


class ConfigError(RmqError):
    """A setting is missing, malformed or contradicts another one."""

    def __init__(self, key: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason
        self.hint = hint


class ListenError(RmqError):
    """A listening socket could not be opened."""

    def __init__(self, address: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"cannot listen on {address}: {reason}")
        self.address = address
        self.reason = reason
        self.hint = hint


class ProtocolError(RmqError):
    """The rules of the wire were broken."""


class LocalProtocolError(ProtocolError):
    """We were asked to send something the wire cannot carry."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes after which the stream has no meaning; the connection must close."""


class HeaderError(ProtocolError):
    """The header of one request cannot be read as its class; the frame itself was sound."""

    def __init__(self, reason: str, *, header: str) -> None:
        super().__init__(f"{header}: {reason}")
        self.header = header
        self.reason = reason


class MalformedJsonError(ProtocolError):
    """A JSON body cannot be read, not even by the tolerant rules stock peers need."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"malformed JSON at character {position}: {reason}")
        self.reason = reason
        self.position = position


class StoreError(RmqError):
    """The message store cannot do what was asked."""


class StorageError(StoreError):
    """The operating system refused an operation on a file of the store."""

    def __init__(self, operation: str, path: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"cannot {operation} {path}: {reason}")
        self.operation = operation
        self.path = path
        self.reason = reason
        self.hint = hint


class DiskFullError(StorageError):
    """There is no room left for a file of the store."""

    retriable = True


class CorruptStoreError(StoreError):
    """A file of the store is not what it should be, and repairing it would lose messages."""

    def __init__(
        self, path: str, reason: str, *, offset: int | None = None, hint: str | None = None
    ) -> None:
        where = path if offset is None else f"{path}, physical offset {offset}"
        super().__init__(f"{where}: {reason}")
        self.path = path
        self.offset = offset
        self.reason = reason
        self.hint = hint


class StoreLockedError(StoreError):
    """Another process has the store open."""

    def __init__(self, path: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}: another process has this store open")
        self.path = path
        self.hint = hint


class StoreUnavailableError(StoreError):
    """The store takes no part in this now: closed, failed, or not open yet."""

    def __init__(self, reason: str, *, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class LogGapError(StoreError):
    """Raw bytes were offered for another place than the end of the log."""

    def __init__(self, offered: int, expected: int) -> None:
        super().__init__(f"bytes for physical offset {offered}, but the log ends at {expected}")
        self.offered = offered
        self.expected = expected


class RefusedError(RmqError):
    """A handler says no: the peer is answered with this response code and remark."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"refused with code {code}: {remark}")
        self.code = code
        self.remark = remark


class ClientError(RmqError):
    """A call to a peer did not succeed."""

    def __init__(self, peer: str, message: str) -> None:
        super().__init__(message)
        self.peer = peer


class ConnectFailedError(ClientError):
    """No connection to the peer could be made."""

    retriable = True

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, f"cannot connect to {peer}: {reason}")
        self.reason = reason


class ConnectionLostError(ClientError):
    """The connection ended before the answer came; the peer may or may not have acted."""

    retriable = True

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, f"connection to {peer} lost: {reason}")
        self.reason = reason


class RequestTimeoutError(ClientError):
    """No answer came within the time allowed; the peer may or may not have acted."""

    retriable = True

    def __init__(self, peer: str, what: str, timeout_s: float) -> None:
        super().__init__(peer, f"{what} to {peer}: no answer within {timeout_s:g} s")
        self.what = what
        self.timeout_s = timeout_s


class TooManyRequestsError(ClientError):
    """The limit of requests under way to this peer is reached; nothing was sent."""

    retriable = True

    def __init__(
        self, peer: str, what: str, limit: int, *, what_waits: str = "requests are under way"
    ) -> None:
        super().__init__(peer, f"{what} to {peer}: {limit} {what_waits} already")
        self.what = what
        self.limit = limit


class ResponseError(ClientError):
    """The peer answered with a code other than success."""

    def __init__(self, peer: str, what: str, code: int, remark: str | None) -> None:
        super().__init__(peer, f"{what} to {peer}: answered code {code}: {remark or 'no remark'}")
        self.what = what
        self.code = code
        self.remark = remark
