"""Results that come with the software were made by this version of the code."""

import numpy as np
import pytest

from benchmarks.shipped import compute_cell, learn, power, view
from m2st_core.studies import lessons, shipped
from m2st_core.studies.explore import GRID
from m2st_core.studies.images import ALONE, STORY, TAUGHT, shipped_story, story_finding
from m2st_core.studies.lessons import OWN_ROWS, LessonCell, home_table
from m2st_core.studies.one_test import OneTest, SingleTest
from m2st_core.studies.shipped import load_shipped, shipped_stamp
from m2st_core.sweeps.cells import run_cell
from m2st_core.types import DEFAULT_TAUGHT_TEST, GENERIC_TEST

METHODS_OF = {
    "home": (GENERIC_TEST, lessons.TAUGHT),
    "course": (GENERIC_TEST, lessons.TAUGHT, DEFAULT_TAUGHT_TEST),
    "one_test": (SingleTest().method, SingleTest().baseline),
    "image_story": STORY.methods,
    "explore": GRID.methods,
    "theorem": (),
}
TEST, HOME = SingleTest().shipped(), home_table()


@pytest.mark.parametrize("name", METHODS_OF)
def test_results_are_of_this_version_and_small(name):
    """If not: python -m m2st_core bench shipped NAME."""
    assert load_shipped(name).stamp == shipped_stamp(METHODS_OF[name])
    assert (shipped.FOLDER / f"{name}.npz").stat().st_size < (600_000 if name == "explore" else 100_000)


def test_no_other_file_is_shipped():
    assert {path.stem for path in shipped.FOLDER.iterdir()} == set(METHODS_OF)


def test_only_the_default_settings_have_a_shipped_result():
    assert SingleTest(n=99).shipped() is None


def test_what_is_saved_is_read_again(tmp_path):
    TEST.packed().save("test", tmp_path)
    test = OneTest.unpacked(load_shipped("test", tmp_path))
    assert test == TEST and test.result.null.tolist() == TEST.result.null.tolist()


def test_the_test_without_related_tasks_is_computed_again():
    result, computed = TEST.without, SingleTest(method=SingleTest().baseline).run().result
    assert result.method == computed.method and result.n_test == computed.n_test == (500, 500)
    assert result.p_value == pytest.approx(computed.p_value, abs=0.005)
    np.testing.assert_allclose(np.sort(result.null), np.sort(computed.null), rtol=0.05, atol=1e-3)
    assert (TEST.result.method, TEST.result.n_train, TEST.result.n_test) == ("Meta-MKL", (100, 100), (400, 400))


@pytest.mark.parametrize("seed", [0, 5])
def test_views_of_home_through_a_generic_kernel_are_computed_again(seed):
    again = view(seed)
    assert again.p_value == pytest.approx(HOME.generic_p[seed], abs=0.005)
    assert np.abs(again.field.astype(int) - HOME.generic_field[seed]).max() <= 1


def test_a_view_and_the_power_of_the_taught_test_are_computed_again():
    index, learner = lessons.CLOSENESSES.index(0.3), learn(0.3, 0)
    again = view(4, learner)
    assert again.p_value == pytest.approx(HOME.taught_p[index, 4], abs=0.02)
    assert np.abs(again.field.astype(int) - HOME.taught_field[index, 4]).max() <= 5
    assert power(0, learner) == pytest.approx(HOME.taught_power[index, 0], abs=0.03)


def test_related_tasks_help_the_more_the_more_related_they_are():
    generic, taught = HOME.generic_power.mean(), HOME.taught_power.mean(axis=1)
    assert taught[-1] > taught[0] and taught[-1] > 5 * generic


def test_the_course_has_every_setting_of_its_controls_and_no_other():
    assert load_shipped("course").values["cells"] == [cell.key for cell in lessons.every_lesson_cell()]


@pytest.mark.parametrize(
    "cell",
    [LessonCell("MMD-M", 50, 0.9), LessonCell(OWN_ROWS, 50, 0.9, 20), LessonCell("Meta-Witness", 20, 0.9, 3)],
    ids=lambda c: c.key,
)
def test_a_cell_of_the_course_is_what_the_code_computes(cell):
    """Processors round differently, so that single labellings of a learned test change their rank."""
    assert lessons.lesson_p_values(cell) == pytest.approx(compute_cell(cell), abs=0.03)


def test_methods_test_the_same_samples():
    first, second = (LessonCell(name, 20, 0.7, n).samples() for name, n in (("MMD-M", 0), ("Meta-Witness", 40)))
    assert (first.x == second.x).all() and (first.y == second.y).all()


def test_the_story_of_the_course_holds():
    """Related tasks find most, few own rows nothing; tasks about something else mislead all but Meta-FUSE."""

    def share(*cell, **more):
        return np.mean(lessons.lesson_p_values(LessonCell(*cell, **more)) <= 0.05)

    assert share("Meta-Witness", 100, 0.7, 40) > 0.7 > 0.2 > share("MMD-M", 100, 0.7)
    assert share(OWN_ROWS, 100, 0.7, 20) < share("MMD-M", 100, 0.7) + 0.05 < share(OWN_ROWS, 100, 0.7, 800)
    assert share("MMD-M", 800, 0.7) >= 0.8
    generic = share("MMD-M", 100, shifted=True)
    assert share("Meta-Witness", 100, learned_from=40, shifted=True) < generic / 2
    assert share("Meta-FUSE", 100, learned_from=40, shifted=True) > generic - 0.15
    for rows in lessons.ROWS:
        assert share("MMD-M", rows, 0.0) <= 0.12  # 100 tests at 5 %


def test_the_images_of_the_story_are_those_that_its_study_shows():
    explanation, shown = shipped_story().explanation, STORY.shown()
    assert explanation.n == max(STORY.m_te)
    images = np.concatenate([shown.x, shown.y]).reshape(explanation.images.shape)
    assert explanation.images == pytest.approx(images, abs=0.002)


def test_a_rejection_rate_of_the_story_is_computed_again():
    """MMD-M of one repeat at 20 images. The others have the same seeds, and the mean over repeats is stored."""
    cells = [cell for cell in STORY.spec.cells() if cell.method == "MMD-M" and cell.m_te == 20]
    rates = [run_cell(cell, None, "cpu").rejections / STORY.tests for cell in cells]
    power = shipped_story().power.set_index(["method", "m_te"])["rate"]
    assert float(power["MMD-M", 20]) == pytest.approx(np.mean(rates), abs=0.02)


def test_the_finding_of_the_story_is_computed_from_its_numbers():
    power = shipped_story().power
    assert set(power["method"]) == {*TAUGHT, *ALONE} and set(power["m_te"]) == set(STORY.m_te)
    best = power[(power["m_te"] == 100) & power["method"].isin(TAUGHT)]["rate"].max()
    assert f"**{100 * best:.0f} %**" in story_finding(power)
