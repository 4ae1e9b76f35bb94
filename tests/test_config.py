"""YAML with line numbers: every mistake is named with its line, its value and the next step."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field, model_validator

from argosy import config
from argosy.config import Duration, FileModel, load_yaml, parse_duration
from argosy.errors import ClusterError, InputError


class Wheel(FileModel):
    size: int = Field(ge=1, description="inches")
    colour: str = "black"


class Car(FileModel):
    name: str
    wheels: list[Wheel] = Field(default_factory=list)
    spare: Wheel | None = None
    pause: Duration = 0.0
    doors: int = 4

    @model_validator(mode="after")
    def _enough_wheels(self) -> Car:
        if self.name == "unicycle" and len(self.wheels) != 1:
            raise ValueError("a unicycle has one wheel; add one")
        return self


def refusal(text: str | Path) -> InputError:
    with pytest.raises(InputError) as caught:
        load_yaml(text, Car)
    return caught.value


def test_types_come_from_the_model_not_from_yaml() -> None:
    car = load_yaml("name: no\nwheels: [{size: 17, colour: 010}]\ndoors: '5'\npause: 1h30m\nspare: ~\n", Car)
    assert (car.name, car.doors, car.pause, car.spare) == ("no", 5, 5400.0, None)
    assert car.wheels == [Wheel(size=17, colour="010")]


def test_anchors_may_repeat_a_value() -> None:
    car = load_yaml("name: a\nwheels: [&w {size: 3}, *w]\n", Car)
    assert [w.size for w in car.wheels] == [3, 3]


def test_where_knows_the_line_of_every_value() -> None:
    car = load_yaml("name: a\nwheels:\n  - size: 1\n  - colour: red\n    size: 2\n", Car, name="car.yaml")
    assert car.where("wheels", 1, "size") == "car.yaml:5"
    assert car.where("wheels", 1, "nothing") == "car.yaml:4"  # the nearest thing around it
    assert Car(name="made in code").where("name") is None


@pytest.mark.parametrize(
    ("text", "line", "what", "hint"),
    [
        ("", 1, "empty", "key: value"),
        ("# only a comment\n", 1, "empty", "key: value"),
        ("- a\n- b\n", 1, "holds a list", None),
        ("just words\n", 1, "holds 'just words'", None),
        ("name: a\n\twheels: 3\n", 2, "tab", "spaces"),
        ("name: [a\n", 2, "not valid YAML", "brackets"),
        ("name: a\n---\nname: b\n", 2, "second document", "own file"),
        ("name: a\nname: b\n", 2, "'name' is given twice", "line 1"),
        ("name: a\nspare: {size: 1, size: 2}\n", 2, "'size' is given twice", "line 2"),
        ("? [a]\n: b\n", 1, "a key must be a plain word", None),
        ("name: !!python/object/apply:os.getcwd []\n", 1, "tag", "plain values"),
        ("name: !secret a\n", 1, "tag '!secret'", "plain values"),
        ("name: a\n<<: {doors: 3}\n", 2, "unknown key '<<'", None),
        ("name: a\nzzz: red\n", 2, "unknown key 'zzz'", "known: doors, name, pause, spare, wheels"),
        ("name: a\nwheels:\n  - size: 1\n    color: red\n", 4, "'color' in wheels[0]", "did you mean colour"),
        ("name: a\nspare:\n  siez: 3\n", 3, "'siez' in spare", "did you mean size"),
        ("nmae: a\n", 1, "unknown key 'nmae' (and 1 more problem)", "did you mean name"),
        ("doors: 3\n", 1, "name is missing", "add `name:`"),
        ("name: a\nwheels:\n  - {colour: red}\n", 3, "wheels[0].size is missing", "size: inches"),
        ("name: a\nwheels:\n", 2, "wheels has no value", "remove the line"),
        ("name: a\ndoors: many\n", 2, "doors should be a whole number, is 'many'", None),
        ("name: a\nspare: {size: 0}\n", 2, "size should be greater than or equal to 1, is '0'", "inches"),
        ("name: a\nspare: 17\n", 2, "spare should be `key: value` lines, is '17'", None),
        ("name: a\nwheels: {size: 1}\n", 2, "wheels should be a list, is `key: value` lines", None),
        ("name: a\ndoors: [1]\n", 2, "is a list", None),
        ("name: a\npause: soon\n", 2, "pause: not a duration: 'soon'", "90s"),
        ("name: a\npause: -3\n", 2, "not a duration: '-3'", "90s"),
        ("name: unicycle\n", 1, "the file: a unicycle has one wheel", "add one"),
        ("name: \x07\n", 1, "not allowed in YAML", "text file"),
        ("name: &a [*a]\n", 1, "nested too deeply", "alias"),
        ("name: " + "[" * 1200, 1, "nested too deeply", "alias"),
        ("name: " + "x" * 500 + "\ndoors: " + "y" * 500, 2, "y…'", None),
    ],
)
def test_mistakes(text: str, line: int, what: str, hint: str | None) -> None:
    error = refusal(text)
    assert error.where == f"text:{line}"
    assert what in error.what
    assert hint is None or hint in (error.hint or "")
    assert len(str(error)) < 400


def test_aliases_can_not_multiply_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "MAX_VALUES", 1000)
    doubling = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40)]
    assert "more than 1,000 values" in refusal("\n".join(doubling)).what


def test_the_callers_error_class_and_the_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "car.yaml"
    path.write_text("name: a\ndoors: x\n")
    with pytest.raises(ClusterError) as caught:
        load_yaml(path, Car, ClusterError)
    assert str(caught.value).startswith(f"{path}:2: doors should be")


def test_byte_order_mark_and_windows_lines_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "car.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: a\r\ndoors: 3\r\n")
    assert load_yaml(path, Car).doors == 3


@pytest.mark.parametrize(
    ("raw", "line", "what"),
    [
        (b"name: a\n\xff\xfe", ":2", "not a text file in UTF-8"),
        (b"name: a\0b", "", "zero bytes"),
        (b"#" * (config.MAX_BYTES + 1), "", "larger than 16 MiB"),
    ],
)
def test_files_that_are_not_text(tmp_path: Path, raw: bytes, line: str, what: str) -> None:
    path = tmp_path / "car.yaml"
    path.write_bytes(raw)
    error = refusal(path)
    assert error.where == f"{path}{line}"
    assert what in error.what


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "none.yaml").what
    assert "folder" in refusal(tmp_path).what
    assert "cannot be read" in refusal(tmp_path / ("n" * 300)).what


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("6h", 21_600),
        ("1d12h", 129_600),
        ("1d 12h", 129_600),
        ("2w", 1_209_600),
        ("1.5h", 5400),
        ("0", 0),
        ("45", 45),
        (45, 45),
        (2.5, 2.5),
        (" 10 m ", 600),
        ("1e3", 1000),
    ],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "h", "-1", "-1h", "10x", "1h1d", "1h1h", "1h30", "nan", "inf", float("nan"), True]
)
def test_not_durations(text: str | float) -> None:
    with pytest.raises(InputError, match="not a duration"):
        parse_duration(text)


@given(st.integers(0, 9), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
@example(0, 0, 0, 0)
def test_a_duration_is_the_sum_of_its_parts(d: int, h: int, m: int, s: int) -> None:
    assert parse_duration(f"{d}d{h}h{m}m{s}s") == ((d * 24 + h) * 60 + m) * 60 + s
