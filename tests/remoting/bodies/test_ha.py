"""Bodies about replication: their words on the wire, which scripts and other versions rely on."""

from __future__ import annotations

import json

from rmq.remoting.bodies import (
    HaDigest,
    HaDigestsBody,
    HaMaster,
    HaResyncBody,
    HaSlave,
    HaStatusBody,
)
from rmq.remoting.codes import OWN_CODES_FIRST
from rmq.remoting.protocol import REQUESTS, Requests


def test_requests_of_ours_that_ask_are_answered_with_a_body_and_sent_without_one() -> None:
    own = [request for code, request in REQUESTS.items() if code >= OWN_CODES_FIRST]
    # The records of a log are answered as they are, like those of a pull.
    without = [request for request in own if not request.response_body]
    assert without == [Requests.HA_FENCE, Requests.HA_RECORDS]
    assert not [request for request in own if request.body]


def test_a_status_says_what_it_knows_and_leaves_out_what_there_is_not() -> None:
    slave = HaSlave(name="10.0.0.2:10911 (id 1)", appended=900, flushed=800, in_sync=True)
    status = HaStatusBody(
        role="MASTER", mode="SYNC_MASTER", epoch=3, end=1000, slaves=(slave,), in_sync=(slave.name,)
    )
    members = json.loads(status.encode())
    assert (members["role"], members["mode"], members["epoch"]) == ("MASTER", "SYNC_MASTER", 3)
    assert members["inSync"] == ["10.0.0.2:10911 (id 1)"]
    assert members["replicated"] == -1
    assert members["slaves"][0]["appended"] == 900
    assert not {"master", "lastError"} & members.keys()
    assert HaStatusBody.decode(status.encode()) == status


def test_a_status_of_an_older_version_can_be_read() -> None:
    status = HaStatusBody.decode(b'{"role":"SLAVE","master":{"epoch":2},"somethingNew":{"a":[1]}}')
    assert status == HaStatusBody(role="SLAVE", master=HaMaster(epoch=2))


def test_digests_and_the_plan_of_a_repair_have_their_words() -> None:
    digests = HaDigestsBody(
        begin=0, end=9000, digests=(HaDigest(start=0, stop=4096, sha256="ab" * 32),)
    )
    assert json.loads(digests.encode()) == {
        "begin": 0,
        "end": 9000,
        "digests": [{"start": 0, "stop": 4096, "sha256": "ab" * 32}],
    }
    plan = HaResyncBody(common_end=1, local_end=3, master_end=4, cut_bytes=2, dry_run=True)
    assert {"commonEnd", "localEnd", "masterEnd", "cutBytes", "cutMessages"} <= json.loads(
        plan.encode()
    ).keys()
