"""Read YAML files written by people into Pydantic models, with errors that name the line.

YAML only gives the structure; the model gives the types. Every scalar reaches the model as the text in the file,
so that `rack: 010`, `gpu: 1080` and `name: no` are texts and `memory_gib: 1e3` is a number. Only plain null (`~`,
`null`, nothing) becomes None. Tags, merge keys and duplicate keys are refused.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, PrivateAttr, ValidationError, model_validator
from pydantic_core import ErrorDetails

from argosy.errors import InputError, UnknownName

MAX_BYTES = 16 * 2**20  # far larger than any file that a person writes, and far smaller than the memory
MOST_WRONG_KEYS = 50
MAX_VALUES = 500_000  # aliases of aliases can expand a short file to very many values

Loc = tuple[str | int, ...]  # the path to a value: ("nodes", 0, "gpus")
M = TypeVar("M", bound="FileModel")

_YAML = "tag:yaml.org,2002:"
_NULL = f"{_YAML}null"
_KINDS = ("null", "bool", "int", "float", "str", "timestamp", "merge", "value", "map", "seq")
_TAGS = {_YAML + kind for kind in _KINDS}


class BoundedModel(BaseModel):
    """Base of models for untrusted input: the number of keys is limited, since each wrong key is an error."""

    @model_validator(mode="before")
    @classmethod
    def _not_too_many_keys(cls, given: Any) -> Any:
        if isinstance(given, dict) and len(given) > len(cls.model_fields) + MOST_WRONG_KEYS:
            raise ValueError(f"{len(given)} keys, and there are only {len(cls.model_fields)}; remove the others")
        return given


class FileModel(BoundedModel):
    """Base of all models read from files: unknown keys are errors, numbers are finite, values do not change.

    The `description` of a field is shown as the next step when its value is wrong or missing. A validator
    raises ValueError("what is wrong; next step").
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    _source: str | None = PrivateAttr(default=None)
    _lines: dict[Loc, int] = PrivateAttr(default_factory=dict)

    def where(self, *loc: str | int) -> str | None:
        """Return file:line of a value, for checks beyond one field; only the top model of a file knows it."""
        return f"{self._source}:{_line(self._lines, loc)}" if self._source else None


def load_yaml(source: Path | str, model: type[M], error: type[InputError] = InputError, *, name: str = "text") -> M:
    """Read a file (a `Path`) or YAML text (a `str`, called `name` in errors) into a model."""
    if isinstance(source, Path):
        text, name = read_text(source, error), str(source)
    else:
        text = source
    lines: dict[Loc, int] = {}
    try:
        document = _parse(text, lines)
        loaded = model.model_validate(document)
    except _Refused as bad:
        raise error(bad.what, where=f"{name}:{bad.line}", hint=bad.hint) from None
    except ValidationError as invalid:
        # in order of lines, but a misspelt key comes before the missing key that it causes
        problems = sorted(invalid.errors(), key=lambda e: (e["type"] != "extra_forbidden", _line(lines, e["loc"])))
        first, more = _explain(problems[0], model, lines), len(problems) - 1
        count = f" (and {more} more problem{'s' * (more > 1)})" if more else ""
        raise error(first.what + count, where=f"{name}:{first.line}", hint=first.hint) from None
    loaded._source, loaded._lines = name, lines
    return loaded


