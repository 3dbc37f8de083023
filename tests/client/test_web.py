"""The examples of docs/web.md run as they stand, in the frameworks that they are for."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pytest
import uvicorn
from werkzeug.serving import make_server

from tests.paths import DOCS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.testing.local_broker import LocalBroker

ADDRESS: Final = "127.0.0.1:9876"
THREADS: Final = 16
WAIT_S: Final = 20.0
_EXAMPLE: Final = re.compile(r"```python\n(.*?)```(?:\n```\n(.*?)```)?", re.DOTALL)


def examples(title: str) -> Iterator[tuple[str, str]]:
    """Return the code blocks of a section, and what each prints."""
    text = (DOCS / "web.md").read_text()
    (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    for match in _EXAMPLE.finditer(section):
        yield match[1], match[2] or ""


def scope_of(title: str, broker: LocalBroker) -> dict[str, Any]:
    """Run the only example of a section; return what it has defined."""
    ((code, _),) = examples(title)
    scope: dict[str, Any] = {"__name__": "example"}
    exec(code.replace(ADDRESS, broker.nameserver), scope)
    return scope


def asked(url: str, *, method: str = "GET") -> Any:  # noqa: ANN401 - it is JSON
    request = urllib.request.Request(url, method=method)
    with urllib.request.urlopen(request, timeout=WAIT_S) as response:
        return json.load(response)


@pytest.mark.parametrize(
    "title", ["asyncio", "Django, and other mixtures of async and threads"], ids=["loop", "mixed"]
)
def test_an_example_prints_what_it_says(
    title: str, rmq_session_broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    ((code, output),) = examples(title)
    exec(code.replace(ADDRESS, rmq_session_broker.nameserver), {})
    assert capsys.readouterr().out == output


def test_an_application_of_fastapi_sends_and_consumes(rmq_session_broker: LocalBroker) -> None:
    rmq_session_broker.create_topic("ShopOrders")
    app = scope_of("FastAPI on uvicorn", rmq_session_broker)["app"]
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + WAIT_S
        while not server.started:
            assert thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/orders/7"
        # A group that is new starts at the end: until it has its queues, orders pass it by.
        while not asked(url)["billed"]:
            assert asked(url, method="POST") == {"status": "SEND_OK"}
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        server.should_exit = True
        thread.join(WAIT_S)
    assert not thread.is_alive()


def test_an_application_of_flask_sends_from_many_threads(rmq_session_broker: LocalBroker) -> None:
    rmq_session_broker.create_topic("FlaskOrders")
    scope = scope_of("Flask", rmq_session_broker)
    server = make_server("127.0.0.1", 0, scope["app"], threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/orders"
        with ThreadPoolExecutor(THREADS) as pool:
            answers = list(
                pool.map(lambda n: asked(f"{url}/{n}", method="POST"), range(5 * THREADS))
            )
        assert answers == [{"status": "SEND_OK"}] * len(answers)
    finally:
        server.shutdown()
        thread.join(WAIT_S)
        server.server_close()
        scope["producer"].close()
        scope["atexit"].unregister(scope["producer"].close)
    bodies = {message.body for message in rmq_session_broker.messages("FlaskOrders")}
    assert bodies == {b"order %d" % number for number in range(5 * THREADS)}


def test_the_cells_of_a_notebook_share_a_producer(
    rmq_session_broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    scope: dict[str, Any] = {}

    async def run_cell(code: str) -> None:
        compiled = compile(code, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(compiled, scope)
        if inspect.isawaitable(result):
            await result

    async def notebook() -> None:
        for code, _ in examples("Notebooks"):
            # Each cell is a task of its own.
            await asyncio.create_task(
                run_cell(code.replace(ADDRESS, rmq_session_broker.nameserver))
            )

    asyncio.run(notebook())
    assert capsys.readouterr().out == "SEND_OK\n[b'first']\n"


def test_the_example_of_a_test_passes(rmq_broker: LocalBroker) -> None:
    scope_of("Tests of an application", rmq_broker)["test_an_order_is_sent"](rmq_broker)


def test_fixtures_that_are_not_asked_for_cost_nothing() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import rmq.testing.pytest_plugin;"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ast.literal_eval(done.stdout) == ["rmq", "rmq.testing", "rmq.testing.pytest_plugin"]
