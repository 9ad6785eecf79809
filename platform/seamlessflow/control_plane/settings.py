"""Django settings of the control plane: everything that may differ between installations comes from the environment.

Web, scheduler, background workers and tests all load this module; a bad variable stops the process here.
"""

import os
import sys

from seamlessflow.control_plane import variables
from seamlessflow.control_plane.exposure import INTERNAL_PATHS, exposure_read
from seamlessflow.core.protocol.live_events import redis_url
from seamlessflow.runtime import plane_variables
from seamlessflow.runtime.artifacts.opening import local_folder
from seamlessflow.runtime.http.limits import MAX_WORKER_BYTES
from seamlessflow.runtime.logs import LINE
from seamlessflow.runtime.variables import InvalidSetting, Reader, made_folder

_PACKAGE = "seamlessflow.control_plane"
_reader = Reader(os.environ)
_read = _reader.read

try:
    SECRET_KEY = SEAMLESSFLOW_SECRET_KEY = _read(plane_variables.SECRET_KEY)
    _database = _read(variables.DATABASE_URL)
    GATEWAY_DATABASE = (
        _read(variables.GATEWAY_DATABASE_URL) if _reader.has(variables.GATEWAY_DATABASE_URL) else None
    )
    BROKER_URL = _read(variables.BROKER_URL)
    BACKGROUND_BROKER_URL = _read(variables.BACKGROUND_BROKER_URL, default=BROKER_URL)
    EVENTS_URL = redis_url(_read(variables.EVENTS_URL, default=BROKER_URL))
    WEB_URL = _read(variables.WEB_URL)
    GATEWAY_URL = _read(variables.GATEWAY_URL)
    ARTIFACT_ROOT_URL = _read(plane_variables.ARTIFACT_ROOT)
    # Where this host keeps files: the store itself if that is a folder, else copies of its files.
    ARTIFACT_ROOT = local_folder(ARTIFACT_ROOT_URL, os.environ)
    INCOMING_DIR = made_folder("ARTIFACT_ROOT", ARTIFACT_ROOT / "incoming")
    MODEL_ROOTS = _read(variables.MODEL_ROOTS)
    HUB_CACHE = _read(variables.HUB_CACHE)
    MAX_UPLOAD_BYTES = _read(variables.MAX_UPLOAD_BYTES)
    WATCHDOG_S = _read(plane_variables.WATCHDOG_S)
    MAX_QUEUED_JOBS = _read(variables.MAX_QUEUED_JOBS)
    POOL_SIZE = _read(variables.DATABASE_POOL)
    LOG_LEVEL = _read(variables.LOG_LEVEL)
    JOIN_TOKEN = _read(variables.JOIN_TOKEN) if _reader.has(variables.JOIN_TOKEN) else ""
    _exposure = exposure_read(_reader, web_url=WEB_URL, secret_key=SECRET_KEY)
except InvalidSetting as error:
    sys.exit(f"seamlessflow: {error}")

# One web process receives uploads of this size in all; they are kept in INCOMING_DIR meanwhile.
MAX_UPLOADS_IN_FLIGHT_BYTES = 4 * MAX_UPLOAD_BYTES
# Failed sign-ins for one name from one address, and from one address, before sign-in is locked, and for how long.
SIGN_IN_FAILURES = 5
SIGN_IN_ADDRESS_FAILURES = 50
SIGN_IN_LOCK_S = 900

DEBUG = False
ROOT_URLCONF = f"{_PACKAGE}.urls"
ASGI_APPLICATION = f"{_PACKAGE}.asgi.application"
AUTH_USER_MODEL = "accounts.User"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
FORMAT_MODULE_PATH = f"{_PACKAGE}.common.formats"

