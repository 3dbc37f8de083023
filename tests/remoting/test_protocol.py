"""The declarations of requests, and the packages of classes they name."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmq.remoting import bodies, headers
from rmq.remoting.bodies import Body
from rmq.remoting.codes import RequestCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.header import EmptyHeader, Header
from rmq.remoting.protocol import REQUESTS, Requests, RequestType

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent.parent


def test_all_request_codes_are_declared_in_their_order() -> None:
    assert list(REQUESTS) == list(RequestCode)
    assert all(vars(Requests)[code.name] is request for code, request in REQUESTS.items())


def test_a_declaration_cannot_be_named_unlike_every_code() -> None:
    with pytest.raises((KeyError, RuntimeError)):  # RuntimeError from it, before Python 3.12
        type("More", (), {"SEND_TELEGRAM": RequestType()})


def test_a_request_that_is_sent_without_a_header_is_read_with_an_empty_one() -> None:
    assert Requests.HEART_BEAT.header is None
    assert Requests.HEART_BEAT.read_as is EmptyHeader
    assert Requests.PULL_MESSAGE.read_as is headers.PullMessageRequest


def test_a_handler_is_given_the_declared_header_and_a_server_may_declare_another() -> None:
    table = HandlerTable()
    table.add(Requests.GET_MAX_OFFSET, lambda request: None)
    other = RequestType(headers.GetMaxOffsetRequest, code=RequestCode.GET_MIN_OFFSET)
    table.add(other, lambda request: None)
    assert {code: entry.header_class for code, entry in table.entries.items()} == {
        RequestCode.GET_MAX_OFFSET: headers.GetMaxOffsetRequest,
        RequestCode.GET_MIN_OFFSET: headers.GetMaxOffsetRequest,
    }


@pytest.mark.parametrize(("package", "base"), [(headers, Header), (bodies, Body)])
def test_a_package_exports_every_class_that_a_module_of_it_defines(
    package: ModuleType, base: type
) -> None:
    defined: list[type] = []
    for found in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{found.name}")
        defined += [
            value
            for name, value in vars(module).items()
            if isinstance(value, type)
            and issubclass(value, base)
            and value.__module__ == module.__name__
            and not name.startswith("_")
        ]
    names = [value.__name__ for value in defined]
    assert len(names) == len(set(names)), "two modules define the same name"
    assert [name for name in names if name in vars(package)] == names
    assert all(vars(package)[value.__name__] is value for value in defined)


def test_a_request_is_written_in_the_files_that_the_architecture_page_names() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## Adding a request")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(rmq/\S+\.py)` \|", section, re.MULTILINE)
    assert len(named) == 7
    traces = re.compile(r"QUERY_CONSUME_TIME_SPAN|QueryConsumeTimeSpan|\bgroup_times\b")
    found = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "rmq").rglob("*.py")
        if traces.search(path.read_text())
    ]
    assert sorted(found) == sorted(named)
