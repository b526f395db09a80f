"""The bundled examples go the whole way that files go."""

import numpy as np
import pytest

from m2st_core.data.images.sets import load_digits_by_class
from m2st_core.data.tables.assembled import assemble
from m2st_core.data.tables.checks import check
from m2st_core.data.tables.clean import prepare
from m2st_core.data.tables.examples import EXAMPLES, PIXELS, SENSITIVITY, WORN_LINE, scanner

SIZES = {"scanner": (30, 30, 9), "digits": (30, 30, 28), "diabetes": (18, 34, 8), "hdgm": (200, 200, 20)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_ready_to_test(name):
    upload = EXAMPLES[name].load()
    made = assemble(upload)
    data = prepare(made)
    assert (len(data.x), len(data.y), len(data.related_tasks)) == SIZES[name]
    assert all(x.shape[1] == y.shape[1] == data.x.shape[1] for x, y in data.related_tasks.values())
    assert upload.digest == EXAMPLES[name].load().digest
    report = check(made)
    assert not any("are in both" in note for note in report.notes)
    labels = {(pair.p.label, pair.q.label) for pair in made.pairs}
    assert len(labels) == 1, "a group keeps its side in every task"


def test_three_of_them_are_real_and_the_first_says_what_is_simulated():
    assert [example.source.split()[0] for example in EXAMPLES.values()] == ["Real", "Real", "Real", "Simulated."]
    assert next(iter(EXAMPLES)) == "scanner" and "simulated wear" in EXAMPLES["scanner"].source


def test_no_patient_is_in_two_tasks():
    made = assemble(EXAMPLES["diabetes"].load())
    assert len(made.rows) == 442 and made.target.p.label == "slow"
    ages = made.numbers("age (years)")
    bands = [np.concatenate([ages[p], ages[q]]) for p, q in made.spans]
    assert bands[0].min() == 65 and all(a.max() < b.min() for a, b in zip(bands[1:-1], bands[2:], strict=True))


def test_digits_of_the_target_are_in_no_task():
    names = [pair.name for pair in assemble(EXAMPLES["digits"].load()).related]
    assert len(names) == 28 and not any("3" in name or "8" in name for name in names)


def test_the_scanner_lost_a_quarter_of_one_line_and_no_image_is_used_twice():
    made = assemble(scanner())
    ink = np.column_stack([made.numbers(name) for name in PIXELS]).reshape(-1, 8, 8)
    originals = np.rint(16 * np.concatenate(load_digits_by_class())).reshape(-1, 8, 8)
    known = {image.tobytes(): index for index, image in enumerate(np.delete(originals, WORN_LINE, axis=1))}
    images = [known[image.tobytes()] for image in np.delete(ink, WORN_LINE, axis=1)]
    assert len(images) == 60 + 9 * 150
    worn = np.concatenate([np.arange(q.start, q.stop) for _, q in made.spans])
    expected = originals[images]
    expected[worn, WORN_LINE] = np.rint(SENSITIVITY * expected[worn, WORN_LINE])
    assert np.array_equal(ink, expected)
    again = assemble(scanner(draw=1))
    assert again.tables[1].digest == made.tables[1].digest and again.tables[0].digest != made.tables[0].digest
