"""The gateway's composition root: one ASGI application and its background tasks.

Bare ASGI serves turns, which are the hot path; Starlette serves everything else. The background tasks write turns,
reload the engine table (on NOTIFY and every second), watch engines that have requests, maintain leases and abandoned
turns, record held time, end silent sessions, and show growing answers to the viewers of a group.
"""

import asyncio
import gc
import logging
import time
from collections.abc import Callable, MutableMapping
from functools import partial
from http import HTTPStatus
from typing import Any
from uuid import UUID

from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.batches.feed import BatchFeed
from seamlessflow.data_plane.config import Settings
from seamlessflow.data_plane.dialects.catalog import DIALECTS
from seamlessflow.data_plane.dialects.dialect import Dialect
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.gateways.endings import Endings
from seamlessflow.data_plane.gateways.membership import Membership
from seamlessflow.data_plane.groups.expiry import Expiry
from seamlessflow.data_plane.groups.external import ExternalSessions
from seamlessflow.data_plane.groups.feed import GroupFeed
from seamlessflow.data_plane.groups.finalization import GroupNews
from seamlessflow.data_plane.groups.outcomes import ExternalOutcomes, RunnerOutcomes
from seamlessflow.data_plane.live.progress_feed import ProgressFeed, Watched
from seamlessflow.data_plane.maintenance import Maintenance
from seamlessflow.data_plane.notifier import JobNotifier
from seamlessflow.data_plane.routes.count_tokens import COUNT_TOKENS_PATH, CountTokensRoute
from seamlessflow.data_plane.routes.forwarding import Forwarding, Route
from seamlessflow.data_plane.routes.gemini import (
    GEMINI_DIALECTS,
    MODELS,
    TOKENS,
    GeminiModelsRoute,
    GeminiTokensRoute,
    gemini_action,
)
from seamlessflow.data_plane.routes.http import (
    BodyBudget,
    Receive,
    Scope,
    Send,
    send_whole,
)
from seamlessflow.data_plane.routes.json_routes import JsonRoutes
from seamlessflow.data_plane.routes.placing import Placing
from seamlessflow.data_plane.routes.refusals import refuse, wrong_method
from seamlessflow.data_plane.routes.turns import TurnRoute
from seamlessflow.data_plane.serving.bounds import PacedRefusals, SessionBounds
from seamlessflow.data_plane.serving.planning import TurnPlanner
from seamlessflow.data_plane.serving.turn_gate import TurnEntry, TurnGate
from seamlessflow.data_plane.serving.turn_service import TurnService, TurnTimes
from seamlessflow.data_plane.store.connection import DATABASE_AWAY, database_away, pool_make
from seamlessflow.data_plane.store.gateways import SESSIONS_FAILED, SESSIONS_OVER
from seamlessflow.data_plane.store.turns.turn_store import PostgresTurns, TurnWriter
from seamlessflow.data_plane.turns.engines.client import EngineClient
from seamlessflow.data_plane.turns.engines.notices import ENGINES, notices_hear
from seamlessflow.data_plane.turns.engines.pool import EnginePool
from seamlessflow.data_plane.turns.engines.suspicions import SuspicionLog
from seamlessflow.data_plane.turns.engines.turn_news import TurnNews
from seamlessflow.data_plane.turns.engines.watch import EngineWatch
from seamlessflow.data_plane.turns.held_time import HeldTime
from seamlessflow.data_plane.turns.rendering.helpers import HelperLimits, PromptHelpers
from seamlessflow.data_plane.turns.rollout_manager import RolloutManager
from seamlessflow.data_plane.turns.trajectory_manager.job_loading import job_load
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry, RegistryLimits
from seamlessflow.runtime.extensions import extensions_installed
from seamlessflow.runtime.http.bodies import ClientGone
from seamlessflow.runtime.liveness import PATH as LIVEZ_PATH
from seamlessflow.runtime.liveness import Liveness
from seamlessflow.runtime.tasks import task_supervised
from seamlessflow.runtime.watchdog import Watchdog

log = logging.getLogger(__name__)

TRAINER_POOL_SIZE = 2
LEAVE_TIMEOUT_S = 2.0
NO_JOB = UUID(int=0)
GC_THRESHOLD = 50_000  # a turn's objects die young, and full collections would delay the slowest turns


MakeTurnRoute = Callable[[Dialect[Any]], TurnRoute]


