"""The supervisor starts without the heavy libraries that its children use."""

import subprocess
import sys


def test_the_supervisor_imports_neither_torch_nor_celery_nor_django() -> None:
    heavy = ("torch", "transformers", "deepspeed", "vllm", "celery", "django", "numpy")
    program = (
        "import sys; import seamlessflow_workers.supervisor.__main__; "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
