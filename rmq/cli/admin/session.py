"""The cluster as admin commands meet it: all brokers are asked at once.

A command that reads prints what it got; brokers that did not answer are named on standard error, in
JSON under `missing`, and make the exit code 1.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rmq.cli.common.client_options import client_config
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.shown import shown
from rmq.cli.common.tables import print_json
from rmq.cli.common.usage import UsageError
from rmq.client.blocking.admin import BlockingAdmin
from rmq.client.core.admin.targets import (
    Failure,
    Tried,
    cluster_groups,
    failed,
    find_brokers,
    groups_of,
    read_each,
    who,
)
from rmq.client.core.flows import Ask
from rmq.errors import BrokersFailedError, ClientError, RmqError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rmq.client.core.admin.targets import Group
    from rmq.client.core.flows import Answer, Flow, Step
    from rmq.client.core.nameservers import Nameservers
    from rmq.client.core.routes import Address

T = TypeVar("T")
K = TypeVar("K")

AT_ONCE: Final = 64
"""Requests under way to a cluster: more only wait at the brokers."""


class NothingFoundError(RmqError):
    """What was asked for is not there, as far as all brokers know."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


@contextmanager
def open_cluster(args: Namespace) -> Iterator[Cluster]:
    """Give the cluster that a command line names, for the length of a block."""
    config = replace(
        client_config(args, os.environ),
        request_timeout_s=args.timeout,
        connect_timeout_s=args.timeout,
    )
    with BlockingAdmin(config) as admin:
        yield Cluster(admin, args.timeout)


class Cluster:
    """Runs flows, one or many side by side, none of which waits longer than it may."""

    def __init__(self, admin: BlockingAdmin, timeout_s: float) -> None:
        self.admin = admin
        self._timeout_s = timeout_s

    @property
    def nameservers(self) -> Nameservers:
        return self.admin.client.nameservers

    def run(self, flow: Flow[T]) -> T:
        """Run one flow."""
        return self.admin.run(_within(flow, self._timeout_s))

    def run_all(self, flows: Mapping[K, Flow[T]]) -> tuple[dict[K, T], dict[K, ClientError]]:
        """Run flows side by side; return their results, and what others failed with."""
        client = self.admin.client
        results: dict[K, T] = {}
        errors: dict[K, ClientError] = {}
        waiting = list(flows.items())
        while waiting:
            some, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
            tasks = [(key, client.start(_within(flow, self._timeout_s))) for key, flow in some]
            for key, task in tasks:
                try:
                    results[key] = client.wait(task)
                except ClientError as exc:
                    errors[key] = exc
        return results, errors

    def read_each(
        self, what: str, groups: Iterable[Group], call: Callable[[Address], Flow[T]]
    ) -> Tried[T]:
        """Ask one broker of each name, all at once; a slave if a master does not answer.

        Raises `BrokersFailedError` if none answers.
        """
        reads = self.nameservers.slave_reads
        by_name = {group[0].broker_name or group[0].address: group for group in groups}
        results, errors = self.run_all(
            {name: read_each(what, [group], call, reads) for name, group in by_name.items()}
        )
        answers = [
            answer for name in by_name if name in results for answer in results[name].answers
        ]
        failures = [Failure(by_name[name][0], _cause(error)) for name, error in errors.items()]
        if failures and not answers:
            raise failed(what, failures)
        return Tried(tuple(answers), tuple(failures))

    def groups(self, *, cluster: str | None = None, broker: str | None = None) -> list[Group]:
        """Return the brokers of a cluster, of a name or of all clusters, by name."""
        if broker is not None:
            if cluster is not None:
                raise UsageError("--broker names one broker: leave out --cluster")
            return [self.run(find_brokers(self.nameservers, broker))]
        return cluster_groups(self.admin.cluster_info(), cluster)

    def groups_of_topic(self, topic: str) -> list[Group]:
        """Return the brokers of a topic, by name."""
        return groups_of(self.run(self.nameservers.route(topic)).brokers)


def _cause(error: ClientError) -> ClientError:
    return error.failures[0][1] if isinstance(error, BrokersFailedError) else error


def _within(flow: Flow[T], timeout_s: float) -> Flow[T]:
    """Run a flow whose requests wait no longer than a time, whatever they ask for."""
    given: Answer | None = None
    try:
        step: Step = next(flow)
        while True:
            if isinstance(step, Ask) and (step.timeout_s is None or step.timeout_s > timeout_s):
                step = step._replace(timeout_s=timeout_s)
            try:
                given = yield step
            except ClientError as exc:
                step = flow.throw(exc)
            else:
                step = flow.send(given)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        flow.close()


# --- what is printed --------------------------------------------------------------------------


def missing_json(failures: Iterable[Failure]) -> list[dict[str, str]]:
    """Return who did not answer, for scripts."""
    return [
        {
            "broker": failure.broker.broker_name,
            "address": failure.broker.address,
            "error": failure.error.text,
        }
        for failure in failures
    ]


def tell_missing(failures: Iterable[Failure]) -> int:
    """Say who did not answer, and return the exit code that belongs to it."""
    code = ExitCode.OK
    for failure in failures:
        code = ExitCode.FAILURE
        error = failure.error
        print(f"rmq: missing: {who(failure.broker)}: {shown(error.text)}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
    return code


def print_found(
    args: Namespace,
    found: dict[str, Any],
    show: Callable[[], None],
    failures: Iterable[Failure] = (),
) -> int:
    """Print a result as JSON or for people; return the exit code."""
    failures = list(failures)
    if args.json:
        print_json(found | {"missing": missing_json(failures)})
    else:
        show()
    return tell_missing(failures)


def confirmed(args: Namespace, question: str) -> bool:
    """Ask whether to go on, unless told not to; raise `UsageError` without a terminal."""
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask on; --yes does it without asking")
    sys.stdout.flush()
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
