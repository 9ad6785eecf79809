"""Operations on an installation and who may perform each: the single table of role, scope and operation.

Takes the caller's role in a project, whether the caller is an operator of the installation, the scopes of the caller's
token (a browser session has no such limit), and whether the object is the caller's own. Returns None, or one sentence
that says why the operation is refused. Invariant: a token never allows more than its owner may do. It only restricts,
and both role and scope must allow an operation.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What an API token may be used for. Scopes do not include one another."""

    READ = "read"
    SUBMIT = "submit"
    SESSIONS = "sessions"
    OPERATE = "operate"
    ADMIN = "admin"


class ProjectRole(StrEnum):
    """The role of a person in a project, from least to most powerful."""

    VIEWER = "viewer"
    MEMBER = "member"
    OWNER = "owner"

    def includes(self, least: "ProjectRole") -> bool:
        return _ORDER.index(self) >= _ORDER.index(least)


_ORDER = tuple(ProjectRole)


class Operation(StrEnum):
    ABOUT_ME = "about me"
    PROJECT_READ = "read the project"
    TOKEN_LIST = "list tokens"
    UPLOAD = "upload files"
    JOB_SUBMIT = "submit jobs"
    JOB_EDIT = "cancel, pause, resume or edit jobs"
    SESSION_OPEN = "open, reward and close external sessions"
    TOKEN_CREATE = "create tokens"
    TOKEN_REVOKE = "revoke tokens"
    MEMBER_EDIT = "edit members"
    DELETION_ASK = "ask how much a deletion would free"
    STORED_DELETE = "delete jobs, their data, and uploads"
    RETENTION_EDIT = "edit the retention of a project"
    MACHINE_READ = "read machines"
    MACHINE_EDIT = "register, edit or take over machines"
    SHARE_EDIT = "edit weights and quotas, grant pools"


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may perform one operation.

    `anyone`: the least role that may perform it on any object of the project. `own`: the least role
    that may perform it on its own objects. An operation with neither needs no project.
    `is_operators`: only operators may perform it.
    """

    scope: Scope | None
    anyone: ProjectRole | None = None
    own: ProjectRole | None = None
    is_operators: bool = False


RULES: Mapping[Operation, Rule] = {
    Operation.ABOUT_ME: Rule(None),
    Operation.PROJECT_READ: Rule(Scope.READ, anyone=ProjectRole.VIEWER),
    Operation.TOKEN_LIST: Rule(Scope.READ, anyone=ProjectRole.VIEWER),
    Operation.UPLOAD: Rule(Scope.SUBMIT, anyone=ProjectRole.MEMBER),
    Operation.JOB_SUBMIT: Rule(Scope.SUBMIT, anyone=ProjectRole.MEMBER),
    Operation.JOB_EDIT: Rule(Scope.SUBMIT, anyone=ProjectRole.OWNER, own=ProjectRole.MEMBER),
    Operation.SESSION_OPEN: Rule(Scope.SESSIONS, anyone=ProjectRole.MEMBER),
    Operation.TOKEN_CREATE: Rule(Scope.ADMIN, anyone=ProjectRole.MEMBER),
    Operation.TOKEN_REVOKE: Rule(Scope.ADMIN, anyone=ProjectRole.OWNER, own=ProjectRole.VIEWER),
    Operation.MEMBER_EDIT: Rule(Scope.ADMIN, anyone=ProjectRole.OWNER),
    Operation.DELETION_ASK: Rule(Scope.SUBMIT, anyone=ProjectRole.MEMBER),
    Operation.STORED_DELETE: Rule(Scope.SUBMIT, anyone=ProjectRole.OWNER, own=ProjectRole.MEMBER),
    Operation.RETENTION_EDIT: Rule(Scope.ADMIN, anyone=ProjectRole.OWNER),
    # The pools granted to a project decide which machines a caller sees.
    Operation.MACHINE_READ: Rule(Scope.READ),
    Operation.MACHINE_EDIT: Rule(Scope.OPERATE, is_operators=True),
    Operation.SHARE_EDIT: Rule(Scope.OPERATE, is_operators=True),
}


def scope_refusal(operation: Operation, scopes: Collection[Scope] | None) -> str | None:
    """Return why a token with these scopes is refused; `scopes` is None for a caller without a token."""
    needed = RULES[operation].scope
    if scopes is None or needed is None or needed in scopes:
        return None
    shown = ", ".join(sorted(scopes)) or "none"
    return f"this token may not {operation}: that needs the scope '{needed}', but the token has {shown}"


def role_refusal(operation: Operation, role: ProjectRole | None, *, is_own: bool = False) -> str | None:
    """Return why a person with this role in the project is refused."""
    rule = RULES[operation]
    if rule.anyone is None or (role is not None and role.includes(rule.anyone)):
        return None
    if rule.own is not None and is_own and role is not None and role.includes(rule.own):
        return None
    needed = f"the role {rule.anyone}"
    if rule.own is not None:
        needed += f", or {rule.own} for what you made yourself"
    shown = f"you are {role}" if role is not None else "you are not a member"
    return f"you may not {operation} here: that needs {needed}; in this project {shown}"


def operator_refusal(operation: Operation, *, is_operator: bool) -> str | None:
    """Return why a person who is not an operator of the installation is refused."""
    if is_operator or not RULES[operation].is_operators:
        return None
    return (
        f"only operators may {operation}: staff who are signed in, or a token with the scope '{Scope.OPERATE}' "
        "that an operator made for the installation, not for a project"
    )


def roles_of(operation: Operation) -> tuple[ProjectRole, ...]:
    """Return the roles that may perform it on any object of a project."""
    least = RULES[operation].anyone
    return tuple(role for role in ProjectRole if least is not None and role.includes(least))


def table_lines() -> list[str]:
    """Return the table in docs/operations.md, as Markdown lines."""
    heads = ("Operation", *(role.value for role in ProjectRole), "operator", "a token needs")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for operation, rule in RULES.items():
        cells = [_cell(rule, role) for role in ProjectRole]
        operator = (
            "yes" if rule.is_operators else "every pool" if operation is Operation.MACHINE_READ else "–"
        )
        scope = f"`{rule.scope}`" if rule.scope else "any scope"
        lines.append(f"| {operation} | {' | '.join(cells)} | {operator} | {scope} |")
    return lines


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "–"


def _cell(rule: Rule, role: ProjectRole) -> str:
    if rule.is_operators:
        return "–"
    if rule.anyone is None:
        return "granted pools" if rule.scope else "yes"
    if role.includes(rule.anyone):
        return "yes"
    return "own" if rule.own is not None and role.includes(rule.own) else "–"
