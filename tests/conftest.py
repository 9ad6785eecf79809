"""Fixtures that every kind of test may ask for.

Django is set up for all tests, but only those that ask for a database get one: an embedded server of this session.
"""

import os

import pytest
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.django_settings"
pytest_plugins = ["tests.fixtures.services"]

DJANGO_KEYS = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}


def pytest_configure() -> None:
    # pytest-django sets Django up after this, if it finds the settings loaded.
    assert settings.DATABASES


@pytest.fixture(scope="session")
def django_db_modify_db_settings(embedded_postgres_url: str) -> None:
    """Point Django at the embedded server; pytest-django then makes its test database there."""
    address = conninfo_to_dict(embedded_postgres_url)
    settings.DATABASES["default"].update({key: str(address.get(part, "")) for key, part in DJANGO_KEYS.items()})
