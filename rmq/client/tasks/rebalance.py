"""Who consumes which queues: a share for each member, worked out by each for itself.

Every 20 s, and at once when a broker or a route tells of a change, a member asks a broker who else
is in the group, deals the queues of each topic out by the group's strategy, gives up what is not
its own any longer and takes over what is. At most one such round runs at a time.

`share_of` and `changes` decide, and know no loop; `Rebalancer` is the task.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, final

import anyio

from rmq.client.core.consuming.group import group_members
from rmq.errors import ClientError, NoNameserverError, NoRouteError, ResponseError
from rmq.model.clock import system_ms
from rmq.model.names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmq.client.core.consuming.allocation import Strategy
    from rmq.client.core.consuming.config import PushConsumerConfig
    from rmq.client.core.consuming.subscription_set import SubscriptionSet
    from rmq.client.core.routes import TopicRoute
    from rmq.client.tasks.assignment import Assignment
    from rmq.client.tasks.client import Client
    from rmq.model.queues import MessageQueue

logger = logging.getLogger(__name__)

SOON_S: Final = 0.25
SOON_S_MAX: Final = 3.0
"""When the next round is due if a queue could not be taken over: its lock may be free by then. It
is tried soon, then less and less often.
"""
BEAT_S_MAX: Final = 3.0
"""How long taking over waits for brokers to hear of it."""


# --- decisions -------------------------------------------------------------------------------


class Change(NamedTuple):
    """What a round makes of one topic."""

    given_up: tuple[MessageQueue, ...]
    taken_over: tuple[MessageQueue, ...]


def share_of(
    strategy: Strategy,
    group: str,
    client_id: str,
    queues: Sequence[MessageQueue],
    members: Sequence[str],
) -> frozenset[MessageQueue] | None:
    """Return the queues that are a client's; None if the strategy failed, with a word in the log.

    A strategy may be the application's own. Queues that it makes up are not taken.
    """
    try:
        share = frozenset(strategy(group, client_id, queues, members))
    except Exception:
        logger.exception("group %s: strategy %r failed; queues stay as they are", group, strategy)
        return None
    unknown = share - frozenset(queues)
    if unknown:
        logger.warning(
            "group %s: strategy %r gave out queues that are not there: %s",
            group,
            strategy,
            sorted(unknown),
        )
    return share - unknown


def changes(
    held: Iterable[MessageQueue],
    share: frozenset[MessageQueue],
    stuck: Iterable[MessageQueue] = (),
) -> Change:
    """Return what to give up and what to take over.

    `stuck` are held queues that are restarted because they were not pulled for long.
    """
    held_now = frozenset(held)
    restarted = frozenset(stuck) & held_now & share
    return Change(
        given_up=tuple(sorted((held_now - share) | restarted)),
        taken_over=tuple(sorted((share - held_now) | restarted)),
    )


# --- the task --------------------------------------------------------------------------------


class _Found(NamedTuple):
    """A queue that can be taken over."""

    queue: MessageQueue
    offset: int
    locked_at: float | None


@final
class Rebalancer:
    """Deals queues out, again and again."""

    def __init__(
        self,
        client: Client,
        config: PushConsumerConfig,
        subscriptions: SubscriptionSet,
        assignment: Assignment,
    ) -> None:
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self._assignment = assignment
        self._needs_lock = config.needs_lock
        self._wanted = anyio.Event()
        self._is_incomplete = False
        self.rounds = 0
        """How many rounds there were."""
        self._missing: set[str] = set()
        """Topics that no broker has, which has been said."""

    def wake(self) -> None:
        """Start the next round now: members, routes or subscriptions have changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Deal queues out as long as this runs. The first round is due at once."""
        soon_s = SOON_S
        while True:
            self._wanted = anyio.Event()
            await self._round()
            self.rounds += 1
            pause_s = self._config.rebalance_s
            if self._is_incomplete:
                pause_s = min(pause_s, soon_s)
                soon_s = min(2 * soon_s, SOON_S_MAX)
            else:
                soon_s = SOON_S
            with anyio.move_on_after(pause_s):
                await self._wanted.wait()

    async def _round(self) -> None:
        self._is_incomplete = False
        changed: list[str] = []
        found: list[_Found] = []
        for topic in self._subscriptions.topics:
            change = await self._change(topic)
            if change is None:
                continue
            if change.given_up:
                logger.info("group %s gives up %s", self._config.group, list(change.given_up))
                await self._assignment.give_up(change.given_up)
            begun = await self._prepare(change.taken_over)
            if change.given_up or begun:
                changed.append(topic)
            found += begun
        await self._give_up_unsubscribed()
        if changed:
            await self._tell(changed)
        for queue, offset, locked_at in found:
            # Topics are given up at any time, queues only here.
            if queue.topic in self._subscriptions and queue not in self._assignment:
                logger.info(
                    "group %s takes over %s at offset %d", self._config.group, queue, offset
                )
                self._assignment.begin(queue, offset, locked_at)

    async def _give_up_unsubscribed(self) -> None:
        await self._assignment.give_up(
            [it.queue for it in self._assignment if it.queue.topic not in self._subscriptions]
        )

    async def _tell(self, topics: Sequence[str]) -> None:
        """Send the subscriptions to brokers again, before the first pull."""
        now_ms = system_ms()
        for topic in topics:
            self._subscriptions.bump(topic, now_ms)
        with anyio.move_on_after(BEAT_S_MAX) as scope:
            await self._client.beat()
        if scope.cancelled_caught:
            self._client.beat_soon()

    async def _change(self, topic: str) -> Change | None:
        """Return what to do about a topic; None if that cannot be known now."""
        route = await self._route(topic)
        if route is None:
            return None
        share: frozenset[MessageQueue] | None
        if self._config.is_broadcast:
            share = frozenset(route.readable)
        else:
            members = await self._members(route)
            if members is None:
                return None
            share = share_of(
                self._config.strategy,
                self._config.group,
                self._client.client_id,
                route.readable,
                members,
            )
        if share is None:
            return None
        now = anyio.current_time()
        held = self._assignment.of_topic(topic)
        stuck = [it.queue for it in held if it.process.is_pull_overdue(now)]
        if stuck:
            logger.warning("%s were not pulled for long and are restarted", stuck)
        return changes((it.queue for it in held), share, stuck)

    async def _route(self, topic: str) -> TopicRoute | None:
        known = self._client.routes.get(topic)
        if known is not None:
            self._missing.discard(topic)
            return known
        try:
            return await self._client.refresh_route(topic)
        except NoRouteError as exc:
            self.is_missing(topic, exc)
        except ClientError as exc:
            logger.warning("the route of %s is not known: %s", topic, exc)
        return None

    def is_missing(self, topic: str, error: NoRouteError) -> None:
        """Say, once, that a topic is not there. It is asked for again and again until it is."""
        # A group's retry topic is there once brokers have heard of the group.
        is_usual = topic.startswith(RETRY_PREFIX) or topic in self._missing
        self._missing.add(topic)
        logger.log(
            logging.DEBUG if is_usual else logging.WARNING,
            "group %s waits for its topic: %s",
            self._config.group,
            error,
        )

    async def _members(self, route: TopicRoute) -> tuple[str, ...] | None:
        """Return who is in the group; None if no broker says so."""
        client, group = self._client, self._config.group
        try:
            members = await client.run(group_members(route, group))
            if members is None or client.client_id not in members:
                # The broker was started a moment ago, or forgot: let it know.
                with anyio.move_on_after(BEAT_S_MAX):
                    await client.beat()
                members = await client.run(group_members(route, group))
        except ClientError as exc:
            logger.warning("group %s: cannot get its members: %s", group, exc)
            self._is_incomplete = True
            return None
        if members is None:
            self._is_incomplete = True
        return members

    async def _prepare(self, queues: Sequence[MessageQueue]) -> list[_Found]:
        """Return those of the queues that can be taken over, and where to begin."""
        found: list[_Found] = []
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            # One that is still on its way out is taken over by the next round.
            if queue in self._assignment:
                self._is_incomplete = True
            else:
                by_broker.setdefault(queue.broker_name, []).append(queue)
        if by_broker:
            async with anyio.create_task_group() as nursery:
                for queues_of_broker in by_broker.values():
                    nursery.start_soon(self._prepare_at, queues_of_broker, found)
        return sorted(found)

    async def _prepare_at(self, queues: Sequence[MessageQueue], found: list[_Found]) -> None:
        """Add those queues of one broker that can be taken over."""
        for queue in queues:
            locked_at: float | None = None
            try:
                if self._needs_lock:
                    locked_at = await self._assignment.lock(queue)
                    if locked_at is None:
                        logger.info("%s is still locked, or cannot be", queue)
                        self._is_incomplete = True
                        continue
                offset = await self._assignment.start_offset(queue)
            except ClientError as exc:
                logger.warning("cannot get the start offset of %s: %s", queue, exc)
                self._is_incomplete = True
                if not isinstance(exc, ResponseError | NoNameserverError):
                    # The broker's other queues would fail as well, each after its time.
                    return
                continue
            found.append(_Found(queue, offset, locked_at))
