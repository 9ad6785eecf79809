"""Every route of the web process and the gateway, role by role and scope by scope, against the table of operations.

The routes come from the resolvers themselves, so a new route without an operation or a row fails here.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from psycopg import AsyncConnection

from seamlessflow.control_plane.accounts.models import Membership, User
from seamlessflow.control_plane.accounts.services.people import api_token_create
from seamlessflow.control_plane.cluster.models import Machine, PoolGrant
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.core.access.operations import (
    RULES,
    Operation,
    ProjectRole,
    Scope,
    operator_refusal,
    role_refusal,
    scope_refusal,
    table_lines,
)
from seamlessflow.core.access.routes import ADMIN_SITE, GATEWAY_ROUTES, WEB_CALLERS, Caller
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.dialects.catalog import DIALECTS
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.routes.count_tokens import COUNT_TOKENS_PATH
from seamlessflow.data_plane.routes.gemini import gemini_action, is_of_gemini
from seamlessflow.data_plane.routes.json_routes import JsonRoutes
from seamlessflow.data_plane.store.tokens import token_projects
from tests.fixtures.control_plane import Cast, phase_make, worker_make
from tests.fixtures.gateway_world import GatewayWorld
from tests.fixtures.repository import ROOT
from tests.fixtures.web_routes import operations_declared, routes_found
from tests.integration.control_plane.common.test_control_borders import group_make

WHERE = "each needs a row in platform/seamlessflow/core/access/routes.py, and each row a route"
ARGUMENT = re.compile(r"<(?:\w+:)?(\w+)>")
NOT_STAFF_ONLY = ("admin/login/", "admin/logout/", "admin/jsi18n/")
ROLES: tuple[ProjectRole | None, ...] = (None, *ProjectRole)


def test_every_route_of_the_web_has_an_operation_or_a_row() -> None:
    declared = operations_declared()
    undeclared = sorted(key for key, operation in declared.items() if operation is None)
    routes = {route for route, _ in routes_found() if not route.startswith(ADMIN_SITE)}

    assert not undeclared, f"{undeclared}: declare the operation of each handler with `endpoint`"
    assert routes - {route for _, route in declared} == {route for _, route in WEB_CALLERS}, WHERE


def test_every_route_of_the_gateway_has_a_row_and_every_row_a_route() -> None:
    nothing: Any = None
    app = JsonRoutes(*[nothing] * (JsonRoutes.__init__.__code__.co_argcount - 1)).app()
    served = {
        (method, route.path.replace(":path", ""))  # type: ignore[attr-defined]
        for route in app.routes
        for method in (route.methods or ())  # type: ignore[attr-defined]
        if method != "HEAD"
    } | {("POST", path) for path in (*(one.path for one in DIALECTS), COUNT_TOKENS_PATH)}
    # Google's API names what is asked behind a colon, so its paths are matched apart.
    served |= {
        (method, path)
        for method, path in GATEWAY_ROUTES
        if is_of_gemini(path) and gemini_action({"method": method, "path": path.replace("{model}", "x")})
    }

    assert served <= set(GATEWAY_ROUTES), f"no row for {sorted(served - set(GATEWAY_ROUTES))}: {WHERE}"
    assert set(GATEWAY_ROUTES) <= served, f"rows without a route: {sorted(set(GATEWAY_ROUTES) - served)}"


@dataclass(frozen=True, slots=True)
class Asker:
    """One credential. `scopes` is None for a browser session."""

    name: str
    user: User
    role: ProjectRole | None
    is_operator: bool
    scopes: frozenset[Scope] | None
    secret: str = ""

    def refused(self, operation: Operation, *, is_own: bool) -> str | None:
        return (
            operator_refusal(operation, is_operator=self.is_operator)
            if RULES[operation].is_operators
            else scope_refusal(operation, self.scopes) or role_refusal(operation, self.role, is_own=is_own)
        )


@dataclass(frozen=True, slots=True)
class World:
    """One object of each kind in one project; what `maker` created and what `other` created."""

    arguments: Mapping[str, str]
    others: Mapping[str, str]  # made by somebody else than any asker

    def address(self, route: str, *, is_own: bool) -> str:
        values = dict(self.arguments) | ({} if is_own else dict(self.others))
        missing = set(ARGUMENT.findall(route)) - set(values)
        assert not missing, f"{route}: give the world of this test a value for {missing}"
        return "/" + ARGUMENT.sub(lambda name: values[name[1]], route)


def world_of(cast: Cast, maker: User) -> World:
    """Return the names of objects in addresses; jobs and tokens once as `maker`'s own and once as
    those of the cast's owner."""
    job, other = cast.job(is_running=True), cast.job(name="another")
    type(job).objects.filter(id=job.id).update(created_by=maker)
    machine = worker_make("alpha", "rollout").machine
    Machine.objects.filter(id=machine.id).update(pool="private")
    PoolGrant.objects.create(pool="private", project=cast.owner.project)
    phase = phase_make(job, machine, Role.ROLLOUT)
    group, session = group_make(job)
    own, _ = api_token_create(user=maker, project=cast.owner.project, name="own", author="test")
    another = cast.owner.user.tokens.get(kind="api", name="test")
    arguments = {
        "job_id": show_id(IdKind.JOB, job.id),
        "machine_id": show_id(IdKind.MACHINE, machine.id),
        "phase_id": show_id(IdKind.PHASE, Phase.objects.get(id=phase.id).id),
        "group_id": show_id(IdKind.GROUP, group.id),
        "session_id": show_id(IdKind.SESSION, session.id),
        "token_id": show_id(IdKind.TOKEN, own.id),
        "index": "0",
        "version": "0",
        "table": "nodes.parquet",
        "slug": cast.owner.project.slug,
        "pool": machine.pool,
        "username": maker.username,
    }
    others = {"job_id": show_id(IdKind.JOB, other.id), "token_id": show_id(IdKind.TOKEN, another.id)}
    return World(arguments, others)


