"""Saved learners that were damaged or forged: one sentence, the same for a folder and for a ZIP."""

import hashlib
import io
import json
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

import m2st_core as m2st

FILES = ("learner.json", "learner.safetensors")


@pytest.fixture(scope="module")
def parts():
    """The JSON and the tensors of a learner, by method."""
    generator = np.random.default_rng(0)
    tasks = [(generator.normal(0, 1, (12, 2)), generator.normal(1, 1, (12, 2))) for _ in range(3)]
    learners = {name: m2st.meta_train(name, tasks) for name in ("Meta-WiTS", "Feature-MKL", "MMD-D w/ AC · tuned")}
    return {
        name: (json.loads(about), packed) for name, (about, packed) in ((k, v.parts()) for k, v in learners.items())
    }


def refused(parts, tmp_path):
    """What loading says, with the folder's name taken out; a folder and a ZIP say the same."""
    said = []
    contents = dict(zip(FILES, (json.dumps(parts[0]).encode(), parts[1]), strict=True))
    folder = tmp_path / "learner"
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    packed = tmp_path / "learner.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    for place in (folder, packed):
        with pytest.raises(ValueError) as caught:
            m2st.open_learner(place)
        said.append(str(caught.value).replace(str(place), "it"))
    assert said[0] == said[1] and "\n" not in said[0]
    assert not any(word in said[0] for word in ("Error", "object", "convert", "invalid literal", "NoneType"))
    return said[0]


def with_tensors(parts, change):
    about, packed = parts
    packed = save(change(load(packed)))
    return about | {"sha256": hashlib.sha256(packed).hexdigest()}, packed


@pytest.mark.parametrize(
    "change",
    [
        {"choices": [1]},
        {"choices": {"beta_is_learned": "yes"}},
        {"choices": None},
        {"seed": float("inf")},
        {"seed": -1},
        {"seed": True},
        {"columns": float("inf")},
        {"columns": "two"},
        {"columns": 10**30},
        {"columns": 10**9},
        {"columns": 10**6},
        {"choices": {"adaptation_steps": 1e9}},
        {"column_names": "ab"},
        {"column_names": [1, 2]},
        {"notes": None},
        {"shape": [1, 10**6, 10**6]},
        {"shape": [3, 10**4, 10**4]},
        {"shape": [1, 2]},
        {"shape": 7},
        {"task_names": "task"},
        {"task_names": [1, 2]},
        {"base_names": None},
        {"method": ["Meta-WiTS"]},
    ],
    ids=str,
)
def test_an_entry_of_another_kind_is_named(parts, change, tmp_path):
    about, packed = parts["Meta-WiTS"]
    (name,) = change
    assert refused((about | change, packed), tmp_path) == (
        f"it holds a damaged learner: learner.json does not say its {name!r}. Train again."
    )


def test_names_for_some_columns_only_are_refused(parts, tmp_path):
    about, packed = parts["Meta-WiTS"]
    assert "does not name all its columns" in refused((about | {"column_names": ["a"]}, packed), tmp_path)


def test_an_entry_that_is_missing_is_named(parts, tmp_path):
    about, packed = parts["Meta-WiTS"]
    without = {name: value for name, value in about.items() if name != "shape"}
    assert "does not say its 'shape'" in refused((without, packed), tmp_path)


@pytest.mark.parametrize("about", [[], 3, None, {}, {"format": "9"}, {"format": [9]}, {"format": 8}])
def test_json_of_something_else_is_refused(parts, about, tmp_path):
    expected = "has learner format" if isinstance(about, dict) else "not the JSON that was saved"
    assert expected in refused((about, parts["Meta-WiTS"][1]), tmp_path)


@pytest.mark.parametrize(
    ("mine", "other"),
    [("Meta-WiTS", "Meta-KL · tuned"), ("Meta-WiTS", "Feature-MKL"), ("MMD-D w/ AC · tuned", "Meta-FUSE")],
)
def test_a_method_that_learns_in_another_way_is_refused(parts, mine, other, tmp_path):
    about, packed = parts[mine]
    assert f"{other} cannot test with it" in refused((about | {"method": other}, packed), tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensor: torch.full_like(tensor, float("nan")), "has no numbers"),
        (lambda tensor: tensor.to(torch.int64), "has no numbers"),
        (lambda tensor: tensor[..., :0].contiguous(), "do not fit"),
        (lambda tensor: tensor[0].contiguous(), "do not fit"),
        (lambda tensor: tensor.to(torch.complex64), "has no numbers"),
    ],
    ids=["NaN", "whole", "empty", "shape", "complex"],
)
def test_tensors_that_are_not_those_saved_are_refused(parts, change, words, tmp_path):
    name = "spaces.0.transform"
    forged = with_tensors(parts["Meta-WiTS"], lambda tensors: tensors | {name: change(tensors[name])})
    assert words in refused(forged, tmp_path)


@pytest.mark.parametrize(
    ("name", "tensor", "words"),
    [
        ("spaces.0.frequencies", torch.zeros(0), "do not fit"),
        ("spaces.0.frequencies", torch.tensor(1.0), "do not fit"),
        ("spaces.0.centre", torch.full((2,), float("inf")), "spaces.0.centre has no numbers"),
        ("spaces.0.log_weight", torch.full((1,), float("inf")), "spaces.0.log_weight has no numbers"),
    ],
    ids=["empty", "one", "infinite", "infinite weight"],
)
def test_tensors_that_would_be_stumbled_over_are_refused(parts, name, tensor, words, tmp_path):
    forged = with_tensors(parts["Meta-WiTS"], lambda tensors: tensors | {name: tensor})
    assert words in refused(forged, tmp_path)


def test_missing_and_further_tensors_are_refused(parts, tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    fewer = with_tensors(parts["Meta-WiTS"], lambda t: {k: v for k, v in t.items() if k != "seen.rows"})
    more = with_tensors(parts["Meta-WiTS"], lambda t: t | {"spaces.0.more": torch.zeros(1)})
    assert "do not fit" in refused(fewer, tmp_path / "a") and "do not fit" in refused(more, tmp_path / "b")


def test_other_columns_than_those_learned_are_refused(parts, tmp_path):
    about, packed = parts["Meta-WiTS"]
    assert "cannot test with it" in refused((about | {"columns": 5}, packed), tmp_path)


@pytest.mark.parametrize("name", ["Meta-WiTS", "Feature-MKL", "MMD-D w/ AC · tuned"])
def test_learners_as_saved_are_read(parts, name, tmp_path):
    about, packed = parts[name]
    for file, content in zip(FILES, (json.dumps(about).encode(), packed), strict=True):
        (tmp_path / file).write_bytes(content)
    assert m2st.load_learner(tmp_path).method == name


def test_deep_json_is_a_sentence(parts, tmp_path):
    (tmp_path / FILES[0]).write_text("[" * 100_000)
    (tmp_path / FILES[1]).write_bytes(parts["Meta-WiTS"][1])
    with pytest.raises(ValueError, match="learner.json is not the JSON that was saved"):
        m2st.load_learner(tmp_path)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("learner.json", "{")
    with pytest.raises(ValueError, match="learner.safetensors is missing"):
        (tmp_path / "x.zip").write_bytes(packed.getvalue())
        m2st.open_learner(tmp_path / "x.zip")