INSTALLED_APPS = [
    f"{_PACKAGE}.common",  # first, so that its templates replace those of the admin site
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    f"{_PACKAGE}.accounts",
    f"{_PACKAGE}.uploads",
    f"{_PACKAGE}.cluster",
    f"{_PACKAGE}.jobs",
    f"{_PACKAGE}.policies",
    f"{_PACKAGE}.scheduling",
    f"{_PACKAGE}.trajectories",
    f"{_PACKAGE}.telemetry",
    f"{_PACKAGE}.storage",
    f"{_PACKAGE}.live",
    f"{_PACKAGE}.dashboard",
]
MIDDLEWARE = [
    f"{_PACKAGE}.common.http.middleware.RequestCounterMiddleware",
    "django.middleware.security.SecurityMiddleware",
    f"{_PACKAGE}.dashboard.content_policy.ContentPolicyMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# Each request of the web process has a thread of its own, so only a pool keeps connections between requests. Other
# processes hold one each; in tests a pool would outlive the test's database.
_options: dict[str, object] = {
    "connect_timeout": "5",
    "application_name": "seamlessflow",
    **_database.options,
}
if POOL_SIZE:
    _options["pool"] = {"min_size": 1, "max_size": POOL_SIZE, "timeout": 10.0}
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _database.name,
        "USER": _database.user,
        "PASSWORD": _database.password,
        "HOST": _database.host,
        "PORT": _database.port,
        "CONN_MAX_AGE": 0 if POOL_SIZE else 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": _options,
    }
}

MODE = _exposure.mode
ALLOWED_HOSTS = _exposure.allowed_hosts
CSRF_TRUSTED_ORIGINS = _exposure.trusted_origins
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _exposure.is_https
# The server that runs this (uvicorn) believes X-Forwarded-Proto only from the proxies that the settings name.
SECURE_SSL_REDIRECT = _exposure.redirects_to_https
SECURE_REDIRECT_EXEMPT = INTERNAL_PATHS
SECURE_HSTS_SECONDS = _exposure.hsts_s
# These two checks demand a promise about other hosts of the domain, which only the domain's owner can give.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_NAME = "seamlessflow_session"
CSRF_COOKIE_NAME = "seamlessflow_csrf"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
LOGIN_URL = "/admin/login/"
LOGIN_REDIRECT_URL = "/"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

STATIC_URL = "/static/"
# Files are served from the installed packages: nothing has to be collected before the first start.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False
# The front end's build names its files by their content.
WHITENOISE_IMMUTABLE_FILE_TEST = r"^/static/dashboard/assets/"
# `common.http.body_gate` bounds bodies before Django sees them; only uploads are larger than this and go to disk.
DATA_UPLOAD_MAX_MEMORY_SIZE = FILE_UPLOAD_MAX_MEMORY_SIZE = MAX_WORKER_BYTES
FILE_UPLOAD_TEMP_DIR = str(INCOMING_DIR)

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        f"{_PACKAGE}.accounts.apis.authentication.ApiTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": [f"{_PACKAGE}.common.http.parsers.JsonParser"],
    "DEFAULT_SCHEMA_CLASS": f"{_PACKAGE}.common.http.openapi.PublishedOperation",
    "EXCEPTION_HANDLER": f"{_PACKAGE}.common.http.problems.exception_handler",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "SeamlessFlow",
    "DESCRIPTION": "Train language models with reinforcement learning: jobs, machines, policy versions, metrics.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SORT_OPERATIONS": True,
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,  # it would repeat each word as its own description
    "ENUM_NAME_OVERRIDES": {
        "MemberRole": "seamlessflow.control_plane.accounts.models.MembershipRole",
        "PhaseRole": "seamlessflow.core.types.tags.Role",
        "PhaseState": "seamlessflow.core.lifecycle.phases.PhaseState",
    },
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "seamlessflow.runtime.logs.UtcFormatter", "fmt": LINE}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        # Django's own handlers would mail administrators; everything goes to the root instead.
        "django": {"handlers": [], "level": LOG_LEVEL, "propagate": True},
        # A refused request is the client's fault; /metrics counts it.
        "django.request": {"level": "ERROR"},
    },
}
