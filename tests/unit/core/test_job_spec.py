"""The job specification: strict, complete, and refused with a sentence."""

import json
from typing import Any

import pytest

from seamlessflow.core.job_spec import InvalidJobSpec, JobSpec, job_spec_parse
from seamlessflow.core.types.tags import Role


def spec(**changes: Any) -> dict[str, Any]:
    return {
        "name": "calculator",
        "model": {"source": "artifact://art_0"},
        "environment": {"name": "calculator", "tasks": "artifact://art_1"},
    } | changes


def problems(**changes: Any) -> dict[str, str]:
    with pytest.raises(InvalidJobSpec) as caught:
        job_spec_parse(spec(**changes))
    return {problem.field: problem.detail for problem in caught.value.problems}


def test_the_smallest_spec_gets_every_default() -> None:
    parsed = job_spec_parse(spec())

    assert (parsed.spec_version, parsed.rollout.group_size, parsed.algorithm.name) == (1, 8, "grpo")


def test_a_resolved_spec_parsed_again_is_the_same() -> None:
    parsed = job_spec_parse(spec())

    assert job_spec_parse(json.loads(json.dumps(parsed.model_dump(mode="json")))) == parsed


@pytest.mark.parametrize(
    "changes,field,near",
    [
        ({"modle": {}}, "modle", "model"),
        ({"rollout": {"group_sise": 4}}, "rollout.group_sise", "group_size"),
        ({"train": {"learning_rat": 1}}, "train.learning_rat", "learning_rate"),
        ({"train": {"lora": {"rnk": 1}}}, "train.lora.rnk", "rank"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(
    changes: dict[str, Any], field: str, near: str
) -> None:
    assert f"did you mean '{near}'" in problems(**changes)[field]


def test_an_unknown_key_without_a_similar_name_is_refused_with_the_known_ones() -> None:
    detail = problems(rollout={"zzz": 1})["rollout.zzz"]

    assert "group_size" in detail
    assert "temperature" in detail


def test_every_error_is_named_with_its_value() -> None:
    train = {"zero_stage": 9, "weight_transport": "cuda_ipc"}
    found = problems(rollout={"group_size": 0, "temperature": -1}, train=train)

    assert set(found) == {"rollout.group_size", "rollout.temperature", *(f"train.{name}" for name in train)}
    assert "got 9" in found["train.zero_stage"]
    assert "'auto', 'file', 'ipc', 'nccl' or 'gloo', got 'cuda_ipc'" in found["train.weight_transport"]


@pytest.mark.parametrize(
    "environment,word",
    [
        ({"name": "command", "tasks": "artifact://art_1"}, "command"),
        ({"name": "calculator"}, "tasks"),
    ],
)
def test_an_environment_that_lacks_something_is_refused(environment: dict[str, Any], word: str) -> None:
    assert any(word in detail for detail in problems(environment=environment).values())


@pytest.mark.parametrize(
    "algorithm,train,words",
    [
        ({"name": "gspo"}, {"tree": True}, "train.tree: a ratio of whole sequences"),
        ({"name": "rloo", "kl_coef": 0.0}, {"tree": True}, "train.tree: a ratio of whole sequences"),
        ({"name": "reinforce_plus_plus"}, {"tree": True}, "but algorithm.kl_placement 'reward'"),
        (
            {"name": "reinforce_plus_plus"},
            {"tree": False},
            "accepted: objective 'once', or kl_placement 'loss'",
        ),
    ],
)
def test_by_leaves_refuses_losses_that_are_not_sums_over_branches(
    algorithm: dict[str, Any], train: dict[str, Any], words: str
) -> None:
    found = problems(algorithm=algorithm, train={"objective": "by_leaves", **train})
    assert any(words in detail for detail in found.values())
    job_spec_parse(spec(algorithm=algorithm, train={"objective": "once", **train}))


def test_agents_run_on_one_machine_unless_the_spec_allows_more() -> None:
    calculator = spec()["environment"]
    alone = job_spec_parse(spec()).environment.num_machines
    assert (alone.min, alone.max) == (1, 1)
    more = job_spec_parse(
        spec(environment=calculator | {"num_machines": {"max": 3}})
    ).environment.num_machines
    assert (more.min, more.max) == (1, 3)
    found = problems(environment=calculator | {"num_machines": {"min": 4, "max": 3}})
    assert "4 is more than max" in found["environment.num_machines"]
    unused = problems(environment={"name": "external", "num_machines": {"max": 3}})
    assert "leave num_machines out" in unused["environment"]


def test_external_environment_needs_no_tasks() -> None:
    assert job_spec_parse(spec(environment={"name": "external"})).environment.tasks is None


def test_only_external_agents_may_grade_themselves() -> None:
    assert job_spec_parse(spec(environment={"name": "external"})).environment.reward_by == "project"
    job_spec_parse(spec(environment={"name": "external", "reward_by": "session"}))
    found = problems(environment={"name": "arithmetic", "tasks": "artifact://art_1", "reward_by": "session"})
    assert "agent runner reports the outcome" in found["environment"]


@pytest.mark.parametrize("tag", ["Big GPU", "", "a" * 64, "ü"])
def test_a_placement_tag_outside_the_grammar_is_refused(tag: str) -> None:
    assert "placement.train.0" in problems(placement={"train": [tag]})


@pytest.mark.parametrize("body", [None, [], "spec", 7])
def test_a_body_that_is_not_a_mapping_is_refused(body: Any) -> None:
    with pytest.raises(InvalidJobSpec):
        job_spec_parse(body)


def test_the_schema_describes_every_section() -> None:
    schema = JobSpec.model_json_schema()

    assert set(schema["properties"]) == set(JobSpec.model_fields)
    assert schema["additionalProperties"] is False
    assert "Sessions per task" in json.dumps(schema)


def test_the_schema_has_the_facts_that_the_form_and_the_command_line_read() -> None:
    schema = JobSpec.model_json_schema()
    timeout = schema["$defs"]["EnvironmentSection"]["properties"]["setup_timeout_s"]

    assert (timeout["title"], timeout["x-unit"]) == ("Setup timeout", "seconds")
    assert schema["properties"]["environment"]["x-group"] == {"rollout": "open"}
    assert list(JobSpec.uploads()) == [("model", "source"), ("environment", "tasks"), ("evaluation", "tasks")]


def test_an_adapter_has_defaults_and_is_trained_only_on_request() -> None:
    assert job_spec_parse(spec()).train.lora is None
    lora = job_spec_parse(spec(train={"lora": {}})).train.lora
    assert lora is not None
    assert (lora.rank, lora.alpha, lora.dropout, lora.target_modules) == (16, 32.0, 0.0, [])


def test_an_impossible_adapter_is_refused_by_field() -> None:
    lora = {"rank": 0, "alpha": -1, "dropout": 1, "target_modules": ["q_proj", "no layer"]}
    found = problems(train={"lora": lora})

    fields = {"rank", "alpha", "dropout", "target_modules.1"}
    assert set(found) == {f"train.lora.{field}" for field in fields}
    assert "got 'no layer'" in found["train.lora.target_modules.1"]


RECORDED: dict[str, Any] = {
    "name": "imitation",
    "model": {"source": "artifact://art_0"},
    "data": {"source": "trajectories", "jobs": ["calculator"]},
    "algorithm": {"name": "sft"},
}


def recorded(**changes: Any) -> dict[str, Any]:
    return RECORDED | changes


@pytest.mark.parametrize(
    "rollout, told",
    [
        ({"parallel": {"tensor": 2}}, "parallel.tensor: the embedded engine computes on one device, got 2"),
        (
            {"parallel": {"pipeline": 4}},
            "parallel.pipeline: the embedded engine computes on one device, got 4",
        ),
        ({"parallel": {"expert": True}}, "parallel.expert: the embedded engine has no expert parallelism"),
        ({"engine_args": {"block_size": 64}}, "engine_args: block_size are arguments of vLLM"),
        (
            {"engine": "vllm", "engine_args": {"dtype": "bfloat16"}},
            "engine_args.dtype: the platform sets it; use model.dtype",
        ),
        ({"engine": "vllm", "engine_args": {"tensor_parallel_size": 2}}, "use rollout.parallel.tensor"),
        ({"engine": "vllm", "engine_args": {"trust_remote_code": True}}, "a job may not set it; accepted: "),
        ({"engine": "vllm", "engine_args": {"blok_size": 64}}, "did you mean 'block_size'?"),
    ],
)
def test_what_an_engine_cannot_do_or_the_platform_decides_is_refused_by_name(
    rollout: dict[str, Any], told: str
) -> None:
    assert told in problems(rollout=rollout)["rollout"]


def test_arguments_of_vllm_are_plain_values() -> None:
    detail = problems(rollout={"engine": "vllm", "engine_args": {"block_size": [64]}})
    assert "must be a number, a text, true or false" in detail["rollout.engine_args.block_size"]
    given = {"block_size": 64, "enforce_eager": True, "gpu_memory_utilization": 0.5, "kv_cache_dtype": "auto"}
    rollout = {"engine": "vllm", "engine_args": given, "parallel": {"tensor": 2, "pipeline": 2}}
    parsed = job_spec_parse(spec(rollout=rollout)).rollout
    assert (parsed.engine_args, parsed.parallel.num_devices) == (given, 4)


def test_a_job_on_recorded_trajectories_needs_neither_environment_nor_rollout() -> None:
    parsed = job_spec_parse(recorded())

    assert parsed.environment.name == "none"
    assert job_spec_parse(json.loads(json.dumps(parsed.model_dump(mode="json")))) == parsed
    assert parsed.roles == (Role.TRAIN,)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"algorithm": {"name": "grpo"}}, "algorithm.name: 'grpo' weights sessions"),
        ({"algorithm": {}}, "set algorithm.name to 'sft'"),
        ({"algorithm": {"name": "sft", "sampling": {"history": True}}}, "data.domains"),
        ({"algorithm": {"name": "sft", "sft_min_reward": 0.5}}, "data.min_reward"),
        (
            {
                "algorithm": {
                    "name": "sft",
                    "off_policy": {"proximal": "current", "importance": "truncate"},
                }
            },
            "algorithm.off_policy.importance",
        ),
        ({"rollout": {"group_size": 4}}, "rollout: a job on an offline dataset samples nothing"),
        ({"environment": {"name": "external"}}, "environment.name: 'external' runs agents"),
        ({"evaluation": {"tasks": "artifact://art_1"}}, "evaluation.tasks: held-out tasks need engines"),
        ({"placement": {"rollout": ["gpu"]}}, "placement: a job on an offline dataset"),
        ({"data": {"source": "trajectories"}}, "jobs: must name at least one job"),
        ({"data": RECORDED["data"] | {"min_reward": 2, "max_reward": 1}}, "above max_reward"),
        ({"data": RECORDED["data"] | {"from_version": 2, "to_version": 1}}, "above to_version"),
        ({"data": RECORDED["data"] | {"best_per_group": 0}}, "greater than or equal to 1"),
    ],
)
def test_options_without_meaning_on_recorded_trajectories_are_refused(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidJobSpec, match=words):
        job_spec_parse(recorded(**changes))