def _bare_routes(
    turn_route: MakeTurnRoute, registry: Registry, bodies: BodyBudget, planner: TurnPlanner, entry: TurnEntry
) -> dict[str, Route]:
    """Return the routes below a session's URL, by path."""
    turns = {dialect.path: turn_route(dialect) for dialect in DIALECTS}
    return {**turns, COUNT_TOKENS_PATH: CountTokensRoute(registry, bodies, planner, entry)}


def _gemini_routes(
    turn_route: MakeTurnRoute, registry: Registry, bodies: BodyBudget, planner: TurnPlanner, entry: TurnEntry
) -> dict[str, Route]:
    """Return the routes of Google's API, by action."""
    turns = {action: turn_route(dialect) for action, dialect in GEMINI_DIALECTS.items()}
    return {
        **turns,
        TOKENS: GeminiTokensRoute(registry, bodies, planner, entry),
        MODELS: GeminiModelsRoute(registry),
    }


def _turn_entry(settings: Settings) -> TurnEntry:
    bounds = SessionBounds(settings.max_session_answers, settings.max_session_tokens)
    return TurnEntry(bounds, TurnGate(time.monotonic), PacedRefusals(time.monotonic))


def _turn_service(
    settings: Settings,
    registry: Registry,
    planner: TurnPlanner,
    bounds: SessionBounds,
    manager: RolloutManager,
    watched: Watched,
) -> TurnService:
    times = TurnTimes(settings.engine_wait_s, settings.keepalive_s, settings.retry_window_s)
    return TurnService(registry, planner, bounds, manager, times, watched.is_watched, time.monotonic)


def _prompt_helpers(settings: Settings) -> PromptHelpers:
    return PromptHelpers(
        HelperLimits(settings.num_render_helpers, settings.render_timeout_s, settings.render_memory_mb)
    )


