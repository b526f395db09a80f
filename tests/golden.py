"""Freeze what the code computes: ``python -m tests.golden --write`` makes golden.json, without it compares to the bit.

The results cover every method on rows and on images, with blocks and splits; the path from files to
explanations and reports; sweeps, γ̂ and the check of related tasks. Sentences are not frozen, only their number.
"""

import argparse
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import m2st_core as m2st
from m2st_core.analysis.plan import Plan, carry_out
from m2st_core.analysis.recommendation import advise
from m2st_core.analysis.related import check_uploaded_tasks
from m2st_core.analysis.report import html_report
from m2st_core.data.tables.examples import EXAMPLES
from m2st_core.data.tables.prepare import prepare
from m2st_core.sweeps.cells import run_cell, train_learner
from m2st_core.sweeps.spec import LIMIT, SweepSpec
from tests.quick import QUICK, draw, use_few_steps

GOLDEN = Path(__file__).parent / "golden.json"
KINDS = ("rows", "images")


def machine() -> str:
    """What the last bits of a float depend on."""
    return f"torch {torch.__version__.split('+')[0]}, {torch.backends.cpu.get_cpu_capability()}"


def digest(*values: Any) -> str:
    """A short hash of arrays, numbers and texts."""
    found = hashlib.sha256()
    for value in values:
        array = np.asarray(value)
        found.update(
            repr(array.shape).encode() + (array.tobytes() if array.dtype.kind in "fiub" else repr(value).encode())
        )
    return found.hexdigest()[:16]


