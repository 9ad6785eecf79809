"""Who may do what: roles, scopes, and what a new token may be."""

from datetime import UTC, datetime, timedelta

import pytest

from seamlessflow.core.access.minting import Minter, MintingRefused, expiry_granted, scopes_granted
from seamlessflow.core.access.operations import (
    RULES,
    Operation,
    ProjectRole,
    Scope,
    operator_refusal,
    role_refusal,
    roles_of,
    scope_refusal,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PERSON = Minter(is_operator=False, is_project_token=False)
OPERATOR = Minter(is_operator=True, is_project_token=False)


@pytest.mark.parametrize("operation", Operation)
def test_a_higher_role_may_do_everything_that_a_lower_one_may(operation: Operation) -> None:
    for is_own in (False, True):
        answers = [role_refusal(operation, role, is_own=is_own) is None for role in ProjectRole]
        assert answers == sorted(answers)


@pytest.mark.parametrize("operation", Operation)
def test_a_scope_allows_only_its_own_operations(operation: Operation) -> None:
    needed = RULES[operation].scope
    assert scope_refusal(operation, None) is None
    assert scope_refusal(operation, frozenset(Scope)) is None
    if needed is not None:
        assert "needs the scope" in (scope_refusal(operation, frozenset(Scope) - {needed}) or "")


def test_members_edit_what_they_created_and_owners_everything() -> None:
    assert role_refusal(Operation.JOB_EDIT, ProjectRole.MEMBER) is not None
    assert role_refusal(Operation.JOB_EDIT, ProjectRole.MEMBER, is_own=True) is None
    assert role_refusal(Operation.JOB_EDIT, ProjectRole.OWNER) is None
    assert role_refusal(Operation.JOB_EDIT, None, is_own=True) is not None
    assert roles_of(Operation.SESSION_OPEN) == (ProjectRole.MEMBER, ProjectRole.OWNER)


def test_only_operators_edit_machines() -> None:
    assert operator_refusal(Operation.MACHINE_EDIT, is_operator=True) is None
    assert "only operators" in (operator_refusal(Operation.MACHINE_EDIT, is_operator=False) or "")


def test_a_token_never_creates_one_that_may_do_more() -> None:
    minter = Minter(is_operator=True, is_project_token=True, scopes={Scope.ADMIN, Scope.READ})

    assert scopes_granted(None, minter, is_installation=False) == {Scope.READ}
    assert scopes_granted({Scope.ADMIN}, minter, is_installation=False) == {Scope.ADMIN}
    for scope in (Scope.SUBMIT, Scope.SESSIONS, Scope.OPERATE):
        with pytest.raises(MintingRefused, match="accepted: admin, read") as refused:
            scopes_granted({scope}, minter, is_installation=False)
        assert refused.value.is_excess
    with pytest.raises(MintingRefused, match="only operators"):
        scopes_granted({Scope.READ}, minter, is_installation=True)


def test_the_operate_scope_is_for_the_installation_and_its_operators() -> None:
    assert scopes_granted({Scope.OPERATE}, OPERATOR, is_installation=True) == {Scope.OPERATE}
    for minter, is_installation in ((OPERATOR, False), (PERSON, True)):
        with pytest.raises(MintingRefused):
            scopes_granted({Scope.OPERATE}, minter, is_installation=is_installation)
    with pytest.raises(MintingRefused, match="at least one"):
        scopes_granted((), PERSON, is_installation=False)


def test_a_token_never_outlives_the_one_that_created_it() -> None:
    minter = Minter(False, is_project_token=True, expires_at=NOW + timedelta(days=10))

    assert expiry_granted(None, minter, now=NOW) == NOW + timedelta(days=10)
    assert expiry_granted(9, minter, now=NOW) == NOW + timedelta(days=9)
    with pytest.raises(MintingRefused, match="up to 10"):
        expiry_granted(11, minter, now=NOW)
    assert expiry_granted(None, PERSON, now=NOW) == NOW + timedelta(days=90)
    for days in (0, 366, -1):
        with pytest.raises(MintingRefused, match="1 to 365"):
            expiry_granted(days, PERSON, now=NOW)
