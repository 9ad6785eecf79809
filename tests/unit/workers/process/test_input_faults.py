"""Which errors of loading a model would come on every machine, and which may be the fault of this one."""

import errno
from pathlib import Path

import pytest
from safetensors import SafetensorError

from seamlessflow_workers.process.input_faults import InputFault, input_faults, is_of_input, model_check
from tests.fixtures.control_plane import plain_model


class _ConfigError(Exception):
    __module__ = "huggingface_hub.errors"


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error,expected",
    [
        (ValueError("unknown architecture"), True),
        (KeyError("num_heads"), True),
        (TypeError("an int was expected"), True),
        (ZeroDivisionError("by zero"), True),
        (SafetensorError("InvalidOffset"), True),
        (OSError("no file named model.safetensors in directory"), True),
        (RuntimeError("size mismatch for lm_head"), True),
        (_ConfigError("Validation error for field"), True),
        (OSError(errno.EIO, "the disk"), False),
        (FileNotFoundError(errno.ENOENT, "not mounted"), False),
        (caused(ValueError("cannot be read"), OSError(errno.EIO, "the disk")), False),
        (MemoryError(), False),
        (ImportError("mamba_ssm"), False),
        (RuntimeError("CUDA error: out of memory"), False),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), False),
    ],
)
def test_only_what_a_machine_cannot_cause_is_of_the_input(error: Exception, expected: bool) -> None:
    assert is_of_input(error) == expected
    with pytest.raises(InputFault if expected else type(error)), input_faults(Path("/model")):
        raise error


def test_a_folder_is_checked_with_all_its_problems_in_one_line(tmp_path: Path) -> None:
    plain_model(tmp_path)
    model_check(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "evil", "hidden_size": "8"}')
    with pytest.raises(InputFault, match=r"model_type is 'evil'.*; config.json: hidden_size is '8'"):
        model_check(tmp_path)
