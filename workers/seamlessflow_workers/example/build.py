"""Makes the example model from a seed, without any download; the result is an ordinary Hugging Face folder.

`python -m seamlessflow_workers.example --out DIR [--environment calculator|arithmetic] [--seed 0] [--cache DIR]`

The content is addressed by (environment, seed, code): a folder with the right key is left alone and a cached one is
copied, both without importing torch. Folders are written beside their final path and renamed, so they are always
complete.
"""

import argparse
import contextlib
import errno
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from seamlessflow_workers.agents.environments import calc_tool
from seamlessflow_workers.example.tasks import ExampleEnvironment

KEY_FILE = "example_model.key"
NUM_PRACTICE_STEPS = 80
NUM_MIXTURE_STEPS = 60
NUM_TOKENIZER_TRANSCRIPTS = 1000  # of each environment, so that all models have one vocabulary
TOKENIZER_SEED = 0
NUM_THREADS = 1  # fixed, because sums over threads differ in the last bit

Report = Callable[[str], None]


class ForeignFolder(FileExistsError):
    """The output folder exists and was not made by this builder."""


def example_model_ensure(
    out: Path,
    *,
    environment: ExampleEnvironment = ExampleEnvironment.CALCULATOR,
    seed: int = 0,
    cache: Path | None = None,
    report: Report = print,
) -> Path:
    """Make `out` the example model and return it. Raises ForeignFolder."""
    key = content_key(environment, seed=seed)
    if _folder_key(out) == key:
        report(f"example model {key} is already in {out}")
        return out
    if out.exists() and _folder_key(out) is None and any(out.iterdir()):
        raise ForeignFolder(f"out: {out} exists and is not an example model; name a new folder")
    cached = cache / key if cache is not None else None
    if cached is not None and _folder_key(cached) != key:
        _place(cached, lambda folder: _write_model(folder, environment, seed=seed, key=key, report=report))
    if cached is None:
        _place(out, lambda folder: _write_model(folder, environment, seed=seed, key=key, report=report))
    else:
        report(f"example model {key} from {cached}")
        _place(out, lambda folder: _copy(cached, folder))
    return out


def content_key(environment: ExampleEnvironment, *, seed: int) -> str:
    """Return a digest of all that the model depends on: environment, seed and the builder's source files."""
    digest = hashlib.sha256(f"{environment}/{seed}".encode())
    folder = Path(__file__).parent
    for source in sorted([*folder.glob("*.py"), *folder.glob("*.jinja"), Path(calc_tool.__file__)]):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _folder_key(folder: Path) -> str | None:
    try:
        return (folder / KEY_FILE).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _place(target: Path, write: Callable[[Path], None]) -> None:
    """Write into a folder beside `target`, then rename it. If another process was first, its equal folder is kept."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _folder_beside(target) as folder:
        write(folder)
        folder.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        try:
            folder.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


@contextlib.contextmanager
def _folder_beside(target: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield folder
    finally:
        if folder.exists():
            shutil.rmtree(folder)


def _copy(source: Path, folder: Path) -> None:
    shutil.copytree(source, folder, dirs_exist_ok=True)


def _write_model(
    folder: Path, environment: ExampleEnvironment, *, seed: int, key: str, report: Report
) -> None:
    # Imported here, so that using a cached model does not import torch.
    import torch

    from seamlessflow_workers.example import warm_start
    from seamlessflow_workers.example.tokenizer import save_tokenizer, train_tokenizer
    from seamlessflow_workers.example.transcripts import ChatTemplate, Stage, iter_transcripts

    torch.set_num_threads(NUM_THREADS)
    template = ChatTemplate()

    def render(kind: ExampleEnvironment, stage: Stage, num_transcripts: int, from_seed: int) -> list[str]:
        transcripts = iter_transcripts(kind, stage, num_transcripts=num_transcripts, seed=from_seed)
        return [template.render(transcript) for transcript in transcripts]

    tokenizer = train_tokenizer(
        text
        for kind in ExampleEnvironment
        for text in render(kind, Stage.MIXTURE, NUM_TOKENIZER_TRANSCRIPTS, TOKENIZER_SEED)
    )
    texts = [
        *render(environment, Stage.PRACTICE, NUM_PRACTICE_STEPS * warm_start.BATCH_SIZE, seed),
        *render(environment, Stage.MIXTURE, NUM_MIXTURE_STEPS * warm_start.BATCH_SIZE, seed),
    ]
    model = warm_start.build_model(tokenizer, seed=seed)
    report(f"example model {key}: {model.num_parameters():,} parameters, {tokenizer.get_vocab_size()} tokens")
    warm_start.warm_start(
        model,
        warm_start.encode_examples(tokenizer, texts),
        report=lambda step, num_steps, loss: report(
            f"warm start: step {step} of {num_steps}, loss {loss:.2f}"
        ),
    )
    warm_start.save_model(model, folder)
    save_tokenizer(tokenizer, folder)
    (folder / KEY_FILE).write_text(key)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the example model from a seed.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--environment", type=ExampleEnvironment, default=ExampleEnvironment.CALCULATOR)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=None, help="folder that keeps built models")
    options = parser.parse_args()

    def report(line: str) -> None:
        print(line, flush=True)

    try:
        example_model_ensure(
            options.out,
            environment=options.environment,
            seed=options.seed,
            cache=options.cache,
            report=report,
        )
    except ForeignFolder as error:
        raise SystemExit(str(error)) from error