class Gateway:
    """Starting → serving → stopping; the ASGI lifespan moves it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tasks: list[asyncio.Task[None]] = []
        self._watchdog = Watchdog("the gateway's event loop", limit_s=settings.watchdog_s)
        self._liveness = Liveness(self._watchdog, lambda: self._tasks)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def start(self) -> None:
        settings = self._settings
        self._watchdog.watch_loop(asyncio.get_running_loop())
        self._pool = pool_make(settings.database_url)
        # Trainers do not queue behind the bursts in which sessions end.
        self._trainer_pool = pool_make(settings.database_url, max_size=TRAINER_POOL_SIZE)
        await self._pool.open(wait=True)
        await self._trainer_pool.open(wait=True)
        self._client = EngineClient()
        engines = EnginePool(time.monotonic, settings.max_held_turns)
        name = settings.peer_url or settings.public_url
        self._membership = Membership(
            name,
            settings.public_url,
            demands=engines.demands,
            turns=engines.turns.report,
            paces=engines.paces_due,
            on_news=partial(engines.shares_set, name),
        )
        endings = Endings(self._pool, self._membership)
        held_time = HeldTime(self._pool, self._membership, time.monotonic)
        writer = TurnWriter(settings.database_url, engines.turns.num_now, engines.num_held)
        turns = PostgresTurns(self._pool, writer)
        limits = RegistryLimits(settings.max_live_sessions, settings.max_tree_bytes)
        load_job = partial(job_load, artifact_root=settings.artifact_root)
        registry = Registry(turns, held_time, limits, load_job, report_over=endings.announce)
        suspicions = SuspicionLog(self._pool)
        watch = EngineWatch(engines, self._client, time.monotonic, suspicions)
        manager = RolloutManager(engines, self._client, watch, time.monotonic)
        maintenance = Maintenance(settings, self._pool, registry, engines, watch, time.monotonic)
        openings, ready = JobNotifier(), JobNotifier()
        news = GroupNews(openings=openings, ready=ready)
        expiry = Expiry(self._pool, registry, news, time.monotonic)
        watched = Watched()
        bodies = BodyBudget(
            max_body_bytes=settings.max_body_bytes, max_total_bytes=settings.max_inflight_body_bytes
        )
        helpers = _prompt_helpers(settings)
        planner = TurnPlanner(helpers.prompt)
        entry = self._entry = _turn_entry(settings)
        service = _turn_service(settings, registry, planner, entry.bounds, manager, watched)

        def turn_route(dialect: Dialect[Any]) -> TurnRoute:
            return TurnRoute(dialect, registry, bodies, entry, service)

        self._bare = _bare_routes(turn_route, registry, bodies, planner, entry)
        self._gemini = _gemini_routes(turn_route, registry, bodies, planner, entry)
        self._rest = JsonRoutes(
            settings,
            registry,
            held_time,
            GroupFeed(settings, self._pool, registry, self._membership, openings=openings),
            RunnerOutcomes(self._pool, registry, news),
            BatchFeed(self._trainer_pool, registry, extensions_installed(), openings=openings, ready=ready),
            ExternalSessions(settings, self._pool, registry, self._membership),
            ExternalOutcomes(self._pool, registry, news),
            bodies,
        ).app()
        placing = Placing(settings.secret_key, self._pool, registry, self._membership)
        self._forwarding = Forwarding(placing, self._membership, bodies, self._route)
        await held_time.record()
        await maintenance.refresh()
        self._tasks = [
            task_supervised(writer.run(), name="writer"),
            task_supervised(maintenance.run(), name="maintenance"),
            task_supervised(held_time.run(), name="held time"),
            task_supervised(TurnNews(self._pool, self._membership, engines).run(), name="turn news"),
            task_supervised(expiry.run(), name="expiry"),
            task_supervised(endings.run(), name="endings"),
            task_supervised(self._listen(maintenance, openings, registry), name="listen"),
            task_supervised(watch.run(), name="watch"),
            task_supervised(suspicions.run(), name="suspicions"),
            *helpers.start(),
        ]
        if settings.events_url:
            feed = ProgressFeed(settings.events_url, registry, watched)
            self._tasks.append(task_supervised(feed.run(), name="progress"))
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD, 20, 50)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._leave()
        await self._forwarding.close()
        await self._client.close()
        await self._trainer_pool.close()
        await self._pool.close()
        self._watchdog.stop()

    async def _leave(self) -> None:
        """Leave the sessions to the other gateways. The last one keeps its epoch, so that its absence counts."""
        if not self._membership.has_peers:
            return
        try:
            async with self._pool.connection(timeout=LEAVE_TIMEOUT_S) as connection, connection.transaction():
                await self._membership.leave(connection)
        except DATABASE_AWAY as error:
            log.warning("the other gateways were not notified that this one stops: %s", str(error).strip())

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await self.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False

        async def tracked(message: MutableMapping[str, Any]) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        try:
            if scope["path"] == LIVEZ_PATH and scope["method"] == "GET":
                status, body = self._liveness.answer()
                await send_whole(tracked, body, status=status)
            else:
                await self._forwarding(scope, receive, tracked)
        except ClientGone:
            return
        except DATABASE_AWAY as error:
            log.warning("the database is unreachable: %s", str(error).strip())
            if not is_started:
                await refuse(send, scope, database_away())
        except ApiError as error:
            metrics.REFUSALS.labels(str(int(error.status))).inc()
            if error.status is HTTPStatus.UNAUTHORIZED:  # an agent whose session is gone may ask without end
                await self._entry.refusals.wait(NO_JOB)
            if not is_started:
                await refuse(send, scope, error)
        except Exception:
            log.exception("a request failed")
            if is_started:
                raise
            failed = ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "The gateway failed; its log has the cause.")
            await refuse(send, scope, failed)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request here."""
        action = gemini_action(scope)
        if action is not None:
            await self._gemini[action](scope, receive, send)
            return
        bare = self._bare.get(scope["path"])
        if bare is not None and scope["method"] != "POST":
            raise wrong_method(scope, "POST")
        await (bare or self._rest)(scope, receive, send)

    async def _listen(self, maintenance: Maintenance, openings: JobNotifier, registry: Registry) -> None:
        """Reload the engine table at each notification; a publication also lets groups begin.

        Close the sessions that another gateway says are over.
        """

        async def engines_heard(payload: str) -> None:
            try:
                openings.notify(UUID(payload))
            except ValueError:
                log.warning("a notification names no job: %r", payload)
            await maintenance.refresh()

        async def sessions_heard(payload: str, *, is_resumed: bool) -> None:
            for session_id in payload.split(","):
                registry.close_here(UUID(session_id), is_resumed=is_resumed)

        await notices_hear(
            self._settings.database_url,
            {
                ENGINES: engines_heard,
                SESSIONS_OVER: partial(sessions_heard, is_resumed=False),
                SESSIONS_FAILED: partial(sessions_heard, is_resumed=True),
            },
        )
