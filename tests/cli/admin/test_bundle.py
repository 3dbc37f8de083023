"""`rmq bundle`."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING

from rmq.cli.common.exit_codes import ExitCode
from rmq.client.core.messages import Message

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.admin_kit import Rmq, RmqJson
    from tests.cli.client_kit import Processes

SECRET = "correct horse battery staple"


def test_everything_is_in_one_file_but_secrets_and_bodies(
    rmq: Rmq, rmq_json: RmqJson, processes: Processes, tmp_path: Path
) -> None:
    processes.put(Message("Bundled", b"private words"))
    file, conf, log = (tmp_path / name for name in ("x.tar.gz", "broker.conf", "broker.log"))
    conf.write_text(f"brokerName=a\nhaSecret={SECRET}\ntls.server.keyPassword={SECRET}\n")
    log.write_bytes(b"first\n" + b"x" * 5 * 1024**2 + b"\nlast\n")
    words = ("bundle", str(file), "-c", str(conf), "--log", str(log))
    told = rmq_json(*words)
    with tarfile.open(file) as archive:
        members = {
            entry.name.removeprefix("rmq-bundle/"): archive.extractfile(entry).read()  # type: ignore[union-attr]
            for entry in archive
        }
    assert sorted(members) == told["members"]
    assert json.loads(members["cluster.json"])["brokers"][0]["broker"] == "broker-a"
    topics = [each["topic"] for each in json.loads(members["topic-list.json"])["topics"]]
    assert "Bundled" in topics
    assert "broker-a" in members["ha-status.json"].decode()
    assert "trio" in json.loads(members["about.json"])["packages"]
    assert json.loads(members["doctor.json"])["checks"]
    assert (
        members["files/broker.conf"] == b"brokerName=a\nhaSecret=***\ntls.server.keyPassword=***\n"
    )
    assert len(members["files/broker.log"]) == 4 * 1024**2
    assert members["files/broker.log"].endswith(b"\nlast\n")
    everything = b"".join(members.values())
    assert SECRET.encode() not in everything
    assert b"private words" not in everything
    code, _, errors = rmq(*words)
    assert code == ExitCode.CONFIG
    assert "exists: name another one" in errors


def test_a_cluster_that_does_not_answer_is_no_reason_to_write_nothing(
    rmq: Rmq, tmp_path: Path
) -> None:
    file = tmp_path / "x.tar.gz"
    code, output, _ = rmq("bundle", str(file), "-n", "127.0.0.1:1")
    assert code == ExitCode.OK
    assert "cluster.json" in output
    with tarfile.open(file) as archive:
        entry = archive.extractfile("rmq-bundle/cluster.json")
        assert entry is not None
        assert "127.0.0.1:1" in json.load(entry)["error"]
