"""The bundled examples go the whole way that files go."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from m2st_core.data.tables.assemble import assemble
from m2st_core.data.tables.check import check
from m2st_core.data.tables.examples import EXAMPLES, FORMS, PIXELS, WRITERS, handwriting
from m2st_core.data.tables.prepare import prepare

SIZES = {"handwriting": (15, 15, 4), "digits": (30, 30, 28), "diabetes": (18, 34, 8), "hdgm": (200, 200, 20)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_ready_to_test(name):
    upload = EXAMPLES[name].load()
    made = assemble(upload)
    data = prepare(made)
    assert (len(data.x), len(data.y), len(data.task_names)) == SIZES[name]
    assert data.related.rows.shape[-1] == data.x.shape[1] == data.y.shape[1]
    assert upload.digest == EXAMPLES[name].load().digest
    report = check(made)
    assert not any("equal one of the other" in note for note in report.notes)
    labels = {(pair.p.label, pair.q.label) for pair in made.pairs}
    assert len(labels) == 1, "a group keeps its side in every task"


def test_three_of_them_are_real():
    assert [example.source.split()[0] for example in EXAMPLES.values()] == ["Real", "Real", "Real", "Simulated."]
    assert next(iter(EXAMPLES)) == "handwriting"


def test_no_patient_is_in_two_tasks():
    made = assemble(EXAMPLES["diabetes"].load())
    assert len(made.rows) == 442 and made.target.p.label == "slow"
    ages = made.numbers("age (years)")
    bands = [np.concatenate([ages[p], ages[q]]) for p, q in made.spans]
    assert bands[0].min() == 65 and all(a.max() < b.min() for a, b in zip(bands[1:-1], bands[2:], strict=True))


def test_digits_of_the_target_are_in_no_task():
    names = [pair.name for pair in assemble(EXAMPLES["digits"].load()).related]
    assert len(names) == 28 and not any("3" in name or "8" in name for name in names)


def test_forms_repeat_the_same_digits():
    digits = load_digits().target
    for first, last in FORMS:
        written = "".join(map(str, digits[first:last]))
        assert 126 <= len(written) <= 130 and written.startswith("0123456789" * 3 + "09556509898417735100")


@pytest.mark.parametrize("same", [False, True])
def test_hands_keep_their_group_and_no_digit_is_used_twice(same):
    made = assemble(handwriting(same=same))
    ink = np.column_stack([made.numbers(name) for name in PIXELS])
    known = {image.tobytes(): index for index, image in enumerate(load_digits().data)}
    used = [known[image.tobytes()] for image in ink]
    assert len(set(used)) == len(used) == len(ink)
    for place, (p, q) in enumerate(made.spans):
        for rows, writer in ((p, WRITERS[0]), (q, WRITERS[0] if same and place == 0 else WRITERS[1])):
            first, last = FORMS[writer]
            assert all(first <= index < last for index in used[rows])
    assert assemble(handwriting(1, same=same)).tables[0].digest != made.tables[0].digest
