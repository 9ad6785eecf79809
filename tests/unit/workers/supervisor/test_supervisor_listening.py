"""Where engines listen, the name that gateways are told, and the device that children get."""

import socket
from pathlib import Path

import pytest

from seamlessflow.runtime.variables import InvalidSetting
from seamlessflow_workers.process.memory_use import memory_limit_bytes
from seamlessflow_workers.supervisor import inventory
from seamlessflow_workers.supervisor.config import InvalidFlag, SupervisorConfig, read_config
from tests.fixtures.machine_devices import gpu


def config(folder: Path, *flags: str, **environment: str) -> SupervisorConfig:
    token = folder / "token"
    token.write_text("secret")
    given = ["--name", "a", "--control-plane-url", "http://web:8000", "--token-file", str(token), *flags]
    return read_config(given, environment)


def addresses(config: SupervisorConfig) -> tuple[str, str]:
    return config.listen_host, config.advertised_host


def test_machine_keeps_to_itself_unless_told_otherwise(tmp_path: Path) -> None:
    assert addresses(config(tmp_path)) == ("127.0.0.1", "127.0.0.1")
    assert addresses(config(tmp_path, "--listen-host", "10.0.0.7")) == ("10.0.0.7", "10.0.0.7")


def test_machine_that_listens_everywhere_is_reached_by_its_name_or_the_given_address(tmp_path: Path) -> None:
    everywhere = config(tmp_path, SEAMLESSFLOW_LISTEN_HOST="0.0.0.0")
    named = config(tmp_path, SEAMLESSFLOW_LISTEN_HOST="0.0.0.0", SEAMLESSFLOW_ADVERTISED_HOST="10.1.2.3")

    assert addresses(everywhere) == ("0.0.0.0", socket.gethostname())
    assert addresses(named) == ("0.0.0.0", "10.1.2.3")


@pytest.mark.parametrize("nobody", ["0.0.0.0", "::"])
def test_address_of_every_interface_is_nobodys_address(tmp_path: Path, nobody: str) -> None:
    with pytest.raises(InvalidFlag, match="is not the address of a machine"):
        config(tmp_path, "--advertised-host", nobody)


def test_device_may_come_from_the_environment_and_a_flag_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "find_gpus", lambda: (gpu(0),))
    assert config(tmp_path, SEAMLESSFLOW_DEVICE="cuda").device == "cuda"
    assert config(tmp_path, "--device", "cpu", SEAMLESSFLOW_DEVICE="cuda").device == "cpu"
    with pytest.raises(InvalidSetting, match="SEAMLESSFLOW_DEVICE is 'tpu'; accepted: cpu, cuda"):
        config(tmp_path, SEAMLESSFLOW_DEVICE="tpu")


def test_share_of_a_gpu_for_vllm_is_a_share(tmp_path: Path) -> None:
    assert config(tmp_path).gpu_memory_fraction == 0.9
    assert config(tmp_path, SEAMLESSFLOW_GPU_MEMORY_SHARE="0.3").gpu_memory_fraction == 0.3
    for wrong in ("0", "1.1", "half", "nan"):
        with pytest.raises(
            InvalidSetting, match=f"GPU_MEMORY_SHARE is '{wrong}'; accepted: a number above 0"
        ):
            config(tmp_path, SEAMLESSFLOW_GPU_MEMORY_SHARE=wrong)


def test_engines_and_trainers_may_use_a_share_of_the_memory(tmp_path: Path) -> None:
    usual, less = config(tmp_path), config(tmp_path, SEAMLESSFLOW_MEMORY_SHARE="0.3")
    assert usual.memory_limit_bytes == memory_limit_bytes(0.9)
    assert less.memory_limit_bytes == memory_limit_bytes(0.3)
    with pytest.raises(InvalidSetting, match="MEMORY_SHARE is '2'; accepted: a number above 0 and at most 1"):
        config(tmp_path, SEAMLESSFLOW_MEMORY_SHARE="2")
