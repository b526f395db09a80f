"""One name, one procedure with its settings: what each method is called, says of itself, cites and runs."""

import ast
import inspect
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

import m2st_core as m2st
from m2st_core.kernels.base import LinearKernel
from m2st_core.kernels.deep import DeepKernel
from m2st_core.kernels.distance import GaussianKernel
from m2st_core.learners.knowledge import learned_spaces
from m2st_core.learners.raw_features import MetaFeatures
from m2st_core.presets import PAPER, PRESETS, RELEASED, TUNED
from m2st_core.rng import Streams
from m2st_core.testing.method import ORIGINS
from m2st_core.testing.paper_methods import LIU_2021
from m2st_core.types import TwoSample
from tests.quick import few_steps, use_few_steps

ROOT = Path(__file__).parents[2]
METHODS = list(m2st.METHODS.values())
OURS = [method for method in METHODS if method.origin == "ours"]
PAPERS = [method for method in METHODS if method.origin == "paper"]
MARKS = ("learned feature", "Fourier", "linear kernel", "inner product", *(method.name for method in OURS))
by_name = {"ids": lambda value: getattr(value, "name", value)}


@pytest.mark.parametrize("method", METHODS, **by_name)
def test_every_method_says_what_it_is_and_whose(method):
    assert m2st.METHODS[method.name] is method
    assert (
        method.description.endswith(".") and len(method.formula) > 5 and re.search(r"\(\d{4}\)|docs/", method.reference)
    )
    assert method.origin in ORIGINS
    assert not any(method.name in words for words in ORIGINS.values())  # they are true of any choice of methods
    assert method.uses_related_tasks == (method.origin != "general" and method.name != "Omnibus")
    assert method.label == (f"{method.name} (ours)" if method.origin == "ours" else method.name)


def test_names_and_algorithms_belong_together_one_to_one():
    algorithms = {(m.algorithm or m.name, m.fit, m.learn, m.adapt) for m in METHODS}
    names, procedures = ({algorithm[:1] for algorithm in algorithms}, {algorithm[1:] for algorithm in algorithms})
    assert len(algorithms) == len(names) == len(procedures)
    assert len({(method.formula, method.description) for method in METHODS}) == len(METHODS)


def test_the_papers_tests_have_the_settings_of_the_text_of_the_code_and_ours():
    for method in METHODS:
        if not method.algorithm:
            assert method.preset is TUNED and not method.changes
            continue
        suffix = {"paper": "", "released": " · code", "tuned": " · tuned"}[method.preset.name]
        assert method.name == method.algorithm + suffix and method.preset is PRESETS[method.preset.name]
        assert bool(method.changes) == bool(suffix) and method.description.endswith(method.changes)
        text = m2st.METHODS[method.algorithm]
        assert method.look.colour == text.look.colour and method.formula == text.formula


def test_the_code_has_a_line_where_a_test_reads_a_setting_that_it_changes():
    """Methods without one read settings in which the code follows the text."""
    changed = {field.name for field in fields(PAPER) if getattr(PAPER, field.name) != getattr(RELEASED, field.name)}
    assert changed == {"name", "embedding", "meta_network", "meta_kl", "adaptation", "images"}
    assert replace(PAPER.embedding, optimise_frequencies=False) == RELEASED.embedding  # only SCF has frequencies
    assert replace(PAPER.images, meta_kl=RELEASED.images.meta_kl) == RELEASED.images
    with_code = {method.algorithm for method in METHODS if method.preset is RELEASED}
    assert with_code == {"SCF", *(m.algorithm for m in PAPERS if m.algorithm != "MMD-D w/ AC")}


def test_only_the_papers_methods_cite_the_paper():
    citing = [method.name for method in METHODS if "Sutherland (2021)" in method.reference]
    assert citing == [method.name for method in PAPERS] and all(LIU_2021 in method.reference for method in PAPERS)


@pytest.mark.parametrize("method", OURS, **by_name)
def test_none_of_ours_is_called_deep(method):
    told = (method.name, method.label, method.description, method.formula, method.reference, ORIGINS["ours"])
    assert not any("deep" in words.lower() for words in told)
    assert method.reference.startswith("this project")


@pytest.mark.parametrize("method", PAPERS, **by_name)
def test_every_one_of_the_papers_says_that_its_kernel_is_deep(method):
    assert "deep kernel" in method.description or method.description.startswith("MMD-D")
    assert "φ(x)" in method.formula or "k_ω" in method.formula


@pytest.fixture(scope="module")
def knowledge():
    """What a method learns from five tasks, in a step or two; methods that learn alike share it."""
    tasks, known = m2st.hdgm_related_tasks(n_tasks=5, rows=12, seed=1), {}

    def learn(method):
        if method.training not in known:
            known[method.training] = m2st.meta_train(method.name, tasks, seed=2).knowledge
        return known[method.training]

    with pytest.MonkeyPatch.context() as patch:
        use_few_steps(patch)
        yield learn


