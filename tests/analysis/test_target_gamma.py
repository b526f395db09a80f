import numpy as np
import pytest

import m2st_core as m2st
from m2st_core.data.arrays import as_two_sample
from m2st_core.testing.methods import METHODS
from m2st_core.testing.plan import TestSettings, plan_test

TASKS = m2st.hdgm_related_tasks(n_tasks=2, rows=40)


@pytest.mark.parametrize("blocks", [False, True])
def test_the_training_part_and_the_tested_rows_are_the_whole_sample(blocks):
    """No row that γ̂ sees is tested: the same seed, fraction and blocks give the same split."""
    x, y = m2st.make_task("hdgm").sample(41, 30, seed=1)
    labels = (np.arange(41) % 3, np.arange(30) % 3) if blocks else None
    settings = TestSettings(train_fraction=0.4, seed=3, n_permutations=99)
    part = plan_test(as_two_sample(x, y, blocks=labels), METHODS["C2ST-L · tuned"], settings).training_rows
    tested = m2st.examine(x, y, "C2ST-L · tuned", settings, blocks=labels)
    for rows, taught, test in zip((x, y), part, tested.test, strict=True):
        together = np.concatenate([taught.numpy(), test[0].numpy()])
        assert np.array_equal(np.sort(together, axis=0), np.sort(rows.numpy(), axis=0))
        assert not set(map(tuple, taught.tolist())) & set(map(tuple, test[0].tolist()))


@pytest.mark.parametrize(
    ("method", "sizes", "exploratory"), [("Meta-WiTS", (20, 15), False), ("Meta-FUSE", (40, 30), True)]
)
def test_it_says_whether_its_labels_are_tested(method, sizes, exploratory):
    x, y = m2st.make_task("hdgm").sample(40, 30, seed=1)
    found = m2st.target_gamma((x, y), TASKS, method)
    assert found.sizes == sizes and found.exploratory is exploratory and found.relatedness.gamma() >= 0
    assert ("exploratory" in found.sentence) is exploratory
    assert found.relatedness.floor > 0 and f"noise floor {found.relatedness.floor:.3f}" in found.sentence


def test_too_few_rows_are_named():
    x, y = m2st.make_task("hdgm").sample(14, 30, seed=1)
    with pytest.raises(ValueError, match="at least 8 rows of each sample. There are 7 and 15"):
        m2st.target_gamma((x, y), TASKS, "Meta-WiTS")
