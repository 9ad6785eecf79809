"""Which packages are carried to a machine without a network: those that it lacks or has in a version we refuse."""

from packaging.specifiers import SpecifierSet

from deploy.local.carried import frozen_read, missing, requirements_all, target_flags


def test_a_list_of_packages_is_read_by_normal_names_without_local_versions() -> None:
    text = "torch==2.11.0+cu130\nPyYAML==6.0.3\nsome-thing @ file:///somewhere\n\n"
    assert frozen_read(text) == {"torch": "2.11.0", "pyyaml": "6.0.3"}


def test_what_is_there_in_an_accepted_version_is_not_carried() -> None:
    wanted = {
        "there": [SpecifierSet(">=1,<3"), SpecifierSet()],
        "too-old": [SpecifierSet(">=1"), SpecifierSet(">=3")],
        "absent": [SpecifierSet()],
    }
    assert list(missing(wanted, {"there": "2.5", "too-old": "2.5"})) == ["absent", "too-old"]


def test_all_requirements_are_followed_but_never_those_of_torch_alone() -> None:
    found = requirements_all("3.12")
    assert {"django", "deepspeed", "transformers", "pytest-django", "kombu"} <= found.keys()
    assert "psycopg-binary" in found  # by an extra
    assert not {"torch", "triton", "mypy", "playwright"} & found.keys()
    assert not [name for name in found if name.startswith("nvidia-cu")]
    assert any("5.19.0" in str(specifier) for specifier in found["transformers"])


def test_pip_is_told_every_older_platform_by_its_name() -> None:
    flags = target_flags("3.12", "2.35")
    assert {
        "manylinux_2_35_x86_64",
        "manylinux_2_28_x86_64",
        "manylinux_2_5_x86_64",
        "manylinux1_x86_64",
    } <= {*flags}
    assert "manylinux_2_36_x86_64" not in flags
    assert flags[flags.index("--python-version") + 1] == "3.12"