def test_selecting_recorded_sessions_needs_that_source() -> None:
    assert "needs source 'trajectories'" in problems(data={"jobs": ["calculator"]})["data"]
    assert "data.source to 'trajectories'" in problems(environment={"name": "none"})[""]


def test_the_default_learning_rate_of_an_adapter_is_ten_times_higher() -> None:
    def rate(**train: Any) -> float:
        return job_spec_parse(spec(train=train)).train.learning_rate

    assert (rate(), rate(lora=None), rate(lora={})) == (1e-6, 1e-6, 1e-5)
    assert rate(lora={}, learning_rate=1e-6) == 1e-6


def test_more_processes_than_a_batch_has_sessions_are_refused() -> None:
    rollout = {"groups_per_batch": 2, "group_size": 4}
    fits = job_spec_parse(spec(rollout=rollout, train={"num_machines": 2, "num_ranks": 4}))
    assert fits.train.num_machines == 2

    refused = problems(rollout=rollout, train={"num_machines": 3, "num_ranks": 4})

    assert (
        "3 machines with 4 processes each make 12 processes, but a batch has only 8 sessions" in refused[""]
    )
    assert set(problems(train={"num_machines": 0})) == {"train.num_machines"}


def test_experts_are_spread_only_where_their_gradients_are_right() -> None:
    def refusal(**train: Any) -> str:
        return problems(train={"num_ranks": 6, "parallel": {"expert": 3}, **train})["train"]

    spread = job_spec_parse(spec(train={"num_ranks": 3, "num_machines": 2, "parallel": {"expert": 6}}))
    assert spread.train.parallel.expert == 6
    assert "3 does not divide the number of training processes, 4" in refusal(num_ranks=4)
    assert "accepted: zero_stage 1, 2 or 3" in refusal(zero_stage=0)
    assert "an adapter leaves experts as they are" in refusal(lora={})
    assert set(problems(train={"parallel": {"expert": 0}})) == {"train.parallel.expert"}


