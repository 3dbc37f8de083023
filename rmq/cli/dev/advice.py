"""What `rmq dev` tells its user to try: commands that work as they are printed."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.cli.dev.pair import is_slave

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.cli.dev.pair import DevBroker

_WHAT_TO_TRY: Final = """
Point any RocketMQ 4.x client at the nameserver {nameserver}, or try
  echo 'good morning' | {rmq} produce -n {nameserver} Hello
  {rmq} consume -n {nameserver} Hello
  {rmq} cluster -n {nameserver}
  {rmq} ha status -n {nameserver}
  {rmq} ha switch {other_mode} -b {master}
  {rmq} ha promote -b {slave}
  kill -9 {pid}                   (the master; what to do then is told here)
Settings of the brokers: {confs}
Ctrl-C stops."""

_MASTER_ENDED: Final = """
The master {address} has ended ({how}): no broker takes messages. The slave {other} has {what}.
Make it the master, and start the old one again, which becomes its slave:
  {rmq} ha promote -b {other} --yes
  {rmq} broker -c {conf}
Ctrl-C stops what is left."""

_SLAVE_ENDED: Final = """
The slave {address} has ended ({how}). {effect} Start it again:
  {rmq} broker -c {conf}
Ctrl-C stops what is left."""


def own_command() -> str:
    """Return how this program is called from a shell: `rmq`, if that is it."""
    script = Path(sys.executable).with_name("rmq")
    found = shutil.which("rmq")
    if found is not None and script.exists() and Path(found).samefile(script):
        return "rmq"
    if not script.exists():
        return shlex.join([sys.executable, "-m", "rmq"])
    try:
        return shlex.quote(str(script.relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(script))


def what_to_try(
    nameserver: str, mode: str, pair: tuple[DevBroker, DevBroker], master_pid: int
) -> str:
    """Return what there is to do with a pair that runs."""
    master, slave = pair
    return _WHAT_TO_TRY.format(
        rmq=own_command(),
        nameserver=nameserver,
        other_mode="async" if mode == "sync" else "sync",
        master=master.address,
        slave=slave.address,
        pid=master_pid,
        confs=" ".join(str(broker.conf) for broker in pair),
    )


def what_now(ended: DevBroker, exit_code: int, mode: str, pair: Sequence[DevBroker]) -> str:
    """Return what there is to do when one of a pair has ended by itself, or was killed."""
    how = f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
    (other,) = (broker for broker in pair if broker is not ended)
    is_sync = mode == "sync"
    # A promotion since the start has written the new roles into the settings.
    if not is_slave(ended.folder):
        what = "all that was answered SEND_OK" if is_sync else "all but perhaps the latest messages"
        text = _MASTER_ENDED
    else:
        what = ""
        text = _SLAVE_ENDED
    effect = (
        "Sends are stored, and answered SLAVE_NOT_AVAILABLE until it is back."
        if is_sync
        else "Sends go on."
    )
    return text.format(
        rmq=own_command(),
        address=ended.address,
        other=other.address,
        how=how,
        what=what,
        effect=effect,
        conf=shlex.quote(str(ended.conf)),
    )