class Askers:
    """The credentials of one person, each created once."""

    def __init__(self, cast: Cast, user: User, role: ProjectRole | None) -> None:
        self._cast, self._user, self._role = cast, user, role
        self._made: dict[tuple[bool, frozenset[Scope]], Asker] = {}
        self._browser, self._program = Client(), Client()
        self._browser.force_login(user)

    def for_operation(self, operation: Operation) -> Iterator[Asker]:
        """Return a session, a token with the one scope that is needed, and one with all others; for
        staff, the same for the installation."""
        yield Asker("session", self._user, self._role, is_operator=self._user.is_staff, scopes=None)
        scope = RULES[operation].scope
        needed = frozenset({scope}) if scope is not None else frozenset()
        for is_installation in (False, True) if self._user.is_staff else (False,):
            possible = frozenset(Scope) - (frozenset() if is_installation else {Scope.OPERATE})
            yield self._token(is_installation, needed & possible)
            yield self._token(is_installation, possible - needed)

    def status_of(self, method: str, path: str, asker: Asker) -> tuple[int, bytes]:
        """Return the status of the answer and undo what the request changed."""
        headers = {"If-Match": '"1"'}
        if asker.scopes is not None:
            headers["Authorization"] = f"Bearer {asker.secret}"
        client = self._browser if asker.scopes is None else self._program
        with transaction.atomic():
            response: HttpResponse = client.generic(  # type: ignore[assignment]
                method, path, b'{"name": "x", "scopes": ["admin"]}' if path.endswith("/tokens") else b"{}",
                content_type="application/json", headers=headers,
            )  # fmt: skip
            transaction.set_rollback(True)
        return response.status_code, getattr(response, "content", b"")[:200]

    def _token(self, is_installation: bool, scopes: frozenset[Scope]) -> Asker:
        key = (is_installation, scopes)
        if key not in self._made:
            project = None if is_installation else self._cast.owner.project
            _, secret = api_token_create(
                user=self._user, project=project, name="asker", author="test", scopes=scopes
            )
            is_operator = self._user.is_staff and is_installation and Scope.OPERATE in scopes
            name = f"token of {project or 'the installation'} with {sorted(scopes)}"
            self._made[key] = Asker(name, self._user, self._role, is_operator, scopes, secret)
        return self._made[key]


@pytest.mark.parametrize("role", ROLES, ids=str)
def test_each_role_and_scope_is_admitted_where_the_table_says(cast: Cast, role: ProjectRole | None) -> None:
    faults = []
    for is_staff in (False, True):
        user = User.objects.create_user(username=f"asker{is_staff}", is_staff=is_staff)
        if role is not None:
            Membership.objects.create(user=user, project=cast.owner.project, role=role.value)
        with transaction.atomic():
            faults += list(walk(world_of(cast, maker=user), Askers(cast, user, role), role))
            transaction.set_rollback(True)
    assert not faults, "\n".join(faults)


