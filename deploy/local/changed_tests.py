"""Runs the tests that a change concerns: `python -m deploy.local.changed_tests [BASE]` (by default `main`).

A change is the difference of the working tree from the point where it left BASE. A test module is concerned if it, or
a module that it mentions, imports a changed module, at whatever distance. Acceptance tests are left out, because each
of them concerns everything; the tests of `tests/architecture` always run, because they read all files.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp

from deploy.local.bootstrap import ROOT

PACKAGES = {"seamlessflow": "platform", "seamlessflow_workers": "workers"}
MENTION = re.compile(
    r"\b(?:seamlessflow|seamlessflow_workers|tests|deploy)(?:\.\w+)+(?: import [\w ,]+| import \([^)]*\))?"
)
ALWAYS = "tests/architecture"


def main(arguments: list[str]) -> int:
    base = arguments[0] if arguments else "main"
    try:
        paths = changed_paths(base)
    except subprocess.CalledProcessError:
        print(
            f"changed tests: git knows no revision {base!r}; name one: make test-changed BASE=…",
            file=sys.stderr,
        )
        return 2
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    changed = {name for path in paths if (name := module_name(path)) is not None}
    concerned = set(changed)
    for name in changed & graph.modules:
        concerned |= graph.find_downstream_modules(name)
    tests = concerned_tests(_texts(), concerned)
    print(f"changed tests: {len(paths)} changed files concern {len(tests)} test modules")
    command = [sys.executable, "-m", "pytest", "-n", os.environ.get("WORKERS", "3"), ALWAYS, *tests]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def changed_paths(base: str) -> list[Path]:
    """Return the changed files, relative to the repository. Raises CalledProcessError for an unknown revision."""
    start = _git("merge-base", base, "HEAD")
    return [Path(line) for line in _git("diff", "--name-only", start).split()] + [
        Path(line) for line in _git("ls-files", "--others", "--exclude-standard").split()
    ]


def module_name(path: Path) -> str | None:
    """Return the module that a file is, or whose SQL statements it contains; None for other files."""
    if path.suffix not in {".py", ".sql"}:
        return None
    parts = path.with_suffix("").parts
    parts = parts[1:] if parts[0] in PACKAGES.values() else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def concerned_tests(texts: Mapping[Path, str], concerned: Iterable[str]) -> list[str]:
    """Return the test modules, given all modules of `tests` with their text, that mention one of `concerned`, or a
    module of `tests` that does."""
    found = set(concerned)
    mentions = {path: set(mentioned(text)) for path, text in texts.items()}
    while more := {
        name
        for path, names in mentions.items()
        if (name := module_name(path)) is not None and name not in found and names & found
    }:
        found |= more
    return sorted(
        str(path)
        for path in texts
        if path.name.startswith("test_")
        and module_name(path) in found
        and not path.is_relative_to("tests/acceptance")
        and not path.is_relative_to(ALWAYS)
    )


def mentioned(text: str) -> Iterable[str]:
    """Return every name that `text` imports, or names in a string such as `-m package.module`."""
    for mention in MENTION.findall(text):
        name, _, imported = mention.partition(" import ")
        parts = name.split(".")
        yield from (".".join(parts[:length]) for length in range(2, len(parts) + 1))
        yield from (f"{name}.{word}" for word in re.findall(r"\w+", imported))


def _texts() -> dict[Path, str]:
    files = [
        Path(line) for line in _git("ls-files", "--cached", "--others", "--exclude-standard", "tests").split()
    ]
    return {
        path: (ROOT / path).read_text() for path in files if path.suffix == ".py" and (ROOT / path).exists()
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
