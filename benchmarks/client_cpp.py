"""The C++ binding (PyPI `rocketmq`) as a client process: `python -m benchmarks.client_cpp`.

It waits in C without the interpreter's lock, so that threads help it. It has no batch listener, and
its batches are no good: a stock broker stores each as one message, whose body is what was sent.
"""

from __future__ import annotations

import importlib
import threading
import time
from typing import TYPE_CHECKING, Any

from benchmarks.client_work import Load, Meter, serve

if TYPE_CHECKING:
    from benchmarks.broker_load.figures import Outcome

# The library has no types.
rocketmq: Any = importlib.import_module("rocketmq.client")


def _producer(load: Load) -> Any:  # noqa: ANN401
    producer = rocketmq.Producer(load.group)
    producer.set_namesrv_addr(load.nameserver)
    producer.start()
    # Route and connection are there before the time runs.
    producer.send_sync(_message(load))
    return producer


def _message(load: Load) -> Any:  # noqa: ANN401
    message = rocketmq.Message(load.topic)
    message.set_body(b"x" * load.body_bytes)
    return message


def send(load: Load) -> Outcome:
    """Send from so many threads."""
    producer = _producer(load)
    meter = Meter()

    def repeat() -> None:
        since_s = time.perf_counter()
        try:
            while since_s < end_s:
                producer.send_sync(_message(load))
                now_s = time.perf_counter()
                meter.latencies_s.append(now_s - since_s)
                since_s = now_s
        except Exception as exc:  # noqa: BLE001 - told to who asked
            meter.failed(exc)

    threads = [threading.Thread(target=repeat) for _ in range(load.at_once)]
    end_s = meter.start() + load.seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outcome = meter.stop(len(meter.latencies_s))
    producer.shutdown()
    return outcome


def push(load: Load) -> Outcome:
    """Consume one message after the other; the time runs from the first one."""
    meter = Meter()
    count = body_bytes = 0
    first, done = threading.Event(), threading.Event()
    lock = threading.Lock()

    def take(message: Any) -> None:  # noqa: ANN401
        nonlocal count, body_bytes
        size = len(message.body)
        with lock:
            if not count:
                meter.start()
                first.set()
            count += 1
            body_bytes += size
        if count >= load.messages:
            done.set()

    consumer = rocketmq.PushConsumer(load.group)
    consumer.set_namesrv_addr(load.nameserver)
    consumer.subscribe(load.topic, take)
    consumer.start()
    try:
        if not first.wait(30):
            raise TimeoutError("no message came")
        done.wait(load.seconds)
        return meter.stop(count)
    finally:
        consumer.shutdown()


if __name__ == "__main__":
    serve({"send": send, "push": push})