def walk(world: World, askers: Askers, role: ProjectRole | None) -> Iterator[str]:
    for (method, route), operation in operations_declared().items():
        assert operation is not None
        has_owner = RULES[operation].own is not None and "<" in route
        for asker in askers.for_operation(operation):
            for is_own in (True, False) if has_owner else (False,):
                refused = asker.refused(operation, is_own=is_own)
                status, said = askers.status_of(method, world.address(route, is_own=is_own), asker)
                if fault := fault_of(status, refused, asker, operation, is_listed="<" not in route):
                    yield f"{asker.name} of {role}: {method} {route} (own: {is_own}) {fault}: {status} {said!r}"


def fault_of(
    status: int, refused: str | None, asker: Asker, operation: Operation, *, is_listed: bool
) -> str | None:
    """Return what is wrong with an answer in one phrase, or nothing."""
    if status in (401, 405, 500):
        return "was not asked at all"
    if asker.role is None and refused is not None:
        # Who is no member is not told that the thing is there; of lists they see what is theirs: nothing.
        is_shown = is_listed and operation in (Operation.PROJECT_READ, Operation.TOKEN_LIST)
        return None if status in (400, 403, 404) or (is_shown and status == 200) else "let a stranger in"
    if asker.role is None and RULES[operation].scope is Scope.READ and not is_listed:
        return None  # which machines a stranger sees is for the grants of pools
    if refused is not None:
        return None if status == 403 else f"should be refused ({refused})"
    return "should be let in" if status == 403 else None


@pytest.mark.parametrize("role", [None, ProjectRole.OWNER], ids=str)
def test_the_admin_site_is_for_staff(cast: Cast, role: ProjectRole | None) -> None:
    client = Client()
    if role is not None:
        client.force_login(cast.outsider.user)
    for route, _ in routes_found():
        if not route.startswith(ADMIN_SITE) or route in NOT_STAFF_ONLY:
            continue
        path = "/" + re.sub(r"\(\?P<\w+>[^)]*\)\$?|<[^>]*>", "1", route).replace("^", "").replace("$", "")
        response = client.get(path)
        assert response.status_code in (301, 302, 404), path
        if response.status_code != 404:
            where = response["Location"]
            assert "login" in where or where.rstrip("/") == path.rstrip("/"), (path, where)


def test_routes_that_are_not_for_people_admit_nobody(cast: Cast) -> None:
    secrets = (cast.operator.secret, cast.owner.secret, "")
    for (method, route), entry in WEB_CALLERS.items():
        if entry in (Caller.JOIN, Caller.MACHINE, Caller.PHASE):
            path = "/" + ARGUMENT.sub(str(cast.owner.project.id), route)
            for secret in secrets:
                answer = Client().generic(method, path, b"{}", headers={"Authorization": f"Bearer {secret}"})
                assert answer.status_code in (401, 403), (route, answer.status_code)


@pytest.fixture
async def connection(migrated_database_url: str) -> Any:
    async with await AsyncConnection.connect(migrated_database_url, autocommit=True) as opened:
        yield opened


async def test_the_gateway_obeys_the_same_table(
    connection: AsyncConnection[Any], migrated_database_url: str, tmp_path: Path
) -> None:
    world = GatewayWorld(migrated_database_url, tmp_path)
    world.make_job()
    world.make_token()
    for role in ROLES:
        for scopes in (
            [Scope.SESSIONS],
            [scope for scope in Scope if scope is not Scope.SESSIONS],
            list(Scope),
        ):
            for is_installation in (False, True):
                kept = [scope for scope in scopes if is_installation or scope is not Scope.OPERATE]
                await connection.execute("DELETE FROM accounts_membership")
                if role is not None:
                    world.insert(
                        "accounts_membership", id=UUID(int=1), user_id=world.user_id,
                        project_id=world.project_id, role=role.value,
                    )  # fmt: skip
                await connection.execute(
                    "UPDATE accounts_token SET scopes = %s, project_id = %s",
                    [[scope.value for scope in kept], None if is_installation else world.project_id],
                )
                refused = scope_refusal(Operation.SESSION_OPEN, kept) or role_refusal(
                    Operation.SESSION_OPEN, role
                )
                assert await may_open(connection, world) == (refused is None), (role, kept, is_installation)


async def may_open(connection: AsyncConnection[Any], world: GatewayWorld) -> bool:
    try:
        return world.project_id in await token_projects(connection, world.api_token)
    except ApiError as error:
        return int(error.status) != 403  # 401 would be a fault of the test's own token


def test_the_document_contains_the_table() -> None:
    document = (ROOT / "docs" / "operations.md").read_text()
    table = "\n".join(table_lines())

    assert table in document, f"docs/operations.md should hold this table:\n{table}"