def target_modules(method, known):
    """Every module of what the method tests a small target with."""
    x, y = m2st.make_task("hdgm").sample(12, seed=3)
    train = TwoSample(x[None], y[None])
    fitted = method.adapt(known, train if method.needs_split else train.pooled, method.preset, [Streams(0)], None)
    if method.name == "Meta-WiTS":
        parts = [posterior.space for posterior in fitted.posteriors]
    else:
        families = getattr(fitted, "families", None)
        parts = [family.kernel for family in families] if families else [fitted.kernel]
    return [module for part in parts for module in part.modules()]


def of_type(modules, *types):
    return [module for module in modules if isinstance(module, types)]


@pytest.mark.parametrize("method", PAPERS, **by_name)
def test_the_papers_methods_have_deep_kernels(knowledge, method):
    known = knowledge(method)
    if method.algorithm == "MMD-D w/ AC":
        assert known.rows is not None and known.kernel is known.base is None
    else:
        assert isinstance(known.kernel, DeepKernel) and isinstance(known.base, DeepKernel) and known.rows is None
    modules = [*known.modules(), *target_modules(method, known)]
    assert of_type(modules, DeepKernel)
    assert not of_type(modules, LinearKernel, GaussianKernel, MetaFeatures)


@pytest.mark.parametrize("method", [m for m in OURS if m.learn], **by_name)
def test_ours_have_features_and_no_deep_kernel(knowledge, method):
    known = knowledge(method)
    modules = [*known.modules(), *target_modules(method, known)]
    assert learned_spaces(known) and of_type(target_modules(method, known), MetaFeatures)
    assert not of_type(modules, DeepKernel) and known.kernel is known.rows is None
    assert isinstance(known.base, LinearKernel) == (method.name == "Feature-MKL")


@pytest.mark.parametrize("algorithm", sorted({method.algorithm for method in PAPERS}))
def test_the_lines_of_an_algorithm_learn_and_test_in_the_same_way(knowledge, algorithm):
    """The parts are those of the same algorithm; only the code has another parametrisation of the widths."""

    def shape_of(modules):
        return [type(module).__name__.removeprefix("Root") for module in modules]

    lines = [method for method in PAPERS if method.algorithm == algorithm]
    learned = [shape_of(knowledge(method).modules()) for method in lines]
    tested = [shape_of(target_modules(method, knowledge(method))) for method in lines]
    assert (
        len(lines) > 1 and all(other == learned[0] for other in learned) and all(other == tested[0] for other in tested)
    )


def test_no_algorithm_asks_for_the_name_of_a_preset():
    for method in METHODS:
        for step in (method.fit, method.learn, method.adapt):
            source = "" if step is None else Path(inspect.getfile(step)).read_text(encoding="utf-8")
            assert "preset.name" not in source and "PRESETS" not in source, method.name


def test_equal_settings_give_equal_kernels_under_any_name(monkeypatch):
    """What a line runs depends on its settings and on nothing else."""
    tasks = m2st.hdgm_related_tasks(n_tasks=5, rows=12, seed=1)
    for name in ("Meta-KL", "Meta-MKL"):
        for line in (name, f"{name} · tuned"):
            monkeypatch.setitem(m2st.METHODS, line, replace(m2st.METHODS[line], preset=few_steps(TUNED)))
        first, second = (m2st.meta_train(line, tasks).knowledge for line in (name, f"{name} · tuned"))
        for key, value in first.state_dict().items():
            assert torch.equal(value, second.state_dict()[key]), key


def strings():
    """Every text of the product, docstrings too, by file; words that are filled in are dots."""
    for path in [*ROOT.glob("m2st_core/**/*.py"), *ROOT.glob("pages/*.py"), ROOT / "app.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
                yield path, " ".join("".join(parts).split())
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path, " ".join(node.value.split())
    for page in (ROOT / "README.md", ROOT / "docs" / "methods.md", ROOT / "docs" / "python.md"):
        yield from ((page, line) for line in page.read_text(encoding="utf-8").splitlines())


def calls_features_deep(text):
    """Whether a clause of a text has both the word “deep” and a word for what is ours."""
    clauses = re.split(r"[.,;:|]\s", text)
    return any(re.search(r"\bdeep\b", part, re.I) and any(mark in part for mark in MARKS) for part in clauses)


def test_the_search_for_wrong_words_finds_them():
    assert calls_features_deep("Feature-MKL has a deep kernel.") and calls_features_deep("a deep linear kernel")
    assert not calls_features_deep("Meta-MKL has deep kernels, Feature-MKL has learned features.")


def test_no_text_calls_features_deep_or_speaks_of_a_warm_start():
    found = list(strings())
    assert len(found) > 3000
    wrong = [(path.name, text) for path, text in found if calls_features_deep(text)]
    wrong += [(path.name, text) for path, text in found if re.search(r"warm.?start", text, re.I)]
    assert not wrong
