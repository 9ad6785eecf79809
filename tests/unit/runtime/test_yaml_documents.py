"""YAML documents are read safely, and no value is lost in silence."""

import pytest
import yaml

from seamlessflow.runtime.yaml_documents import yaml_document


def test_a_document_is_read_as_safe_yaml_is() -> None:
    assert yaml_document("a: {b: [1, 2.5, x]}\nc: null\n") == {"a": {"b": [1, 2.5, "x"]}, "c": None}
    with pytest.raises(yaml.YAMLError):
        yaml_document("!!python/object/apply:os.system [true]")


@pytest.mark.parametrize("text", ["name: a\nname: b\n", "train:\n  lr: 1\n  lr: 2\n", "- {x: 1, x: 1}\n"])
def test_a_key_that_is_given_twice_is_refused_by_name(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match=r"the key '(name|lr|x)' is given more than once in one mapping"):
        yaml_document(text)