def pair(kind: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return draw(kind, rows, 0.0, seed), draw(kind, rows + 1, 0.6, seed + 1)


def related(kind: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {f"task {index}": pair(kind, 14 + index % 2, 100 + 2 * index) for index in range(5 if kind == "rows" else 3)}


def target(method: str, kind: str, rows: int = 8) -> tuple[np.ndarray, np.ndarray]:
    spec = m2st.METHODS[method]
    return pair(kind, (2 if spec.needs_split else 1) * max(rows, spec.min_test_rows), 7)


def numbers_of(result: m2st.TestResult) -> dict[str, Any]:
    """Everything in a result except words and seconds; the names of diagnostics are words."""
    kept = (
        "p_value",
        "p_value_se",
        "statistic",
        "criterion",
        "n_train",
        "n_test",
        "n_permutations",
        "smallest_p",
        "rule",
    )
    return {
        **{name: getattr(result, name) for name in kept},
        "null": digest(result.null),
        "weights": result.weights,
        "diagnostics": [
            digest(*value.values()) if isinstance(value, dict) else value for value in result.diagnostics.values()
        ],
        "enumerated": result.enumerated,
        "splits": result.split_p_values,
        "notes": len(result.notes),
    }


def learner_numbers(learner: m2st.MetaLearner) -> dict[str, Any]:
    tensors = [tensor.cpu().numpy() for tensor in learner.knowledge.state_dict().values()]
    return {
        "tensors": sorted(digest(tensor) for tensor in tensors),
        "course": digest(*vars(learner.course).values()),
        "choices": list(learner.choices.values()),
        "rows": digest(learner.seen.rows, learner.seen.sample),
    }


def tests() -> Iterator[tuple[str, Any]]:
    """Every method, on rows and on images."""
    learners: dict[Any, m2st.MetaLearner] = {}
    for name, method in m2st.METHODS.items():
        for kind in KINDS:
            where = f"{name}, {kind}"
            x, y = target(name, kind)
            options: dict[str, Any] = {"n_permutations": 39, "device": "cpu"}
            if not method.uses_related_tasks:
                yield where, numbers_of(m2st.two_sample_test(x, y, name, **options))
                continue
            key = method.training, kind
            if key not in learners:
                learners[key] = m2st.meta_train(name, related(kind), device="cpu")
                yield f"learner of {where}", learner_numbers(learners[key])
            learner = replace(learners[key], method=name)
            yield where, numbers_of(learner.test(x, y, **options))
            if kind == "rows" and name in QUICK:
                whole = m2st.two_sample_test(x, y, name, related_tasks=related(kind), **options)
                yield f"{where}, in one call", numbers_of(whole)


def variations() -> Iterator[tuple[str, Any]]:
    """Blocks, splits and few rows."""
    for name, method in QUICK.items():
        x, y = target(name, "rows", rows=10)
        more: dict[str, Any] = {"related_tasks": related("rows")} if method.uses_related_tasks else {}
        more |= {"n_permutations": 59, "device": "cpu", "seed": 3}
        if method.needs_split and method.by_permutation:
            yield f"{name}, splits", numbers_of(m2st.two_sample_test(x, y, name, splits=3, **more))
        if method.by_permutation:
            blocks = np.arange(len(x)) % 2, np.arange(len(y)) % 2
            yield f"{name}, blocks", numbers_of(m2st.two_sample_test(x, y, name, blocks=blocks, **more))
        if method.by_permutation and not method.needs_split:
            few = m2st.two_sample_test(x[:4], y[:4], name, **more)
            yield f"{name}, few rows", numbers_of(few)


def files() -> Iterator[tuple[str, Any]]:
    """From example files through cleaning, recommendation and test to effect, explanation and report."""
    for example, entry in EXAMPLES.items():
        data = prepare(entry.load())
        n_tasks = len(data.task_names)
        yield f"{example}: data", [digest(data.x, data.y), list(data.x.shape), n_tasks, len(data.decisions)]
        usable = [name for name in ("Meta-FUSE", "Feature-MKL", "Meta-MKL · tuned") if n_tasks]
        plan = Plan(
            (usable or ["MMD-D · tuned"])[0],
            ("MMD-FUSE", "C2ST-L · tuned", *usable[1:]),
            n_permutations=99,
            family="all",
        )
        outcome = carry_out(data, plan, device="cpu")
        said, shown = outcome.analysis, outcome.explanation
        assert shown is not None
        results = [
            numbers_of(said.primary),
            *(numbers_of(v.result) | {"holm": v.adjusted_p_value} for v in said.secondary),
        ]
        yield f"{example}: results", results
        effect = said.effect
        yield (
            f"{example}: effect",
            [
                effect.mmd2,
                effect.criterion,
                effect.power,
                effect.power_interval,
                effect.rows_for_power,
                len(effect.sentences),
            ],
        )
        yield (
            f"{example}: explanation",
            [
                digest(shown.witness, *shown.axes),
                list(shown.pair),
                digest(shown.importance.loss),
                digest(*shown.typical_x),
            ],
        )
        report = html_report(outcome)
        yield (
            f"{example}: report",
            [len(re.findall(rf"<{tag}[ >]", report)) for tag in ("h1", "h2", "table", "tr", "svg", "p", "li")],
        )
    data = prepare(EXAMPLES["diabetes"].load())
    checked = check_uploaded_tasks(data, device="cpu", repeats=4, most_left_out=3)
    assert checked is not None
    advice = advise(data, check=checked)
    yield "related tasks checked", [digest(checked.table.select_dtypes("number").to_numpy()), checked.unlike]
    yield "recommendation", [advice.method, len(advice.reasons)]


def sweeps() -> Iterator[tuple[str, Any]]:
    """Cells of sweeps, and γ̂."""
    small: dict[str, Any] = {"n_tasks": (3,), "rows_per_task": 14, "m_tr": (8,), "m_te": (8,), "repeats": 1}
    small |= {"tests": 6, "n_permutations": 39}
    methods = (LIMIT, *(name for name, method in QUICK.items() if method.min_test_rows <= 8))
    specs = {
        "hdgm": SweepSpec(methods=methods, **small),
        "digits": SweepSpec(task="digits", methods=("MMD-D · tuned", "Meta-Witness", "Meta-KL · tuned"), **small),
        "paper": SweepSpec(methods=("MMD-O", "Meta-KL", "Meta-MKL"), null=True, **small),
    }
    for name, spec in specs.items():
        learners: dict[str, Any] = {}
        yield f"sweep of {name}", len(list(spec.cells()))
        for cell in spec.cells():
            learner = cell.learner
            if learner is not None and learner.key not in learners:
                learners[learner.key] = train_learner(learner, "cpu")
            measured = run_cell(cell, learners[learner.key] if learner else None, "cpu")
            yield f"sweep of {name}, {cell.method}", [measured.rejections, measured.tests]
    for kind in KINDS:
        gamma = m2st.relatedness(pair(kind, 16, 7), related(kind), restarts=1, max_tasks=2, steps=2, device="cpu")
        yield f"γ̂ of {kind}", [digest(gamma.on_training_rows, gamma.on_test_rows, gamma.same_task)]


def computed() -> dict[str, Any]:
    """All results by name, as JSON has them."""
    with pytest.MonkeyPatch.context() as patch:
        use_few_steps(patch)
        found = dict(item for part in (tests, variations, files, sweeps) for item in part())
    return json.loads(json.dumps(found, default=float))


def differences(found: dict[str, Any], golden: dict[str, Any]) -> list[str]:
    """The names of results that are missing, new, or not equal to the bit."""
    return [name for name in {**golden, **found} if found.get(name) != golden.get(name)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace golden.json")
    if parser.parse_args().write:
        lines = ",\n".join(f"{json.dumps(k, ensure_ascii=False)}: {json.dumps(v)}" for k, v in computed().items())
        GOLDEN.write_text(f'{{"machine": "{machine()}", "results": {{\n{lines}\n}}}}\n', encoding="utf-8")
    else:
        golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
        if golden["machine"] != machine():
            print(f"Made on {golden['machine']}; on {machine()} last bits may differ.")  # noqa: T201
        found = computed()
        for name in differences(found, golden["results"]):
            print(name, golden["results"].get(name), found.get(name), sep="\n    ")  # noqa: T201
        print(f"{len(found)} results, {len(differences(found, golden['results']))} differ")  # noqa: T201
