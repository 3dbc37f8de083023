"""What the rounds count of a load."""

from __future__ import annotations

from tests.ha.processes.rounds_account import Account, Kind


def test_times_without_answers_are_those_between_answers_whoever_reports_first() -> None:
    account = Account()
    for number, at in enumerate((10.0, 11.0, 10.5, 14.0)):
        account.sent(Kind.PLAIN, Kind.PLAIN.body(number), "SEND_OK", at)
    trouble = account.take_trouble()
    assert (trouble.longest_s, trouble.longest_ok_s, trouble.failed) == (3.0, 3.0, 0)


def test_an_answer_that_is_not_ok_ends_the_time_without_an_answer_only() -> None:
    account = Account()
    account.sent(Kind.PLAIN, b"plain 1", "SEND_OK", 10.0)
    account.sent(Kind.PLAIN, b"plain 2", "SLAVE_NOT_AVAILABLE", 12.0)
    account.failed("MQClientException")
    account.sent(Kind.PLAIN, b"plain 3", "SEND_OK", 15.0)
    trouble = account.take_trouble()
    assert (trouble.longest_s, trouble.longest_ok_s, trouble.failed) == (3.0, 5.0, 1)
    assert account.promised == {b"plain 1", b"plain 3"}
    assert account.take_trouble() == (0.0, 0.0, 0)
