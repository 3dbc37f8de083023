"""Who a store is and which epoch it has seen: never forgotten silently, never going back."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import ConfigError, StorageError
from rmq.ha.identity import (
    EPOCH_MAX,
    FORMER_MASTERS_MAX,
    HISTORY_MAX,
    NAMES_MAX,
    HaIdentity,
    begun,
    identity_path,
    load_identity,
    reborn,
    renamed,
    save_identity,
    with_epoch,
    with_former_master,
    with_records,
    with_role,
    withdrawn,
)
from rmq.model.in_sync_record import InSyncRecord, member_name
from rmq.model.offsets import PhysicalOffset
from tests.store.file_steps import Killed, Steps, power_cuts

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "haState.json"
STORE_ID: Final = bytes(range(16))
OLD: Final = HaIdentity(STORE_ID, 3, ((1, PhysicalOffset(0)), (3, PhysicalOffset(500))), "SLAVE")
NEW: Final = with_role(with_epoch(OLD, 4, PhysicalOffset(900)), "SYNC_MASTER")


# --- the file --------------------------------------------------------------------------------


def test_a_store_gets_a_name_of_its_own_that_stays(tmp_path: Path) -> None:
    first = load_identity(tmp_path / "a")
    assert (first.epoch, first.history, first.role) == (1, ((1, 0),), "")
    assert load_identity(tmp_path / "a") == first
    assert load_identity(tmp_path / "b").store_id != first.store_id
    assert identity_path(tmp_path / "a") == tmp_path / "a" / "config" / NAME


def test_a_name_is_on_disk_before_it_is_used(tmp_path: Path) -> None:
    with Steps().watching() as steps:
        load_identity(tmp_path)
    names = [name for name, _, _ in steps.done if name != "open"]
    assert names[-4:] == ["write", "fsync", "replace", "sync directory"]


def test_what_is_saved_is_loaded_and_can_be_read_by_people(tmp_path: Path) -> None:
    save_identity(tmp_path, OLD)
    assert load_identity(tmp_path) == OLD
    assert json.loads(identity_path(tmp_path).read_text()) == {
        "replica": "000102030405060708090a0b0c0d0e0f",
        "epoch": 3,
        "history": [[1, 0], [3, 500]],
        "role": "SLAVE",
        "incarnation": 0,
        "records": [],
        "before": [],
        "epoch_before": 0,
        "former_masters": [],
    }


def test_what_a_later_version_adds_is_passed_over(tmp_path: Path) -> None:
    save_identity(tmp_path, OLD)
    path = identity_path(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "vote": {"for": 1}}))
    assert load_identity(tmp_path) == OLD


GOOD: Final = {"replica": "00" * 16, "epoch": 2, "history": [[1, 0], [2, 7]], "role": ""}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", "truncated", id="empty"),
        pytest.param("\0" * 512, "malformed", id="zeros"),
        pytest.param('{"replica":"00', "truncated", id="half"),
        pytest.param("{}", "replica", id="nothing in it"),
        pytest.param(json.dumps({**GOOD, "replica": "00"}), "1 bytes", id="a short name"),
        pytest.param(json.dumps({**GOOD, "replica": "x" * 32}), "hexadecimal", id="no name"),
        pytest.param(json.dumps({**GOOD, "epoch": 0}), "epoch 0", id="no epoch"),
        pytest.param(json.dumps({**GOOD, "epoch": -1}), "epoch", id="a negative epoch"),
        pytest.param(json.dumps({**GOOD, "epoch": "2"}), "epoch", id="an epoch in quotes"),
        pytest.param(json.dumps({**GOOD, "epoch": 1}), "later than", id="a history of the future"),
        pytest.param(
            json.dumps({**GOOD, "history": [[2, 0], [1, 7]]}), "after", id="epochs that go back"
        ),
        pytest.param(
            json.dumps({**GOOD, "history": [[1, 9], [2, 7]]}), "after", id="offsets that go back"
        ),
    ],
)
def test_a_damaged_file_is_an_error_even_with_a_good_backup(
    tmp_path: Path, text: str, reason: str
) -> None:
    save_identity(tmp_path, OLD)
    save_identity(tmp_path, NEW)
    path = identity_path(tmp_path)
    path.write_text(text)
    with pytest.raises(ConfigError, match=reason) as caught:
        load_identity(tmp_path)
    assert caught.value.key == str(path)
    assert caught.value.hint is not None
    assert path.read_text() == text, "it is left for whoever repairs it"


def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    save_identity(tmp_path, OLD)
    identity_path(tmp_path).write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be understood"):
        load_identity(tmp_path)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    identity_path(tmp_path).mkdir(parents=True)
    with pytest.raises(StorageError, match="cannot read"):
        load_identity(tmp_path)


@pytest.mark.parametrize("fail_at", range(6))
def test_a_save_that_fails_says_so_and_leaves_the_old_or_the_new_state(
    tmp_path: Path, fail_at: int
) -> None:
    save_identity(tmp_path, OLD)
    failing = Steps(fail_at, OSError(errno.EIO, os.strerror(errno.EIO)))
    with failing.watching(), pytest.raises(StorageError):
        save_identity(tmp_path, NEW)
    assert load_identity(tmp_path) in (OLD, NEW)


def test_a_save_that_is_killed_at_any_step_leaves_the_old_or_the_new_state(tmp_path: Path) -> None:
    found: list[HaIdentity] = []
    for fail_at in range(7):
        root = tmp_path / str(fail_at)
        save_identity(root, OLD)
        with pytest.raises(Killed), Steps(fail_at).watching():
            save_identity(root, NEW)
        found.append(load_identity(root))
    assert set(found) == {OLD, NEW}
    assert found == sorted(found, key=lambda identity: identity.epoch)


def test_a_power_cut_at_any_step_leaves_the_old_state_or_once_it_is_saved_the_new(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    save_identity(root, HaIdentity(STORE_ID))
    save_identity(root, OLD)
    folder = identity_path(root).parent
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with Steps().watching() as steps:
        save_identity(root, NEW)
    ends = list(power_cuts(before, steps))
    found: list[HaIdentity] = []
    for number, content in enumerate(ends):
        cut = tmp_path / str(number)
        (cut / "config").mkdir(parents=True)
        for name, data in content.items():
            (cut / "config" / name).write_bytes(data)
        found.append(load_identity(cut))
    assert set(found) == {OLD, NEW}
    assert found[-1] == NEW


# --- epochs ----------------------------------------------------------------------------------


def test_a_later_epoch_is_remembered_with_its_beginning() -> None:
    later = with_epoch(OLD, 5, PhysicalOffset(900))
    assert (later.epoch, later.history) == (5, ((1, 0), (3, 500), (5, 900)))
    assert (later.store_id, later.role) == (OLD.store_id, OLD.role)


def test_an_epoch_never_goes_back() -> None:
    with pytest.raises(ValueError, match="epoch 2 after 3"):
        with_epoch(OLD, 2, PhysicalOffset(900))


def test_the_same_epoch_changes_nothing() -> None:
    assert with_epoch(OLD, 3, PhysicalOffset(900)) == OLD


def test_an_epoch_in_which_nothing_was_written_is_not_remembered() -> None:
    assert with_epoch(OLD, 4, PhysicalOffset(500)).history == ((1, 0), (4, 500))


def test_an_epoch_after_the_log_was_cut_forgets_those_that_began_behind_the_cut() -> None:
    assert with_epoch(OLD, 4, PhysicalOffset(200)).history == ((1, 0), (4, 200))


def test_the_oldest_epochs_are_forgotten() -> None:
    identity = HaIdentity(STORE_ID)
    for epoch in range(2, 2 * HISTORY_MAX):
        identity = with_epoch(identity, epoch, PhysicalOffset(epoch))
    assert len(identity.history) == HISTORY_MAX
    assert identity.history[-1] == (2 * HISTORY_MAX - 1, 2 * HISTORY_MAX - 1)
    assert epoch_at(identity, 0) is None


def epoch_at(identity: HaIdentity, offset: int) -> int | None:
    """Return the epoch in which a byte was written by the history; None if that is forgotten."""
    return next((epoch for epoch, start in reversed(identity.history) if start <= offset), None)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 1), (499, 1), (500, 3), (10_000, 3)], ids=str)
def test_which_epoch_a_byte_was_written_in(offset: int, epoch: int) -> None:
    assert epoch_at(OLD, offset) == epoch


def test_an_epoch_has_the_size_of_a_java_long() -> None:
    assert with_epoch(OLD, EPOCH_MAX, PhysicalOffset(900)).epoch == EPOCH_MAX
    with pytest.raises(ValueError, match="epoch"):
        with_epoch(OLD, EPOCH_MAX + 1, PhysicalOffset(900))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 100)), max_size=12))
def test_any_history_stays_in_order_and_never_goes_back(steps: list[tuple[int, int]]) -> None:
    identity = HaIdentity(STORE_ID)
    for epoch, start in steps:
        before = identity
        if epoch < identity.epoch:
            with pytest.raises(ValueError, match="after"):
                with_epoch(identity, epoch, PhysicalOffset(start))
            continue
        identity = with_epoch(identity, epoch, PhysicalOffset(start))
        assert identity.epoch == epoch >= before.epoch
        if epoch > before.epoch:
            assert identity.history[-1] == (epoch, start)
            for offset in range(start):
                assert epoch_at(identity, offset) == epoch_at(before, offset)


# --- names and epochs that do not begin -----------------------------------------------------------


def test_a_store_keeps_the_names_by_which_it_lost_nothing() -> None:
    one = renamed(renamed(OLD, 1_000), 900)
    assert one.members == {member_name(STORE_ID, number) for number in (0, 1_000, 1_001)}
    other = renamed(reborn(one, 2_000), 3_000)
    assert other.members == {member_name(STORE_ID, 2_000), member_name(STORE_ID, 3_000)}
    assert other.member == member_name(STORE_ID, 3_000)


def test_a_backup_that_is_put_back_is_not_what_the_store_became() -> None:
    """Both begin with the same state, and are started at other times."""
    went_on, put_back = renamed(OLD, 1_000), renamed(OLD, 2_000)
    assert went_on.member not in put_back.members


def test_so_many_names_are_kept_and_no_more(tmp_path: Path) -> None:
    identity = OLD
    for now_ms in range(3 * NAMES_MAX):
        identity = renamed(identity, now_ms)
    assert len(identity.members) == NAMES_MAX + 1
    assert identity.member in identity.members
    identity_path(tmp_path).parent.mkdir()
    save_identity(tmp_path, identity)
    assert load_identity(tmp_path) == identity


def test_a_file_from_before_names_were_kept_has_one(tmp_path: Path) -> None:
    save_identity(tmp_path, reborn(OLD, 2))
    path = identity_path(tmp_path)
    state = json.loads(path.read_text())
    del state["before"], state["epoch_before"]
    path.write_text(json.dumps(state))
    assert load_identity(tmp_path).members == {member_name(STORE_ID, 2)}


@pytest.mark.parametrize("start", [500, 900])
def test_an_epoch_that_does_not_begin_leaves_no_trace(start: int) -> None:
    record = InSyncRecord(epoch=3, version=1, is_sync=True)
    old = with_records(OLD, (record,))
    new = begun(old, 4, PhysicalOffset(start), (record,))
    first = with_records(new, (record, InSyncRecord(epoch=4, version=1, is_sync=True)))
    assert first.epoch_before == 3
    back = withdrawn(first)
    assert (back.epoch, back.records, back.epoch_before) == (3, (record,), 0)
    assert epoch_at(back, 400) == 1
    # Once its first record counts, there is no way back.
    assert with_records(first, first.records[1:]).epoch_before == 0


def test_an_epoch_that_nothing_came_before_begins_at_once() -> None:
    assert begun(OLD, 4, PhysicalOffset(900), ()).epoch_before == 0


@pytest.mark.parametrize("state", [{"before": [2, 1]}, {"before": [0]}, {"epoch_before": 3}])
def test_a_state_that_cannot_be_is_refused(tmp_path: Path, state: dict[str, int]) -> None:
    save_identity(tmp_path, OLD)
    path = identity_path(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | state))
    with pytest.raises(ConfigError, match="cannot be understood"):
        load_identity(tmp_path)


def test_the_last_masters_whose_place_a_store_took_are_remembered(tmp_path: Path) -> None:
    identity = HaIdentity(bytes(16))
    assert with_former_master(identity, "") is identity
    for number in range(12):
        identity = with_former_master(identity, f"10.0.0.{number}:10911")
    identity = with_former_master(identity, "10.0.0.7:10911")
    assert len(identity.former_masters) == FORMER_MASTERS_MAX
    assert identity.former_masters[-2:] == ("10.0.0.11:10911", "10.0.0.7:10911")
    identity_path(tmp_path).parent.mkdir()
    save_identity(tmp_path, identity)
    assert load_identity(tmp_path) == identity


def test_a_store_that_never_had_another_epoch_keeps_the_one_it_withdraws() -> None:
    fresh = HaIdentity(STORE_ID)
    assert withdrawn(fresh) == fresh
