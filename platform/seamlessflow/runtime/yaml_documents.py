"""Loads a YAML document safely. A mapping that gives a key twice is refused: one of its values would be lost."""

from typing import Any

import yaml


class UniqueKeyLoader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    problem = f"the key {key.value!r} is given more than once in one mapping"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def yaml_document(text: str | bytes, loader: type[UniqueKeyLoader] = UniqueKeyLoader) -> Any:
    """Return the document's value. Raises yaml.YAMLError, and ValueError for an invalid date or number."""
    reader = loader(text)
    try:
        return reader.get_single_data()
    finally:
        reader.dispose()
