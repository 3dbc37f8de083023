"""What access control costs by send: the same signed frames to a broker with it and to one without.

The brokers take turns on one core. Frames are signed before the clock runs, so the difference is
what the broker does: it reads the account, checks the signature and the permission. The stock Java
broker can be measured in the same way beside ours.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, TypeAlias

from benchmarks.broker_load.answers import AnswerCutter
from benchmarks.broker_load.figures import Watch
from benchmarks.broker_load.frames import OPAQUE_FIRST
from benchmarks.broker_load.peer import NoAnswerError, connect, create_topic, read
from benchmarks.broker_servers import LOAD_CORE, BrokerFolder, OurBroker, use_core
from rmq.remoting.codes import LanguageCode, RequestCode
from rmq.remoting.command import encode_frame
from rmq.remoting.headers import CreateTopicRequest, SendMessageRequestV2
from rmq.remoting.signing import Credentials, SigningKey, signed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.broker_servers import BrokerKind, JavaBroker, RunningBroker
    from rmq.remoting.header import Header

ON: Final = "ACL on"
OFF: Final = "ACL off"
GOAL: Final = 0.10
"""The share of a send that access control may cost."""
_ACCOUNT: Final = Credentials(access_key="bench_account", secret_key="bench_secret_key")
_ACCOUNTS_FILE: Final = f"""\
accounts:
  - accessKey: {_ACCOUNT.access_key}
    secretKey: {_ACCOUNT.secret_key}
    admin: true
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: PUB|SUB
"""
_TOPIC: Final = "FairSigned"
_QUEUES: Final = 4
_BODY_BYTES: Final = 128
_IN_FLIGHT: Final = 64
_FRAMES: Final = 512
_PATIENT: Final = {"waitTimeMillsInSendQueue": "10000"}
"""A broker that is short of CPU time for a moment refuses nothing."""
_TEXT_BYTES: Final = 120
"""Of all header fields of such a send, about."""
_SIGNATURES: Final = 100
_BODIES: Final = (_BODY_BYTES, 1024)


class AclMissingError(Exception):
    """The checkout that is measured has no access control."""


class _Folder(BrokerFolder):
    """Where a broker of this comparison keeps its files, accounts included."""

    def __init__(self, kind: BrokerKind, path: Path, settings: Mapping[str, str]) -> None:
        super().__init__(kind, path, settings)
        conf = path / "conf"
        conf.mkdir()
        for folder in (conf, path):
            (folder / "plain_acl.yml").write_text(_ACCOUNTS_FILE)
            (folder / "plain_acl.yml").chmod(0o600)


class _Kind(OurBroker):
    """Our broker with a home of its own, where its accounts are."""

    def environment(self, folder: Path) -> Mapping[str, str]:
        return {**super().environment(folder), "ROCKETMQ_HOME": str(folder)}


Taken: TypeAlias = "dict[str, dict[str, list[dict[str, float]]]]"
"""The figures of each round, by broker, with access control and without."""


def measure(folder: Path, *, rounds: int, seconds: float, java: JavaBroker | None = None) -> Taken:
    """Return the figures of our broker, and of the stock one if it is there.

    Raises `AclMissingError` if ours does not know access control.
    """
    kinds: list[BrokerKind] = [_Kind()] if java is None else [_Kind(), java]
    taken: Taken = {}
    for kind in kinds:
        place = folder / kind.name
        place.mkdir()
        taken[kind.name] = _measure(kind, place, rounds=rounds, seconds=seconds)
    return taken


def _measure(
    kind: BrokerKind, folder: Path, *, rounds: int, seconds: float
) -> dict[str, list[dict[str, float]]]:
    taken: dict[str, list[dict[str, float]]] = {ON: [], OFF: []}
    with ExitStack() as stack:
        brokers: dict[str, RunningBroker] = {}
        wanted = {OFF: _PATIENT, ON: {**_PATIENT, "aclEnable": "true"}}
        for who, settings in wanted.items():
            place = _Folder(kind, folder / who.replace(" ", "-"), settings)
            stack.callback(place.remove)
            try:
                brokers[who] = stack.enter_context(place.running())
            except RuntimeError as exc:
                if who == OFF:
                    raise
                raise AclMissingError(str(exc)) from exc
            _create(brokers[who].port)
        _check_refusal(brokers[ON].port)
        use_core(LOAD_CORE)
        frames = [_send_frame(number) for number in range(_FRAMES)]
        for broker in brokers.values():
            _load(broker.port, frames, kind.run_in_s)
        for _ in range(rounds):
            for who, broker in brokers.items():
                watch = Watch(broker.usage)
                taken[who].append(watch.read(_load(broker.port, frames, seconds)))
    return taken


def signature_us(body_bytes: int) -> float:
    """Return what the signature of a send takes by itself, in CPU µs: the least of many tries."""
    key = SigningKey(_ACCOUNT.secret_key)
    content = b"x" * (_TEXT_BYTES + body_bytes)
    times: list[float] = []
    for _ in range(200):
        start = time.process_time_ns()
        for _ in range(_SIGNATURES):
            key.signature(content)
        times.append((time.process_time_ns() - start) / _SIGNATURES / 1_000)
    return min(times)


def report(taken: Taken) -> tuple[str, bool]:
    """Return a table as Markdown, and whether our broker met the goal."""
    lines = ["| signed sends | messages/s | CPU µs by send |", "| --- | --- | --- |"]
    costs: dict[str, float] = {}
    for kind, figures in taken.items():
        medians: dict[str, float] = {}
        for who, rounds in figures.items():
            rate = statistics.median(each["messages_per_s"] for each in rounds)
            medians[who] = statistics.median(each["cpu_us"] for each in rounds)
            lines.append(f"| {kind}, {who} | {rate:,.0f} | {medians[who]:.1f} |")
        costs[kind] = medians[ON] / medians[OFF] - 1
    lines.append("")
    ours = next(iter(costs.values()))
    is_met = round(ours, 6) <= GOAL
    for kind, cost in costs.items():
        lines.append(f"{kind}: ACL costs {cost:.1%} of a send; goal of ours: at most {GOAL:.0%}.")
    for size in _BODIES:
        took = signature_us(size)
        lines.append(f"The signature alone, body of {size:,} bytes: {took:.2f} µs.")
    lines.append("The goal is met." if is_met else "The goal is missed.")
    return "\n".join(lines) + "\n", is_met


# --- frames ----------------------------------------------------------------------------------


def _signed_frame(code: RequestCode, opaque: int, header: Header, body: bytes = b"") -> bytes:
    fields = signed(_ACCOUNT, header, None, body)
    head = encode_frame(
        code=code,
        opaque=opaque,
        header=header,
        extra=fields,
        body_length=len(body),
        language=LanguageCode.JAVA,
    )
    return head + body


def _send_frame(number: int) -> bytes:
    header = SendMessageRequestV2(
        producer_group="bench_producer",
        topic=_TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=number % _QUEUES,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties=f"UNIQ_KEY\x017F00000100002A9F18B4AAC2{number:08X}\x02WAIT\x01true\x02",
        reconsume_times=0,
        batch=False,
    )
    opaque = OPAQUE_FIRST + number
    return _signed_frame(RequestCode.SEND_MESSAGE_V2, opaque, header, b"x" * _BODY_BYTES)


def _create(port: int) -> None:
    header = CreateTopicRequest(
        topic=_TOPIC,
        default_topic="TBW102",
        read_queue_nums=_QUEUES,
        write_queue_nums=_QUEUES,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
    )
    data = _signed_frame(RequestCode.UPDATE_AND_CREATE_TOPIC, OPAQUE_FIRST, header)
    cutter = AnswerCutter()
    with connect(port) as sock:
        sock.sendall(data)
        while not cutter.opaques(read(sock)):
            pass
    if cutter.failures:
        raise NoAnswerError(str(dict(cutter.failures)))


def _check_refusal(port: int) -> None:
    """Make sure that access control is on: without a signature a topic cannot be created."""
    try:
        create_topic(port, "FairUnsigned", 1)
    except NoAnswerError:
        return
    raise AclMissingError("the broker takes a request without a signature, with aclEnable=true")


def _load(port: int, frames: list[bytes], seconds: float) -> int:
    """Keep sends under way for a while; return how many were answered, all of them stored."""
    cutter = AnswerCutter()
    answered = sent = 0
    with connect(port) as sock:
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            free = _IN_FLIGHT - (sent - answered)
            sock.sendall(b"".join(frames[(sent + at) % _FRAMES] for at in range(free)))
            sent += free
            answered += len(cutter.opaques(read(sock)))
        while answered < sent:
            answered += len(cutter.opaques(read(sock)))
    if cutter.failures:
        raise NoAnswerError(str(dict(cutter.failures)))
    return answered
