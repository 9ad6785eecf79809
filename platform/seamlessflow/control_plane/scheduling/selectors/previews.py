"""Dry runs: asks the scheduler's own rules what an edit of machines would do, and writes nothing.

Jobs of projects that the caller may not read are named "a job of another project".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.control_plane.accounts.selectors.access import Access
from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.common.database.prepared import named_rows
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.core.lifecycle.groups import GroupState, SessionState
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES
from seamlessflow.core.scheduling.explain.edits import machine_edited
from seamlessflow.core.scheduling.explain.preview import JobImpact, PhaseImpact, preview
from seamlessflow.core.scheduling.explain.preview_text import job_sentence, phase_sentence
from seamlessflow.core.scheduling.snapshot import MachineView
from seamlessflow.core.types.desired_state import MachineEdit, desired_text
from seamlessflow.core.types.tags import Role
from seamlessflow.runtime.sql import statements

HIDDEN_JOB = "a job of another project"
SQL = statements(__name__, GroupState, Role, SessionState)


@dataclass(frozen=True, slots=True)
class EditedMachine:
    """One machine, as it is and as it would be. `generation` is the ETag of the state that the dry run read."""

    id: UUID
    name: str
    generation: int
    before: MachineView
    after: MachineView

    @property
    def sentence(self) -> str:
        mark = "in quarantine" if self.before.quarantine is not None else ""
        before, after = (desired_text(state, mark) for state in (self.before, self.after))
        return f"{self.name}: {before} → {after}"


@dataclass(frozen=True, slots=True)
class ShownPhaseImpact:
    impact: PhaseImpact
    job_name: str | None  # None: another project's job
    load: int | None
    sentence: str


@dataclass(frozen=True, slots=True)
class ShownJobImpact:
    impact: JobImpact
    job_name: str | None
    sentence: str


@dataclass(frozen=True, slots=True)
class MachinesPreview:
    machines: list[EditedMachine]
    phases: list[ShownPhaseImpact]
    jobs: list[ShownJobImpact]

    @property
    def sentences(self) -> list[str]:
        """Return the whole dry run as sentences, in reading order."""
        sentences = [shown.sentence for shown in self.phases]
        sentences += [shown.sentence for shown in self.jobs if shown.impact.is_changed]
        return sentences or ["Nothing that runs or waits is concerned."]


def machines_preview(*, access: Access, edits: Mapping[UUID, MachineEdit]) -> MachinesPreview:
    """Return what these edits would do. Machines that do not exist are left out."""
    snapshot = snapshot_load()
    names = _job_names(access)
    made = preview(snapshot, edits)
    loads = _loads([impact.live.id for impact in made.phases if impact.live is not None])
    return MachinesPreview(
        machines=_edited_machines(snapshot.machines, edits),
        phases=[_shown_phase_impact(impact, names, loads) for impact in made.phases],
        jobs=[_shown_job_impact(impact, names) for impact in made.jobs],
    )


def _job_names(access: Access) -> dict[UUID, str]:
    """Return the names of the caller's jobs that have not ended, or that still hold a machine."""
    live = Job.objects.filter(phases__state__in=LIVE_PHASE_STATES).values_list("id", "name")
    unfinished = Job.objects.filter(ended_at=None).values_list("id", "name")
    return dict(live.filter(project_id__in=access.readable)) | dict(
        unfinished.filter(project_id__in=access.readable)
    )


def _loads(phase_ids: list[UUID]) -> dict[UUID, int | None]:
    return {row.id: row.load for row in named_rows(SQL["loads"], {"phases": phase_ids})}


def _edited_machines(
    machines: tuple[MachineView, ...], edits: Mapping[UUID, MachineEdit]
) -> list[EditedMachine]:
    generations = dict(Machine.objects.filter(id__in=list(edits)).values_list("id", "generation"))
    return [
        EditedMachine(
            id=machine.id,
            name=machine.name,
            generation=generations[machine.id],
            before=machine,
            after=machine_edited(machine, edits[machine.id]),
        )
        for machine in machines
        if machine.id in edits and machine.id in generations
    ]


def _shown_phase_impact(
    impact: PhaseImpact, names: Mapping[UUID, str], loads: Mapping[UUID, int | None]
) -> ShownPhaseImpact:
    name = names.get(impact.job_id)
    load = None if impact.live is None else loads.get(impact.live.id)
    return ShownPhaseImpact(impact, name, load, phase_sentence(impact, job=name or HIDDEN_JOB))


def _shown_job_impact(impact: JobImpact, names: Mapping[UUID, str]) -> ShownJobImpact:
    name = names.get(impact.job_id)
    return ShownJobImpact(impact, name, job_sentence(impact, job=name or HIDDEN_JOB))
