"""Loads a broker in one way and prints one JSON line of figures.

    python -m benchmarks.broker_load topics PORT NAME=QUEUES ...
    python -m benchmarks.broker_load fill PORT --topic T --queues 16 --each 16384 --body 128
    python -m benchmarks.broker_load produce PORT --pid PID --topic T --queues 4
        --inflight 64 --connections 1 --body 128 --batch 1 --seconds 2
    python -m benchmarks.broker_load consume PORT --pid PID --topic T --queues 16 --each 16384
        --consumers 1 --seconds 2
    python -m benchmarks.broker_load paced PORT --pid PID --topic T --queues 4 --rate 10000
    python -m benchmarks.broker_load hold PORT --pid PID --topic T --queues 100 --connections 100
        --seconds 20

The broker is the process PID, listening on the loopback address.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import sys

from benchmarks.broker_load.consume import consume
from benchmarks.broker_load.figures import Outcome, Process
from benchmarks.broker_load.frames import SendShape
from benchmarks.broker_load.holds import hold
from benchmarks.broker_load.paced import end_to_end
from benchmarks.broker_load.peer import NoAnswerError, create_topic
from benchmarks.broker_load.produce import fill, produce


def main() -> int:
    args = _parse()
    # Nothing here makes cycles, and a collection would be taken for a slow answer.
    gc.disable()
    try:
        outcome = run(args)
    except (NoAnswerError, OSError, ValueError) as exc:
        print(f"load: error: {exc}", file=sys.stderr)
        return 1
    print(json.dumps(dataclasses.asdict(outcome)))
    return 0


def run(args: argparse.Namespace) -> Outcome:
    port, seconds = args.port, args.seconds
    if args.command == "topics":
        for item in args.topics:
            name, _, queues = item.partition("=")
            create_topic(port, name, int(queues))
        return Outcome({})
    shape = SendShape(args.topic, b"x" * args.body, args.batch)
    if args.command == "fill":
        fill(port, shape, queues=args.queues, each=args.each)
        return Outcome({})
    broker = Process(args.pid)
    if args.command == "produce":
        return produce(
            port,
            broker,
            shape,
            queues=args.queues,
            inflight=args.inflight,
            connections=args.connections,
            seconds=seconds,
        )
    if args.command == "consume":
        return consume(
            port,
            broker,
            args.topic,
            queues=args.queues,
            each=args.each,
            consumers=args.consumers,
            seconds=seconds,
        )
    if args.command == "paced":
        return end_to_end(port, broker, shape, queues=args.queues, per_s=args.rate, seconds=seconds)
    return hold(
        port,
        broker,
        args.topic,
        queues=args.queues,
        connections=args.connections,
        seconds=seconds,
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.broker_load",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = ("topics", "fill", "produce", "consume", "paced", "hold")
    parser.add_argument("command", choices=commands)
    parser.add_argument("port", type=int)
    parser.add_argument("topics", nargs="*", metavar="NAME=QUEUES")
    parser.add_argument("--pid", type=int, help="process id of the broker")
    parser.add_argument("--topic", default="BenchTopic")
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--inflight", type=int, default=64)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--consumers", type=int, default=1)
    parser.add_argument("--body", type=int, default=128, help="bytes of a body")
    parser.add_argument("--batch", type=int, default=1, help="messages of a request")
    parser.add_argument("--each", type=int, default=16_384, help="messages of a queue")
    parser.add_argument("--rate", type=float, default=10_000, help="messages a second")
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    if args.pid is None and args.command not in ("topics", "fill"):
        parser.error(f"{args.command} needs --pid")
    return args


if __name__ == "__main__":
    sys.exit(main())
