"""Fixtures that every kind of test may ask for.

Django is set up for all tests, but only those that ask for a database get one: an embedded server of this session.
"""

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.conf import settings
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from psycopg.conninfo import conninfo_to_dict
from pytest_django import Settings
from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped]
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from tests.fixtures.control_plane import Cast

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.django_settings"
pytest_plugins = [
    "tests.fixtures.skips",
    "tests.fixtures.services",
    "tests.fixtures.gateway_world",
    "tests.fixtures.gateway_fleet",
    "tests.fixtures.web_world",
    "tests.fixtures.devices",
    "tests.fixtures.vllm_servers",
    "tests.fixtures.deploy_tools",
    "tests.fixtures.trainers",
    "tests.fixtures.example_extension",
]

# How long an example takes on a busy machine says nothing about the code.
hypothesis_settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("patient")

# Folders whose tests share something that is slow to start: vLLM servers, a gateway, or an installation.
# Acceptance tests are two groups, so that at most two installations compete for the cores.
SHARING_FOLDERS = ("tests/contract/engine/", "tests/acceptance/jobs/", "tests/acceptance/")
DJANGO_KEYS = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}


def pytest_configure() -> None:
    # pytest-django sets Django up after this, if it finds the settings loaded.
    assert settings.DATABASES


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are imported, and never again in what was imported, because that stays."""
    gc.disable()
    result = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return result


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a parameter of bytes after its argument: an archive contains the time at which it was
    made, and a test's name must not.

    The processes of a parallel run compare the names of the tests they collected, and refuse to
    start if they differ.
    """
    return argname if isinstance(val, bytes) else None


class FilesWhole(LoadFileScheduling):
    """Distribute whole files to the processes of a parallel run, because fixtures may belong to a module; and whole
    folders whose tests share more than that."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((folder for folder in SHARING_FOLDERS if file.startswith(folder)), file)


@pytest.hookimpl(optionalhook=True)  # there is no such hook where xdist is switched off
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesWhole:
    """Use this scheduler whatever `--dist` says. `loadgroup` does not help: xdist 3.8 loses its
    group names with pytest 9.2."""
    return FilesWhole(config, log)


@pytest.fixture(scope="session", autouse=True)
def _static_files_are_found_once() -> Iterator[None]:
    """Django's test client loads the middleware anew, and WhiteNoise then describes all static files: two thirds of
    a test with many clients. Nothing adds a file while tests run."""
    describe_all, described = WhiteNoiseMiddleware.add_files_from_finders, dict[str, object]()

    def described_once(middleware: WhiteNoiseMiddleware) -> None:
        if not described:
            describe_all(middleware)
            described.update(middleware.files)
        middleware.files.update(described)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WhiteNoiseMiddleware, "add_files_from_finders", described_once)
        yield


@pytest.fixture(scope="session")
def django_db_modify_db_settings(embedded_postgres_url: str) -> None:
    """Point Django at the embedded server; pytest-django then creates its test database there."""
    address = conninfo_to_dict(embedded_postgres_url)
    settings.DATABASES["default"].update(
        {key: str(address.get(part, "")) for key, part in DJANGO_KEYS.items()}
    )


@pytest.fixture
def cast(db: None, tmp_path: Path, settings: Settings) -> "Cast":
    """An owner who is staff, a member of the same project and an outsider with a project of their own."""
    # Models may be imported only once Django is set up.
    from tests.fixtures.control_plane import cast_make

    settings.MODEL_ROOTS = (tmp_path.resolve(),)
    settings.ARTIFACT_ROOT = tmp_path / "artifacts"
    settings.ARTIFACT_ROOT_URL = settings.ARTIFACT_ROOT.as_uri()
    settings.INCOMING_DIR = settings.ARTIFACT_ROOT / "incoming"
    settings.INCOMING_DIR.mkdir(parents=True)
    return cast_make(tmp_path)
