"""YAML text -> plain values, with the line of every key, and with everything refused that YAML makes ambiguous."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from orchestrator.errors import ScenarioError

Path = tuple[str | int, ...]


@dataclass
class YamlTree:
    """Plain values and, for each path into them, the line it stands on (1-based); `overridden`: paths whose values the
    command line gave instead.
    """

    file: str
    value: Any
    lines: dict[Path, int] = field(default_factory=dict)
    overridden: set[Path] = field(default_factory=set)

    def line_of(self, path: Path) -> int | None:
        """Line of a path, or of the nearest thing that encloses it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def fault(self, path: Path, message: str) -> ScenarioError:
        """At its line of the file, or of the command line, whose values stand on no line."""
        if any(path[: len(own)] == own for own in self.overridden):
            return ScenarioError("command line", None, dotted(path), message)
        return ScenarioError(self.file, self.line_of(path), dotted(path), message)


def dotted(path: Path) -> str:
    """`workloads[0].concurrency` for ("workloads", 0, "concurrency")."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def parse_yaml(data: bytes, file: str, kind: str = "scenario") -> YamlTree:
    """Read one YAML document; ScenarioError with the line for anything that is not plain, unambiguous YAML.

    `kind` is what the file is to be, for messages.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ScenarioError(
            file, line, "", f"is not UTF-8 (byte 0x{data[error.start]:02x}); save the file as UTF-8"
        ) from None
    _refuse_references(text, file, kind)
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            start = "a scenario starts with `name:`" if kind == "scenario" else f"this is no {kind}"
            raise ScenarioError(file, None, "", f"is empty; {start}")
        tree = YamlTree(file, None)
        tree.value = _construct(node, (), tree, loader)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, file, kind) from None
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise ScenarioError(file, line, "", f"has a character that YAML forbids: {error.reason}") from None
    finally:
        loader.dispose()
    if not isinstance(tree.value, dict):
        raise ScenarioError(file, 1, "", f"must be a mapping of keys, not a {type(tree.value).__name__}")
    return tree


def _refuse_references(text: str, file: str, kind: str) -> None:
    """Anchors and aliases hide where a value comes from, so that an error could not name its line."""
    instead = " (engine.settings is shared by all configs, sweep.axes and sweep.zip vary it)"
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.AnchorToken | yaml.AliasToken):
                mark = "&" if isinstance(token, yaml.AnchorToken) else "*"
                raise ScenarioError(
                    file,
                    token.start_mark.line + 1,
                    f"{mark}{token.value}",
                    "YAML anchors and aliases are not supported; write the value out"
                    + (instead if kind == "scenario" else ""),
                )
    except yaml.YAMLError:
        return  # reported with its place by the parser itself


def _syntax_error(error: yaml.MarkedYAMLError, text: str, file: str, kind: str) -> ScenarioError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else None
    source = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
    if "\t" in source[: len(source) - len(source.lstrip())] or "'\\t'" in (error.problem or ""):
        return ScenarioError(file, line, "", "has a tab in its indentation; YAML allows spaces only")
    if "expected a single document" in (error.context or ""):
        return ScenarioError(file, line, "", f"holds several YAML documents (`---`); one file is one {kind}")
    context = f"{error.context}: " if error.context else ""
    return ScenarioError(file, line, "", f"is not valid YAML: {context}{error.problem}")


def _construct(node: yaml.Node, path: Path, tree: YamlTree, loader: yaml.SafeLoader) -> Any:
    tree.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, tree, loader)
    if isinstance(node, yaml.SequenceNode):
        return [_construct(item, (*path, i), tree, loader) for i, item in enumerate(node.value)]
    try:
        return loader.construct_object(node)
    except ValueError as error:
        raise ScenarioError(tree.file, node.start_mark.line + 1, dotted(path), f"cannot be read: {error}") from None


def _mapping(node: yaml.MappingNode, path: Path, tree: YamlTree, loader: yaml.SafeLoader) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if key_node.tag == "tag:yaml.org,2002:merge":
            raise ScenarioError(
                tree.file, line, dotted((*path, "<<")), "YAML merge keys are not supported; write it out"
            )
        key = loader.construct_object(key_node) if isinstance(key_node, yaml.ScalarNode) else None
        if not isinstance(key, str):
            raise ScenarioError(tree.file, line, dotted(path), f"has a key that is not text: {key!r}")
        if key in result:
            first = tree.lines[(*path, key)]
            raise ScenarioError(tree.file, line, dotted((*path, key)), f"is given twice (first on line {first})")
        tree.lines[(*path, key)] = line
        result[key] = _construct(value_node, (*path, key), tree, loader)
    return result
