"""Where a process may listen, and what production mode requires."""

import pytest

from seamlessflow.control_plane.exposure import Exposure, exposure_read
from seamlessflow.core.protocol.exposure import Mode, binding_refusal, is_loopback
from seamlessflow.data_plane.config import InvalidSettings, settings_read
from seamlessflow.runtime.variables import InvalidSetting, Reader

STRONG = "correct-horse-battery-staple-" * 2
PRODUCTION = {
    "SEAMLESSFLOW_MODE": "production",
    "SEAMLESSFLOW_WEB_URL": "https://flow.example.org",
    "SEAMLESSFLOW_GATEWAY_URL": "http://gateway:8100",
}


def exposed(secret_key: str = STRONG, **changes: str) -> Exposure:
    environ = PRODUCTION | changes
    return exposure_read(Reader(environ), web_url=environ["SEAMLESSFLOW_WEB_URL"], secret_key=secret_key)


@pytest.mark.parametrize(
    "host,expected",
    [
        ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("[::1]", True), ("LOCALHOST", True),
        ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("web", False), ("", False),
    ],
)  # fmt: skip
def test_only_known_loopback_addresses_count_as_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
    assert (binding_refusal(host, mode=Mode.LOCAL) is None) is expected
    assert binding_refusal(host, mode=Mode.PRODUCTION) is None


def test_a_refusal_to_bind_names_the_address_and_the_accepted_ones() -> None:
    assert binding_refusal("0.0.0.0", mode=Mode.LOCAL) == (
        "--host '0.0.0.0' is reachable from other machines; accepted in mode local: 127.0.0.1, ::1, localhost. "
        "To open it, set SEAMLESSFLOW_MODE=production and the settings that this mode requires"
    )


def test_production_behind_tls_secures_cookies_redirects_and_keeps_to_named_hosts() -> None:
    exposure = exposed(
        SEAMLESSFLOW_ALLOWED_HOSTS="web", SEAMLESSFLOW_TRUSTED_ORIGINS="https://other.example.org"
    )

    assert exposure.is_https
    assert exposure.redirects_to_https
    assert exposure.hsts_s == 365 * 24 * 3600
    assert exposure.allowed_hosts == ["web", "flow.example.org", "127.0.0.1", "localhost", "[::1]"]
    assert exposure.trusted_origins == ["https://flow.example.org", "https://other.example.org"]


def test_a_trial_of_production_mode_on_this_host_needs_no_tls() -> None:
    exposure = exposed(SEAMLESSFLOW_WEB_URL="http://localhost:8000")

    assert (exposure.is_https, exposure.redirects_to_https, exposure.hsts_s) == (False, False, 0)


@pytest.mark.parametrize(
    "secret,changes,named",
    [
        (STRONG, {"SEAMLESSFLOW_WEB_URL": "http://flow.example.org"}, "SEAMLESSFLOW_WEB_URL is 'http://flow"),
        (STRONG, {"SEAMLESSFLOW_ALLOWED_HOSTS": "web,*"}, "SEAMLESSFLOW_ALLOWED_HOSTS is 'web,*'"),
        (STRONG, {"SEAMLESSFLOW_GATEWAY_URL": ""}, "SEAMLESSFLOW_GATEWAY_URL is not set"),
        (
            STRONG,
            {"SEAMLESSFLOW_MODE": "prod"},
            "SEAMLESSFLOW_MODE is 'prod'; accepted: local, private, production",
        ),
        ("x" * 60, {}, "SEAMLESSFLOW_SECRET_KEY is 'made of 1 different characters'"),
        (STRONG[:49], {}, "SEAMLESSFLOW_SECRET_KEY is '49 characters long'"),
    ],
)
def test_production_refuses_weak_settings(secret: str, changes: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        exposed(secret, **changes)

    assert named in str(caught.value)
    assert secret not in str(caught.value)


def test_a_private_network_needs_no_tls_but_a_strong_secret_and_named_hosts() -> None:
    private = {"SEAMLESSFLOW_MODE": "private", "SEAMLESSFLOW_WEB_URL": "http://10.1.2.3:8470"}

    exposure = exposed(**private)
    assert "10.1.2.3" in exposure.allowed_hosts
    assert not exposure.redirects_to_https
    assert binding_refusal("10.1.2.3", mode=Mode.PRIVATE) is None
    assert gateway_faults("10.1.2.3", SEAMLESSFLOW_MODE="private") == ""
    for secret, changes in ((STRONG[:49], {}), (STRONG, {"SEAMLESSFLOW_ALLOWED_HOSTS": "*"})):
        with pytest.raises(InvalidSetting):
            exposed(secret, **private, **changes)


def gateway_faults(host: str, **environ: str) -> str:
    given = {"DATABASE_URL": "postgresql://u@h/d", "SEAMLESSFLOW_SECRET_KEY": STRONG} | environ
    try:
        settings_read(given, host=host, port=8100)
    except InvalidSettings as error:
        return str(error)
    return ""


def test_the_gateway_listens_to_other_hosts_only_in_production_with_a_strong_secret() -> None:
    production = {"SEAMLESSFLOW_MODE": "production"}

    assert gateway_faults("127.0.0.1") == ""
    assert gateway_faults("0.0.0.0", **production) == ""
    assert "--host '0.0.0.0' is reachable" in gateway_faults("0.0.0.0")
    assert "is 20 characters long" in gateway_faults("::", SEAMLESSFLOW_SECRET_KEY="a1b2c" * 4, **production)
    assert "is 'open'; accepted: local, private, production" in gateway_faults(
        "::1", SEAMLESSFLOW_MODE="open"
    )