def test_processes_share_sequences_in_whole_groups() -> None:
    fits = job_spec_parse(spec(train={"num_ranks": 6, "parallel": {"sequence": 3}}))
    assert (fits.train.parallel.sequence, job_spec_parse(spec()).train.parallel.sequence) == (3, 1)
    refused = problems(train={"num_ranks": 6, "parallel": {"sequence": 4}})
    assert "parallel.sequence: 4 does not divide the 6 processes of a machine" in refused["train"]
    assert refused["train"].endswith("accepted: 1, 2, 3, 6")


def test_processes_that_share_sequences_need_no_sessions_of_their_own() -> None:
    rollout = {"groups_per_batch": 2, "group_size": 4}
    train = {"num_machines": 2, "num_ranks": 8}
    job_spec_parse(spec(rollout=rollout, train={**train, "parallel": {"sequence": 2}}))
    assert "accepted: at most 1 processes per session" in problems(rollout=rollout, train=train)[""]


def test_ranks_follow_the_devices_of_the_machine_as_far_as_a_batch_has_sessions() -> None:
    rollout = {"groups_per_batch": 2, "group_size": 4}

    def ranks(num_devices: int, **train: Any) -> int:
        return (
            job_spec_parse(spec(rollout=rollout, train=train)).on_devices(num_devices).train.known_num_ranks
        )

    assert (ranks(1), ranks(4), ranks(16)) == (1, 4, 8)
    assert ranks(16, num_machines=3) == 2
    assert ranks(4, num_ranks=2) == 2
    assert job_spec_parse(recorded()).on_devices(16).train.known_num_ranks == 16
    assert [ranks(num, parallel={"expert": 3}) for num in (1, 4, 7)] == [3, 3, 6]
    assert ranks(4, num_machines=2, parallel={"expert": 2}) == 4
    assert [ranks(num, parallel={"expert": 3, "sequence": 2}) for num in (1, 13)] == [6, 12]
    assert ranks(64, parallel={"sequence": 2}) == 16, "two share the work of a session"


