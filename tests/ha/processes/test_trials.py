"""The tools of the trials, and the shortest of those that no other test brings about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from tests.ha.processes.trials import doubles, forgeries
from tests.ha.processes.trials.gate import Gate
from tests.ha.processes.trials.ground import Place
from tests.ha.processes.trials.ports import GATE_HOST, HOST, free_port
from tests.ha.processes.trials.programs import TODAY, Said

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ha.processes.trials.outcome import Run


@pytest.mark.parametrize("run", [doubles.two_masters_at_once, forgeries.b4])
async def test_a_trial_holds(tmp_path: Path, run: Run) -> None:
    outcome = await run(Place(TODAY, tmp_path))
    assert outcome.holds, outcome.happened


def test_what_a_command_said_is_found_by_its_words() -> None:
    said = Said(
        1, "its log ends at 7\n  nothing is lost: all is here\nrmq: error: no\nhint: x\n", 0
    )
    assert said.line("LOST", "nothing is lost") == "nothing is lost: all is here"
    assert said.line("nowhere") == "hint: x"
    assert said.sentence == "rmq: error: no"


async def test_a_gate_passes_on_cuts_and_heals() -> None:
    port = free_port()

    async def echo(stream: trio.SocketStream) -> None:
        async for data in stream:
            await stream.send_all(data)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(port, host=HOST)
        nursery.start_soon(trio.serve_listeners, echo, listeners)
        gate = Gate(port)
        await nursery.start(gate.run)
        async with await trio.open_tcp_stream(GATE_HOST, port) as stream:
            await stream.send_all(b"greeting")
            assert await stream.receive_some() == b"greeting"
            gate.cut()
            assert await _ends(stream)
        with pytest.raises(OSError, match="onnect"):
            await trio.open_tcp_stream(GATE_HOST, port)
        gate.heal()
        with trio.fail_after(10):
            async with await _dial(port) as stream:
                await stream.send_all(b"again")
                assert await stream.receive_some() == b"again"
        assert gate.firsts == [b"greeting", b"again"]
        nursery.cancel_scope.cancel()


async def _ends(stream: trio.SocketStream) -> bool:
    try:
        return not await stream.receive_some()
    except trio.BrokenResourceError:
        return True


async def _dial(port: int) -> trio.SocketStream:
    while True:
        try:
            return await trio.open_tcp_stream(GATE_HOST, port)
        except OSError:
            await trio.lowlevel.checkpoint()
