"""What lines of a scenario may expect: a pattern, and how to look.

    expect m1 -> SEND_OK             what the producer of a message was told; or that it `waits`
    expect a frame 0..235            the next thing a raw peer was sent, in the stock dialect
    expect a heartbeat 235
    expect a nothing / bytes 00ff    nothing more; these very bytes
    expect a open / closed: why      what its master thinks of its link
    expect a links 1                 how many of its links its master has open
    expect a ends DIVERGED: why      how its link ended for a slave
    expect a in sync / out of sync   whether it counts
    expect a holds 0..500            from where to where its log goes
    expect a same as master          its log is the master's, from where it begins
    expect a sees in_sync 2          what a slave knows of its master
    expect counter forged 1          what a master has counted
    expect replicated 500            and its other marks: see `_mark`

A check returns what is seen and what is wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rmq.ha.protocol.wire import TRANSFER
from rmq.model.offsets import PhysicalOffset

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from tests.ha.protocol.scenario import Stage

    _Check: TypeAlias = Callable[[Stage, re.Match[str]], tuple[object, object]]


def _answer(stage: Stage, match: re.Match[str]) -> tuple[object, object]:
    return stage.answers.get(match[1], "unknown"), match[2]


def _frame(stage: Stage, match: re.Match[str]) -> tuple[object, object]:
    """The next frame of the stock dialect that a raw peer was sent."""
    received = stage.peers[match[1]].received
    if len(received) < TRANSFER.size:
        return "nothing", match[2]
    offset, size = TRANSFER.unpack_from(received)
    body = bytes(received[TRANSFER.size : TRANSFER.size + size])
    del received[: TRANSFER.size + size]
    if not size:
        return f"heartbeat {offset}", match[2]
    if body != stage.log.read(offset, offset + size):
        return "a frame of other bytes", match[2]
    return f"frame {offset}..{offset + size}", match[2]


def _nothing(stage: Stage, match: re.Match[str]) -> tuple[object, object]:
    return bytes(stage.peers[match[1]].received), b""


def _bytes(stage: Stage, match: re.Match[str]) -> tuple[object, object]:
    received = stage.peers[match[1]].received
    wanted = bytes.fromhex(match[2])
    seen = bytes(received[: len(wanted)])
    del received[: len(wanted)]
    return seen.hex(), wanted.hex()


def _closed(stage: Stage, match: re.Match[str]) -> tuple[object, object]:
    link = stage.peers[match[1]].link
    assert link is not None
    reason = link.master.end_reason or ""
    return (True, True) if match[2] in reason and reason else (reason, match[2])


def _open(stage: Stage, match: re.Match[str]) -> tuple[object, object]:
    link = stage.peers[match[1]].link
    return None if link is None else link.master.end_reason, None


def _links_of(stage: Stage, match: re.Match[str]) -> tuple[object, object]:
    peer = stage.peers[match[1]]
    links = [*(link for link in peer.old_links if link is not peer.link), peer.link]
    return sum(link is not None and link.is_open_there for link in links), int(match[2])


def _ending(stage: Stage, match: re.Match[str]) -> tuple[object, object]:
    slave = stage.peers[match[1]].slave
    ending = None if slave is None else slave.ending
    if ending is None:
        return "no ending", match[2]
    is_so = ending.kind.name == match[2] and (match[3] or "") in ending.reason
    return (True, True) if is_so else (f"{ending.kind.name} {ending.reason}", match[2])


def _in_sync(stage: Stage, match: re.Match[str]) -> tuple[object, object]:
    link = stage.peers[match[1]].link
    slave = None if link is None else link.master.slave
    return slave is not None and slave.in_sync, match[2] == "in"


def _end(stage: Stage, match: re.Match[str]) -> tuple[object, object]:
    log = stage.peers[match[1]].log
    return f"{log.begin}..{log.end}", match[2]


def _same(stage: Stage, match: re.Match[str]) -> tuple[object, object]:
    log = stage.peers[match[1]].log
    return log.read(log.begin, log.end), stage.log.read(log.begin, stage.log.end)


def _view(stage: Stage, match: re.Match[str]) -> tuple[object, object]:
    slave = stage.peers[match[1]].slave
    assert slave is not None
    return str(getattr(slave.master, match[2])), match[3]


def _mark(stage: Stage, match: re.Match[str]) -> tuple[object, object]:
    master = stage.master
    marks: dict[str, Any] = {
        "replicated": master.slaves.replicated,
        "visible": master.pending_acks.advance_visible(PhysicalOffset(stage.log.end)),
        "in-sync": master.slaves.in_sync_count,
        "waiting": len(master.pending_acks),
        "end": stage.log.end,
        "outdated-by": master.outdated_by,
        "gone": len(master.slaves.gone),
        "mode-offset": master.pending_acks.in_force.offset,
    }
    return str(marks[match[1]]), match[2]


def _counter(stage: Stage, match: re.Match[str]) -> tuple[object, object]:
    return str(getattr(stage.master.counters, match[1])), match[2]


EXPECTATIONS: Final[tuple[tuple[str, _Check], ...]] = (
    (r"(\w+) -> (\w+)", _answer),
    (r"(\w+) (frame \d+\.\.\d+|heartbeat -?\d+)", _frame),
    (r"(\w+) nothing", _nothing),
    (r"(\w+) bytes ([0-9a-f]+)", _bytes),
    (r"(\w+) open", _open),
    (r"(\w+) closed: (.*)", _closed),
    (r"(\w+) links (\d+)", _links_of),
    (r"(\w+) ends (\w+)(?:: (.*))?", _ending),
    (r"(\w+) (in|out of) sync", _in_sync),
    (r"(\w+) holds (\d+\.\.\d+)", _end),
    (r"(\w+) same as master", _same),
    (r"(\w+) sees (\w+) (\S+)", _view),
    (r"counter (\w+) (\d+)", _counter),
    (r"([a-z-]+) (-?\w+)", _mark),
)