@pytest.mark.parametrize("given", [0, 65, 2.5, "four", True, None])
def test_ranks_that_are_neither_a_number_nor_auto_are_refused_in_one_sentence(given: object) -> None:
    refused = problems(train={"num_ranks": given})
    assert list(refused) == ["train.num_ranks"]
    assert (
        f"{given!r} is not accepted; accepted: auto, or a number from 1 to 64" in refused["train.num_ranks"]
    )


def test_machines_that_train_together_are_a_number_or_bounds() -> None:
    rollout = {"groups_per_batch": 4, "group_size": 4}
    one = job_spec_parse(spec(rollout=rollout, train={"num_machines": 2})).train.machines
    assert (one.min, one.max, one.are_elastic) == (2, 2, False)
    bounds = {"min": 1, "max": 3}
    some = job_spec_parse(spec(rollout=rollout, train={"num_machines": bounds})).train.machines
    assert (some.min, some.max, some.are_elastic) == (1, 3, True)
    for given in (2, bounds):
        parsed = job_spec_parse(spec(rollout=rollout, train={"num_machines": given}))
        written = parsed.model_dump(mode="json")
        assert written["train"]["num_machines"] == given, "a number stays one, which every release reads"
        assert job_spec_parse(written) == parsed
    refused = problems(rollout=rollout, train={"num_machines": {"min": 3, "max": 2}})
    assert "min: 3 is more than max, 2" in refused["train.num_machines"]
    wide = problems(rollout=rollout, train={"num_machines": {"min": 1, "max": 17}})
    assert "17 machines with 1 processes each" in wide[""]
    for wrong in (True, "2", 65):
        assert (
            "a number from 1 to 64, or bounds"
            in problems(train={"num_machines": wrong})["train.num_machines"]
        )


def test_programs_with_loops_of_their_own_have_more_turns_unless_the_spec_says_otherwise() -> None:
    assert job_spec_parse(spec()).environment.max_turns == 8
    external = job_spec_parse(spec(environment={"name": "external"}))
    assert external.environment.max_turns == 1000
    assert job_spec_parse(spec(environment={"name": "external", "max_turns": 2})).environment.max_turns == 2
