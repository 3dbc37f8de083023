"""The error tree of rmq.

Every error that rmq raises for its callers, peers and operators is one of these. Facts are
attributes, the text is for people, and `hint` (where there is one) says what to do about it. What
applications meet (settings, messages, calls) has the hint in `str(error)`; `text` is without it.
This module imports nothing of ours; errors that only one package raises are declared there, and the
tree names that package in brackets. A test compares tree and code.

RmqError
|- ConfigError                   a setting is wrong: key, reason
|  |- SettingsError              [settings] all that is wrong with the settings of a process
|  `- SchemaError                [spark] a table cannot be written as messages
|- ListenError                   a port cannot be opened: address, reason
|- ProtocolError                 a peer (or we) broke the rules of the wire
|  |- LocalProtocolError         we tried to send something illegal
|  |- RemoteProtocolError        the peer sent something that ends the connection
|  |- HeaderError                one request's header cannot be read; the connection lives on
|  |- MalformedJsonError         a JSON body cannot be read: reason, position
|  `- BodyError                  [remoting] one command's body cannot be read
|     `- BatchError              [remoting] a batch is not a row of whole entries
|- StoreError                    the message store cannot do what was asked
|  |- StorageError               the operating system refused: path, operation
|  |  |- DiskFullError           no room left on the device
|  |  `- FileGoneError           [store] a file was deleted before it was read
|  |- CorruptStoreError          files contradict each other or the format: path, offset
|  |- StoreLockedError           another process has the store open: path
|  |- StoreUnavailableError      closed, failed or not yet open: reason
|  |- LogGapError                raw bytes for another offset than the end of the log
|  |- NotProvenError             [spark] archived data is not what was read
|  `- NothingInCommonError       [spark] two logs have no byte in common
|- RefusedError                  a handler's no: code, remark
|  |- AccessRefusedError         [access] a request that its sender may not make: reason
|  |- StaleEpochError            [nameserver] another broker has become master since
|  `- LeapError                  [nameserver] an epoch too far ahead to be believed yet
|- IllegalMessageError           a message or name that no broker would take: reason
|- UnreadableBodyError           [client] a message's body cannot be read: raw_body
|- SqlSyntaxError                [broker] an SQL92 expression cannot be read
|- WrongLoopError                no such event loop runs here: wanted
|- SharedUseError                threads share what is for one at a time: what, call
|- ClientError                   a call to a peer did not succeed: peer
|  |- ConnectFailedError         no connection could be made
|  |- ConnectionLostError        the connection ended before the answer came
|  |- RequestTimeoutError        no answer within the time allowed
|  |- TooManyRequestsError       the limit of requests under way is reached
|  |- ResponseError              the peer answered with a code other than success
|  |  |- NotMasterError          [client] a broker takes no messages now, and says who does
|  |  `- StockBrokerError        [cli] a broker knows nothing of requests of rmq
|  |- BadAnswerError             the peer's answer cannot be understood: what, reason
|  |- NoNameserverError          none of the nameservers answered: attempts
|  |- NoRouteError               no broker serves the topic: topic
|  |  `- NoMasterError           [client] brokers have the topic, none of them is master now
|  |- SendFailedError            a message was not stored, or that is not known: topic, attempts
|  |  `- BatchFailedError        [client] parts of a batch were not acknowledged
|  |- NotAssignedError           a queue is not (any longer) this consumer's: topic, queue_id
|  |- OffsetOutOfRangeError      a queue has no message at an offset: asked, first, last
|  |- NoBrokerError              no broker is the one that was asked for: wanted, reason
|  |- BrokersFailedError         some of several brokers did not do their part: done, failures
|  |- ClientClosedError          the client, producer or consumer is closed already: what
|  |- BrokerRefusedError         [cli] a broker understood, and said no
|  |  `- NotAllowedError         [cli] access control said no: the account, or its absence
|  `- RowsNotSentError           [spark] rows were not acknowledged
|- DataLossError                 [spark] messages are missing, and `failOnDataLoss` is set
|- QueuesAwayError               [spark] queues cannot be read at the moment
|- BadRangeError                 [spark] bytes that are no messages, or not those asked for
|- UsageError                    [cli] the command line says too little, or contradicts itself
|- NotFoundError                 [cli] there is no such broker
|- NothingFoundError             [cli] no broker has the message, the trace or the letter
|- InputError                    [cli] standard input cannot be read
|- OutputError                   [cli] standard output takes no more
|- NotNowError                   [cli] a change of roles would do harm as things are
|- FileExistsAlreadyError        [cli] a file that would be written is there, and another one
|- NotSavedError                 [cli] messages could not be saved before they are cut
|- VerifyError                   [cli] nothing can be said about two logs
|- CheckFailedError              [cli] the self-check of `rmq dev` failed
|- MetricsFailedError            [cli] a broker of `rmq dev` shows no metrics, or wrong ones
`- ChildFailedError              [cli] a process of `rmq dev` ended by itself
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class RmqError(Exception):
    """Base of every error rmq raises on purpose."""

    retriable: bool = False
    """Whether the same call may succeed later without a change by the caller."""

    hint: str | None = None
    """What the reader can do about it, in one sentence."""

    @property
    def text(self) -> str:
        """What it says, without the hint."""
        return Exception.__str__(self)

    @property
    def with_hint(self) -> str:
        """What it says and what to do about it, for a line of a log."""
        return self.text if self.hint is None else f"{self.text} ({self.hint})"


E = TypeVar("E", bound=RmqError)


def to_keep(error: E) -> E:
    """Return a copy of `error` for an object to keep: without traceback, cause and context.

    A traceback keeps the frames that the error passed through, with all their variables: bodies of
    16 MB, views of files, and often the object that keeps the error, so that only the garbage
    collector ends that.
    """
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    return copy


class ConfigError(RmqError):
    """A setting is missing, malformed or contradicts another one."""

    def __init__(self, key: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return self.with_hint


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


class WrongLoopError(RmqError):
    """A client was opened where its event loop does not run."""

    def __init__(self, wanted: str) -> None:
        """`wanted`: trio or asyncio."""
        super().__init__(f"this client runs on {wanted}, and no {wanted} loop runs here")
        self.wanted = wanted
        other = (
            "from asyncio use rmq.client.aio" if wanted == "trio" else "from trio use rmq.client"
        )
        self.hint = f"{other}; without a loop use rmq.client.blocking"

    def __str__(self) -> str:
        return self.with_hint


class SharedUseError(RmqError):
    """A thread uses what another thread is using, and what is for one of them at a time."""

    def __init__(self, what: str, call: str) -> None:
        super().__init__(f"{what}: {call} while another thread is using it")
        self.what = what
        self.call = call
        self.hint = "give each thread a consumer of its own, with a client of its own"

    def __str__(self) -> str:
        return self.with_hint


class ClientError(RmqError):
    """A call to a peer did not succeed."""

    def __init__(self, peer: str, message: str) -> None:
        super().__init__(message)
        self.peer = peer

    def __str__(self) -> str:
        return self.with_hint


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


_ACCESS_HINTS: Final = {
    "No accessKey is configured": (
        "the request was not signed: name a file with accessKey and secretKey (--credentials or"
        " $RMQ_CREDENTIALS; credentialsFile of a broker or of Spark), or set $RMQ_ACCESS_KEY and"
        " $RMQ_SECRET_KEY"
    ),
    "No acl config for": (
        "that server has no such account: check the access key, or add it to its plain_acl.yml"
    ),
    "Check signature failed": "the secret key is not the one that the server has for this account",
    "Need admin permission": (
        "use an account with `admin: true`, or give it to this one in plain_acl.yml of the server"
    ),
    "No default permission for": (
        "in plain_acl.yml of the server, give the account PUB to send or SUB to read: topicPerms,"
        " groupPerms or the two defaults"
    ),
}
"""What to do about a refusal by access control, by what its remark holds: words of 4.9.8."""


def access_hint(remark: str | None) -> str | None:
    """Return what to do if the remark of a response is a refusal by access control, else None."""
    if remark is None or "AclException" not in remark:
        return None
    return next((hint for words, hint in _ACCESS_HINTS.items() if words in remark), None)


class ResponseError(ClientError):
    """The peer answered with a code other than success."""

    def __init__(self, peer: str, what: str, code: int, remark: str | None) -> None:
        super().__init__(peer, f"{what} to {peer}: answered code {code}: {remark or 'no remark'}")
        self.what = what
        self.code = code
        self.remark = remark
        self.hint = access_hint(remark) or type(self).hint


class IllegalMessageError(RmqError):
    """A message, or the name of a topic or group, that no broker would take. Nothing was sent."""

    def __init__(self, reason: str, *, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return self.with_hint


class BadAnswerError(ClientError):
    """The peer answered, and the answer cannot be understood; it may have acted."""

    def __init__(self, peer: str, what: str, reason: str) -> None:
        super().__init__(peer, f"{what} to {peer}: the answer cannot be understood: {reason}")
        self.what = what
        self.reason = reason


class NoNameserverError(ClientError):
    """None of the nameservers answered."""

    retriable = True
    hint = "do the nameservers run, and can their ports be reached from here?"

    def __init__(self, what: str, attempts: Mapping[str, str]) -> None:
        """`attempts` holds what went wrong, by address."""
        tried = "; ".join(f"{address}: {reason}" for address, reason in attempts.items())
        super().__init__(";".join(attempts), f"{what}: no nameserver answered ({tried})")
        self.attempts = dict(attempts)


class NoRouteError(ClientError):
    """No broker serves a topic, as far as the nameservers know."""

    retriable = True

    def __init__(self, peer: str, topic: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(peer, f"topic {topic}: {reason} (asked {peer})")
        self.topic = topic
        self.reason = reason
        self.hint = hint


class SendFailedError(ClientError):
    """A message was not acknowledged, whatever was tried."""

    retriable = True

    def __init__(
        self, topic: str, attempts: Sequence[tuple[str, ClientError]], *, may_be_stored: bool
    ) -> None:
        """`attempts` holds the broker name and what went wrong, in order.

        `may_be_stored`: at least one broker was sent the message and did not say no.
        """
        tried = "; ".join(f"{broker}: {error.text}" for broker, error in attempts)
        doubt = "it may be stored nevertheless" if may_be_stored else "it is stored nowhere"
        super().__init__(
            attempts[-1][1].peer if attempts else "",
            f"a message for {topic} was not acknowledged after {len(attempts)}"
            f" attempt{'s' * (len(attempts) != 1)}, {doubt}: {tried}",
        )
        self.topic = topic
        self.attempts = tuple(attempts)
        self.may_be_stored = may_be_stored
        self.hint = attempts[-1][1].hint if attempts else None


class OffsetOutOfRangeError(ClientError):
    """A queue has no message where one was asked for: deleted already, or not there yet."""

    def __init__(
        self,
        peer: str,
        topic: str,
        broker_name: str,
        queue_id: int,
        asked: int,
        first: int,
        last: int,
    ) -> None:
        """`first` is the first offset that can be read, `last` the one behind the last message."""
        super().__init__(
            peer,
            f"queue {queue_id} of {topic} on {broker_name} has no offset {asked}: it goes from"
            f" {first} to {last} (asked {peer})",
        )
        self.topic = topic
        self.broker_name = broker_name
        self.queue_id = queue_id
        self.asked = asked
        self.first = first
        self.last = last


class NoBrokerError(ClientError):
    """No broker is the one that was asked for, as far as the nameservers know."""

    retriable = True

    def __init__(self, wanted: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__("", f"{wanted}: {reason}")
        self.wanted = wanted
        self.reason = reason
        self.hint = hint


class BrokersFailedError(ClientError):
    """Something was to be done at several brokers or nameservers, and not all of them did it."""

    retriable = True

    def __init__(
        self, what: str, failures: Sequence[tuple[str, ClientError]], done: Sequence[str]
    ) -> None:
        """`failures` holds who failed and how, `done` who did their part."""
        told = "; ".join(f"{who}: {error.text}" for who, error in failures)
        at_others = f", done at {', '.join(done)}" if done else ", done nowhere"
        super().__init__(
            failures[0][1].peer if failures else "",
            f"{what}: {len(failures)} of {len(failures) + len(done)} failed ({told}){at_others}",
        )
        self.what = what
        self.failures = tuple(failures)
        self.done = tuple(done)
        self.hint = failures[0][1].hint if failures else None


class NotAssignedError(ClientError):
    """A queue is not this consumer's: it never was, or another member of the group has it now."""

    hint = "look at the consumer's assignment; queues move when members of the group come and go"

    def __init__(self, topic: str, broker_name: str, queue_id: int) -> None:
        super().__init__(
            "", f"queue {queue_id} of {topic} on {broker_name} is not assigned to this consumer"
        )
        self.topic = topic
        self.broker_name = broker_name
        self.queue_id = queue_id


class ClientClosedError(ClientError):
    """What was called is closed already, or was never opened."""

    def __init__(self, what: str) -> None:
        super().__init__("", f"{what} is closed")
        self.what = what
