"""Which answers get equal identifiers for their calls: first answers to equal prompts, where attempts resume."""

import datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from seamlessflow.core.job_spec import job_spec_parse
from seamlessflow.core.trajectory.answer_progress import AnswerProgress
from seamlessflow.core.trajectory.prefix_tree import NodeKind
from seamlessflow.data_plane.store.jobs import JobRow
from seamlessflow.data_plane.store.turns.node_rows import NodeFacts, SessionKey
from seamlessflow.data_plane.turns.rendering.answer_text import AnswerText
from seamlessflow.data_plane.turns.rendering.parsers.call_ids import call_stem
from seamlessflow.data_plane.turns.trajectory_manager.job_loading import job_load
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, LiveJob, LiveSession
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation, TurnPlan
from tests.fixtures.planned_turns import plan_turn
from tests.fixtures.tiny_text import write_tiny_text

QUESTION = Conversation([{"role": "user", "content": "12 + 34?"}], None, {})


def job_of(folder: Path, on_failure: str) -> LiveJob:
    model = write_tiny_text(folder / on_failure)
    section = {"name": "command", "tasks": "t", "command": ["true"], "on_failure": on_failure}
    spec = job_spec_parse({"name": "tiny", "model": {"source": "model"}, "environment": section})
    row = JobRow(uuid4(), uuid4(), "tiny", "running", spec.model_dump(mode="json"), model, "", "")
    return job_load(row)


def session_of(job: LiveJob) -> LiveSession:
    key = SessionKey(uuid4(), datetime.date(2026, 1, 1), job.project_id, job.job_id)
    return LiveSession(key, job, uuid4(), b"", True)


def stem(session: LiveSession, plan: TurnPlan, index: int = 0) -> str:
    text = AnswerText(session.job.text, stop=(), tools=None, starts_in_reasoning=False)
    progress = AnswerProgress(prompt_ids=plan.prompt_ids, max_tokens=8)
    choice = Choice(index, progress, text, session.call_seed(plan))
    made = choice.call_stem
    assert call_stem(text.family.call_ids.call_id(made, 0)) == made
    return made


def planned(session: LiveSession) -> TurnPlan:
    return plan_turn(session.tree, session.job.text, QUESTION)


@pytest.fixture
def job(tmp_path: Path) -> LiveJob:
    return job_of(tmp_path, "resume")


def test_first_answers_to_equal_prompts_have_equal_identifiers(job: LiveJob) -> None:
    first, second = session_of(job), session_of(job)
    assert stem(first, planned(first)) == stem(second, planned(second))


def test_further_answers_of_a_session_to_the_same_prompt_have_others(job: LiveJob) -> None:
    session = session_of(job)
    stems = {stem(session, planned(session)) for _ in range(3)}
    assert len(stems) == 3


def test_answers_to_a_prompt_that_was_read_back_have_others(job: LiveJob) -> None:
    fresh, restored = session_of(job), session_of(job)
    plan = planned(restored)
    restored.add_node(
        parent=None,
        kind=NodeKind.ROOT,
        token_ids=plan.new_ids,
        facts=NodeFacts(messages=[], turn_id=UUID(int=1)),
        digests=plan.digests,
        context=plan.context,
    )
    assert stem(restored, plan) != stem(fresh, planned(fresh))


def test_the_choices_of_a_request_and_other_jobs_have_others(tmp_path: Path, job: LiveJob) -> None:
    sessions = [session_of(job), session_of(job), session_of(job_of(tmp_path / "other", "resume"))]
    stems = [
        stem(session, planned(session), index) for session, index in zip(sessions, (0, 1, 0), strict=True)
    ]
    assert len(set(stems)) == 3


def test_answers_of_jobs_whose_attempts_begin_anew_have_random_identifiers(tmp_path: Path) -> None:
    job = job_of(tmp_path, "sample")
    first, second = session_of(job), session_of(job)
    assert stem(first, planned(first)) != stem(second, planned(second))
