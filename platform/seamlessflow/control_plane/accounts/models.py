"""Users, projects, memberships and tokens. A token is stored as its SHA-256 only."""

from django.contrib.auth.models import AbstractUser
from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from seamlessflow.control_plane.common.database.clock import StoredAtField
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.core.access.operations import ProjectRole, Scope

# Every scope of a project's token; tokens made before scopes existed have all of them.
PROJECT_SCOPES = [Scope.READ.value, Scope.SUBMIT.value, Scope.SESSIONS.value, Scope.ADMIN.value]


class User(AbstractUser):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)


class Project(models.Model):
    """The unit of visibility: tokens, jobs, artifacts and trajectories belong to one project."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=120)
    weight = models.FloatField(
        default=1.0,
        db_default=1.0,
        validators=[MinValueValidator(0.01), MaxValueValidator(100.0)],
        help_text="Its share of the machines, in proportion to the weights of other projects whose jobs want them.",
    )
    machine_quota = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="The most machines that its jobs may hold together. Empty: no limit.",
    )
    priority_ceiling = models.SmallIntegerField(
        default=0,
        db_default=0,
        validators=[MinValueValidator(-100), MaxValueValidator(100)],
        help_text="Up to which the priorities of its jobs count against the jobs of other projects.",
    )
    queued_jobs_quota = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="The most jobs that it may have in the queue. Empty: as many as the installation allows.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.slug


class MembershipRole(models.TextChoices):
    """A person's role in a project. `core.access.operations` says what each role may do."""

    OWNER = ProjectRole.OWNER.value
    MEMBER = ProjectRole.MEMBER.value
    VIEWER = ProjectRole.VIEWER.value


class Membership(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=MembershipRole.choices, default=MembershipRole.MEMBER)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "project"], name="membership_unique")]

    def __str__(self) -> str:
        return f"{self.user} in {self.project}"


class TokenKind(models.TextChoices):
    API = "api"  # a person or a CI pipeline, in one project
    MACHINE = "machine"  # a supervisor
    SIGN_IN = "sign_in"  # one-time browser link


class Token(models.Model):
    """A credential whose secret is shown once.

    An API token is for one project, or for the installation: for all projects of its user, and, with the scope
    `operate`, for machines. Machine tokens have no scopes: what they open is the worker protocol.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    kind = models.CharField(max_length=16, choices=TokenKind.choices)
    name = models.CharField(max_length=120)
    digest = models.CharField(max_length=64, unique=True, help_text="SHA-256 of the secret, in hexadecimal.")
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.CASCADE, related_name="tokens"
    )
    user = models.ForeignKey(User, null=True, blank=True, on_delete=models.CASCADE, related_name="tokens")
    machine = models.ForeignKey(
        "cluster.Machine", null=True, blank=True, on_delete=models.CASCADE, related_name="tokens"
    )
    scopes = ArrayField(
        models.CharField(max_length=16),
        default=list,
        db_default=PROJECT_SCOPES,  # for rows of a release that knows no scopes
        help_text="What an API token may be used for. A scope never adds to what its user may do.",
    )
    created_at = StoredAtField()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="token_subject_fits_kind",
                condition=Q(kind="api", user__isnull=False)
                | Q(kind="machine", machine__isnull=False)
                | Q(kind="sign_in", user__isnull=False),
            ),
            models.CheckConstraint(
                name="token_of_project_not_for_machines",
                condition=Q(project__isnull=True) | ~Q(scopes__contains=[Scope.OPERATE.value]),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} token {self.name}"


class SignInCounter(models.Model):
    """Failed sign-ins from one network, or with one name from one network; see `sign_in_attempts`."""

    key = models.CharField(
        primary_key=True, max_length=64, help_text=("SHA-256 of the place and the name, in hexadecimal.")
    )
    num = models.PositiveIntegerField()
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.num} failed sign-ins"