def read_text(path: Path, error: type[InputError] = InputError) -> str:
    """Return the text of a file of reasonable size; raise the given error if it cannot be read."""
    where = str(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise error("there is no such file", where=where, hint="check the path") from None
    except IsADirectoryError:
        raise error("this is a folder, not a file", where=where, hint="name a file in it") from None
    except OSError as problem:
        raise error(f"cannot be read: {problem.strerror}", where=where, hint="check its rights") from None
    if len(raw) > MAX_BYTES:
        raise error(f"larger than {MAX_BYTES // 2**20} MiB", where=where, hint="is this the file you meant?")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        raise error("not a text file in UTF-8", where=f"{where}:{line}", hint="save it as UTF-8") from None
    if "\0" in text:
        raise error("not a text file: it has zero bytes", where=where, hint="is this the file you meant?")
    return text


class _Refused(Exception):
    """A problem with its line, before the file's name and the kind of error are known."""

    def __init__(self, line: int, what: str, hint: str | None) -> None:
        self.line, self.what, self.hint = line, what, hint


class _Loader(yaml.SafeLoader):
    """A YAML loader that keeps the line of each node, and refuses a key that occurs twice in one mapping."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        first: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise _Refused(line, "a key must be a plain word", "quote the text if it begins with [ or {")
            if key.value in first:
                what = f"the key {key.value!r} is given twice"
                raise _Refused(line, what, f"line {first[key.value]} has it too; remove one")
            first[key.value] = line
        return node


def _parse(text: str, lines: dict[Loc, int]) -> dict[str, Any]:
    """Return the document as text in dicts and lists, and fill `lines`."""
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            raise _Refused(1, "the file is empty", "write at least one `key: value` line")
        document = _build(root, (), lines)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        raise _Refused(*_syntax(problem.problem or "not YAML", text, mark.line + 1 if mark else 1)) from None
    except yaml.reader.ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        what = f"not allowed in YAML: character {problem.character!r}"
        raise _Refused(line, what, "is this a text file?") from None
    except RecursionError:
        raise _Refused(1, "nested too deeply", "does an alias (*name) contain itself?") from None
    if not isinstance(document, dict):
        what = "a list" if isinstance(document, list) else repr(_short(document))
        raise _Refused(1, f"the file should hold `key: value` lines, it holds {what}", None)
    return document


def _syntax(problem: str, text: str, line: int) -> tuple[int, str, str]:
    if "\\t" in problem or "\t" in problem:
        return line, "a tab where YAML wants spaces", "indent with spaces"
    if "expected a single document" in problem or problem == "but found another document":
        return line, "a second document begins (`---`)", "put each document into its own file"
    return line, f"not valid YAML: {problem}", "check indentation, colons, quotes and brackets near there"


def _build(node: yaml.Node, loc: Loc, lines: dict[Loc, int]) -> Any:
    line = node.start_mark.line + 1
    lines.setdefault(loc, line)
    if len(lines) > MAX_VALUES:
        raise _Refused(line, f"more than {MAX_VALUES:,} values", "do aliases (*name) multiply them?")
    if node.tag not in _TAGS:
        raise _Refused(line, f"the tag {_short(node.tag)!r} is not allowed", "write plain values")
    if isinstance(node, yaml.MappingNode):
        values = {}
        for key, value in node.value:
            lines[(*loc, key.value)] = key.start_mark.line + 1
            values[key.value] = _build(value, (*loc, key.value), lines)
        return values
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*loc, i), lines) for i, item in enumerate(node.value)]
    return None if node.tag == _NULL else node.value


def _explain(problem: ErrorDetails, model: type[BaseModel], lines: dict[Loc, int]) -> _Refused:
    """Return one of Pydantic's errors in our own words."""
    loc, kind, value = problem["loc"], problem["type"], problem["input"]
    line, label = _line(lines, loc), _label(loc)
    if kind == "extra_forbidden":
        unknown = UnknownName("key", str(loc[-1]), _keys_at(model, loc[:-1]))
        inside = f" in {_label(loc[:-1])}" if len(loc) > 1 else ""
        return _Refused(line, unknown.what + inside, unknown.hint)
    hint = _description(model, loc)
    if kind == "missing":
        return _Refused(line, f"{label} is missing", hint or f"add `{loc[-1]}:`")
    if value is None:
        return _Refused(line, f"{label} has no value", hint or "write one, or remove the line")
    if kind == "value_error":  # from a validator of ours: "what; next step"
        what, _, step = str(problem["ctx"]["error"]).partition("; ")
        return _Refused(line, f"{label}: {what}", step or hint)
    if kind == "model_type":
        should = "should be `key: value` lines"
    else:  # "Input should be a valid integer, unable to parse …", "String should have at least …"
        should = problem["msg"].split(",")[0].partition(" ")[2]
        should = should.replace("valid integer", "whole number").replace("valid ", "")
    if isinstance(value, dict | list):
        shown = "a list" if isinstance(value, list) else "`key: value` lines"
    else:
        shown = repr(_short(value))
    return _Refused(line, f"{label} {should}, is {shown}", hint)


def _line(lines: dict[Loc, int], loc: Loc) -> int:
    """Return the line of a value, or of the nearest enclosing value that has one."""
    return next((lines[loc[:n]] for n in range(len(loc), -1, -1) if loc[:n] in lines), 1)


def _label(loc: Loc) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc)
    return text.lstrip(".") or "the file"


def _models_at(model: type[BaseModel], loc: Loc) -> list[type[BaseModel]]:
    """Return the models that are allowed at a place: one, unless a field allows several."""
    found = [model]
    for step in loc:
        fields = [m.model_fields[step] for m in found if isinstance(step, str) and step in m.model_fields]
        if fields:
            found = [m for field in fields for m in _models_in(field.annotation)]
    return found


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for part in get_args(annotation) for m in _models_in(part)]


def _keys_at(model: type[BaseModel], loc: Loc) -> list[str]:
    return [name for m in _models_at(model, loc) for name in m.model_fields]


def _description(model: type[BaseModel], loc: Loc) -> str | None:
    """Return the description of the field at a place, or of the nearest one above it."""
    for n in range(len(loc), 0, -1):
        step = loc[n - 1]
        for m in _models_at(model, loc[: n - 1]):
            if isinstance(step, str) and step in m.model_fields:
                text = m.model_fields[step].description
                return f"{step}: {text}" if text else None
    return None


def _short(value: object, width: int = 60) -> str:
    text = str(value)
    return text if len(text) <= width else f"{text[: width - 1]}…"


_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile("".join(rf"(?:{_NUMBER}\s*{unit}\s*)?" for unit in "wdhms"))
_UNIT_S = (604_800.0, 86_400.0, 3_600.0, 60.0, 1.0)


def parse_duration(value: str | float) -> float:
    """Return seconds in '90s', '10m', '6h', '1d12h', '2w' or a bare number of seconds."""
    text = str(value).strip()
    try:
        seconds = float(text)
    except ValueError:
        parts = _DURATION.fullmatch(text)
        seconds = math.nan
        if text and parts:
            seconds = sum(float(number) * unit for number, unit in zip(parts.groups(), _UNIT_S) if number)
    if not 0 <= seconds < math.inf:
        hint = "write 90s, 10m, 6h, 1d12h or a number of seconds ≥ 0"
        raise InputError(f"not a duration: {_short(text)!r}", hint=hint)
    return seconds


def _duration(value: Any) -> float:
    try:
        return parse_duration(value)
    except InputError as bad:  # Pydantic only collects ValueErrors
        raise ValueError(f"{bad.what}; {bad.hint}") from None


# a field in seconds that people write as a duration
Duration = Annotated[float, BeforeValidator(_duration)]
