"""`rmq dev`: what there is of rmq, running on this machine, with a self-check.

Today that is a remoting server with the key-value settings of a nameserver, kept in memory: enough
for a request to go through every layer of the wire and come back. Beside it a message store in a
temporary directory is written, opened again and read. It grows with rmq.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Final

import trio

from rmq.cli.command import Command
from rmq.cli.dev_store import check_store
from rmq.cli.exit_codes import ExitCode
from rmq.errors import ResponseError
from rmq.remoting.client import ClientConfig, open_client
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.headers import (
    DeleteKvConfigRequest,
    GetKvConfigRequest,
    GetKvConfigResponse,
    PutKvConfigRequest,
)
from rmq.remoting.server import RemotingServer, ServerConfig

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from rmq.remoting.client import RemotingClient
    from rmq.remoting.command import Command as RemotingCommand
    from rmq.remoting.header import Header
    from rmq.remoting.request import Request

NAMESPACE: Final = "SELF_CHECK"
PIPELINED: Final = 1_000
STOP_GRACE_S: Final = 5.0


class KeyValues:
    """Key-value settings as a nameserver serves them, in memory."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], str] = {}

    def table(self) -> HandlerTable:
        table = HandlerTable()
        table.add(RequestCode.PUT_KV_CONFIG, self._put, header=PutKvConfigRequest)
        table.add(RequestCode.GET_KV_CONFIG, self._get, header=GetKvConfigRequest)
        table.add(RequestCode.DELETE_KV_CONFIG, self._delete, header=DeleteKvConfigRequest)
        return table

    def _put(self, request: Request[PutKvConfigRequest]) -> None:
        header = request.header
        self._values[header.namespace, header.key] = header.value
        request.reply()

    def _get(self, request: Request[GetKvConfigRequest]) -> None:
        header = request.header
        value = self._values.get((header.namespace, header.key))
        if value is None:
            request.reply(
                GetKvConfigResponse(),
                code=ResponseCode.QUERY_NOT_FOUND,
                remark=f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        else:
            request.reply(GetKvConfigResponse(value=value))

    def _delete(self, request: Request[DeleteKvConfigRequest]) -> None:
        header = request.header
        self._values.pop((header.namespace, header.key), None)
        request.reply()


async def check(address: str) -> None:
    """Talk to the server as a client would, in both header serializations; raise if it errs."""
    for serialization in Serialization:
        async with open_client(ClientConfig(serialization=serialization)) as client:
            await _check_values(client, address, serialization)
            await _check_pipelining(client, address, serialization)


async def _check_values(client: RemotingClient, address: str, serialization: Serialization) -> None:
    key = f"written-in-{serialization.name}"
    put = PutKvConfigRequest(namespace=NAMESPACE, key=key, value="héllo")
    get = GetKvConfigRequest(namespace=NAMESPACE, key=key)
    delete = DeleteKvConfigRequest(namespace=NAMESPACE, key=key)
    await _call(client, address, serialization, RequestCode.PUT_KV_CONFIG, put)
    answer = await _call(client, address, serialization, RequestCode.GET_KV_CONFIG, get)
    if answer.header(GetKvConfigResponse).value != put.value:
        raise ResponseError(address, "GET_KV_CONFIG", answer.code, f"{answer.ext_fields} is wrong")
    await _call(client, address, serialization, RequestCode.DELETE_KV_CONFIG, delete)
    await _call(
        client,
        address,
        serialization,
        RequestCode.GET_KV_CONFIG,
        get,
        expected=ResponseCode.QUERY_NOT_FOUND,
    )


async def _check_pipelining(
    client: RemotingClient, address: str, serialization: Serialization
) -> None:
    """Have many requests under way at once on the one connection."""
    started = time.perf_counter()

    async def put(number: int) -> None:
        header = PutKvConfigRequest(namespace=NAMESPACE, key="pipelined", value=str(number))
        answer = await client.request(address, RequestCode.PUT_KV_CONFIG, header, timeout_s=10)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(address, "PUT_KV_CONFIG", answer.code, answer.remark)

    async with trio.open_nursery() as nursery:
        for number in range(PIPELINED):
            nursery.start_soon(put, number)
    took_ms = (time.perf_counter() - started) * 1000
    delete = DeleteKvConfigRequest(namespace=NAMESPACE, key="pipelined")
    await client.request(address, RequestCode.DELETE_KV_CONFIG, delete)
    _say(f"  {serialization.name:<8}  {PIPELINED} requests at once  all answered  {took_ms:.0f} ms")


async def _call(
    client: RemotingClient,
    address: str,
    serialization: Serialization,
    code: RequestCode,
    header: Header,
    *,
    expected: ResponseCode = ResponseCode.SUCCESS,
) -> RemotingCommand:
    started = time.perf_counter()
    answer = await client.request(address, code, header)
    took_ms = (time.perf_counter() - started) * 1000
    if answer.code != expected:
        raise ResponseError(address, code.name, answer.code, answer.remark)
    _say(f"  {serialization.name:<8}  {code.name:<16}  {expected.name:<15}  {took_ms:.1f} ms")
    return answer


async def _run(host: str, port: int, *, only_check: bool) -> None:
    server = RemotingServer(KeyValues().table(), ServerConfig(host=host, port=port))
    async with trio.open_nursery() as nursery:
        # Signals are taken over before the port opens: from then on none of them kills.
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            await nursery.start(server.run)
            address = f"{host}:{server.port}"
            _say(f"remoting server listens on {address}")
            _say("self-check: requests over the wire and their answers")
            await check(address)
            _say("self-check: messages into a store on disk and back")
            await check_store(_say)
            _say("self-check passed")
            if not only_check:
                _say(
                    "\nThe key-value settings of a nameserver are served, from memory, so a stock\n"
                    f"`mqadmin updateKvConfig -n {address} -s NAMESPACE -k KEY -v VALUE` works.\n"
                    "Ctrl-C stops."
                )
                async for _ in signals:
                    break
                _say("stopping")
            server.stop(grace_s=STOP_GRACE_S)


def run(args: Namespace) -> int:
    trio.run(lambda: _run(args.host, args.port, only_check=args.check))
    return ExitCode.OK


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument(
        "--port", type=int, default=9876, help="port to listen on; 0 takes a free one (%(default)s)"
    )
    parser.add_argument("--check", action="store_true", help="exit after the self-check")


def _say(line: str) -> None:
    print(line, flush=True)


COMMAND: Final = Command(
    name="dev",
    help="run rmq on this machine and check that it works",
    description=(
        "Starts what there is of rmq (today: a remoting server that keeps a nameserver's key-value"
        " settings in memory, and a message store in a temporary directory), sends requests and"
        " messages to it, shows what came back, and stays up until Ctrl-C."
    ),
    add_arguments=add_arguments,
    run=run,
    examples=("rmq dev", "rmq dev --check", "rmq dev --port 0"),
)
