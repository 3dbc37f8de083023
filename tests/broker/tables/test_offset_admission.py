"""Which first offsets are stored: of topics and groups that exist, and of few others."""

from __future__ import annotations

import pytest

from rmq.broker.tables.offset_admission import STRANGERS_MAX, OffsetAdmission
from rmq.errors import RefusedError
from rmq.remoting.bodies import TopicConfig
from rmq.remoting.codes import ResponseCode
from tests.broker.tables.table_kit import group_table, topic_table


class Parts:
    """A topic with 4 queues to read, a group, and one that is connected only."""

    def __init__(self, strangers_max: int = STRANGERS_MAX) -> None:
        self.topics = topic_table()
        self.topics.put(TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=2))
        self.groups = group_table()
        self.groups.find("known")
        self.admission = OffsetAdmission(
            self.topics, self.groups, {"online"}.__contains__, strangers_max=strangers_max
        )

    def refusal(self, group: str, topic: str = "T", queue_id: int = 0) -> tuple[int, str] | None:
        try:
            self.admission.check(group, topic, queue_id)
        except RefusedError as exc:
            return exc.code, exc.remark
        return None


@pytest.mark.parametrize("group", ["known", "online", "a-stranger"])
def test_a_group_may_begin_to_have_offsets_of_a_topic_that_exists(group: str) -> None:
    parts = Parts()
    assert [parts.refusal(group, "T", queue_id) for queue_id in range(4)] == [None] * 4


def test_there_are_no_offsets_of_a_topic_that_does_not_exist() -> None:
    assert Parts().refusal("known", "no-such") == (
        ResponseCode.TOPIC_NOT_EXIST,
        "topic[no-such] not exist, so offsets of it are not stored",
    )


@pytest.mark.parametrize("queue_id", [-1, 4, 2**31 - 1])
def test_there_are_no_offsets_of_a_queue_that_its_topic_does_not_have(queue_id: int) -> None:
    assert Parts().refusal("known", "T", queue_id) == (
        ResponseCode.SYSTEM_ERROR,
        f"topic T has 4 queues and no queue {queue_id}",
    )


@pytest.mark.parametrize("group", ["a b", "../../x", "", "a@b", "g" * 256, "a\x00"])
def test_there_are_no_offsets_of_a_group_whose_name_cannot_be(group: str) -> None:
    refused = Parts().refusal(group)
    assert refused is not None
    assert refused[1].startswith("the specified group")


def test_groups_that_do_not_exist_have_room_for_some_offsets() -> None:
    parts = Parts(strangers_max=3)
    for number in range(3):
        assert parts.refusal(f"stranger-{number}") is None
    # The same one again needs no more room.
    refused = parts.refusal("one-more")
    assert refused is not None
    assert refused[1] == (
        "there is no group one-more, and offsets of 3 queues are stored for groups that do not"
        " exist; create it first (mqadmin updateSubGroup)"
    )
    assert parts.refusal("known") is parts.refusal("online") is None
    # Whoever exists by now is no stranger any more.
    parts.groups.find("stranger-1")
    assert parts.refusal("one-more") is None
    assert parts.refusal("and-another") is not None
