"""Reads a topic with the C++ client: `cpp_reader.py NAMESERVER TOPIC` prints a body on each line.

A process of its own, for the library keeps what it knows as long as its process lives.
"""

from __future__ import annotations

import importlib
import sys
from base64 import b64encode


def main(nameserver: str, topic: str) -> int:
    # The library has no types.
    consumer = importlib.import_module("rocketmq.client").PullConsumer("cpp-readers")
    consumer.set_namesrv_addr(nameserver)
    consumer.start()
    for message in consumer.pull(topic, "*", 32):
        sys.stdout.write(f"body {b64encode(message.body).decode()}\n")
    consumer.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
