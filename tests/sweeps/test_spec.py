import pytest

from m2st_core.data import TASKS
from m2st_core.paper.experiments import PAPER
from m2st_core.paper.published import published_gamma, published_power, published_table, with_published
from m2st_core.sweeps.cells import CellResult
from m2st_core.sweeps.cost import TRAINING_COSTS, different_images, predict_cost
from m2st_core.sweeps.grid import as_rows
from m2st_core.sweeps.spec import LIMIT, SpecError, SweepSpec, origin_of
from m2st_core.sweeps.summary import summarise
from m2st_core.testing.methods import METHODS, label_of, trained_by


def test_json_and_toml_give_the_same_spec_and_hash():
    spec = SweepSpec(task="blobs", settings={"correlation": 0.5}, methods=("MMD-M", "MMD-D"), closeness=(0.1, 0.2))
    for again in (SweepSpec.from_json(spec.to_json()), SweepSpec.from_toml(spec.to_toml())):
        assert again == spec and again.hash == spec.hash
    assert spec.with_(seed=1).hash != spec.hash
    assert SweepSpec(settings={"delta": 0.7}).hash == SweepSpec().hash  # a default that is written out changes nothing


def test_every_mistake_is_named_at_once():
    bad = """
    task = "hdgn"
    rule = "best"
    methods = ["MMD-M", "MMD-X", "MMD-M"]
    m_te = []
    m_tr = [1]
    repeats = 0
    alpha = 1.5
    tests = "many"
    colour = "red"
    """
    with pytest.raises(SpecError) as caught:
        SweepSpec.from_toml(bad)
    text = str(caught.value)
    for part in ("'hdgn'", "rule must be", "'MMD-X'", "m_te must list", "m_tr must be", "repeats must be",
                 "alpha must be", "tests must be", "'colour'", "methods lists a value twice"):  # fmt: skip
        assert part in text, part
    assert len(text.splitlines()) == 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"delta": 7}}, "settings: delta must be"),
        ({"task": "blobs", "methods": (LIMIT,)}, "no known likelihood ratio"),
        ({"n_permutations": 9}, "too few for alpha"),
        ({"methods": "MMD-M"}, "methods must list"),
        ({"repeats": 10**9}, "repeats must be a whole number from 1 to"),
    ],
)
def test_what_does_not_fit_together(changes, message):
    with pytest.raises(SpecError, match=message):
        SweepSpec(**changes)


def test_cells_share_what_does_not_differ():
    spec = SweepSpec(methods=("MMD-M", "MMD-D", "Meta-KL", LIMIT), closeness=(0.1, 0.3), m_tr=(10, 20), repeats=2)
    cells = list(spec.cells())
    count = {m: sum(cell.method == m for cell in cells) for m in spec.methods}
    assert count == {"MMD-M": 14, "MMD-D": 28, "Meta-KL": 56, LIMIT: 14}  # 7 sizes × 2 repeats × what they depend on
    learners = {cell.learner.key for cell in cells if cell.learner}
    assert len(learners) == 4  # 2 closenesses × 2 repeats: m_tr and m_te share
    null = {cell.learner.key for cell in spec.with_(null=True, m_te=(33,)).cells() if cell.learner}
    assert null == learners
    kinds = {cell.learner.learn for cell in spec.with_(methods=("Meta-MKL", "Meta-MKL-A")).cells()}
    assert kinds == {"learn_meta_kl"}


def test_methods_share_a_training_if_they_learn_in_the_same_way_with_the_same_settings():
    methods = [method for method in METHODS.values() if method.uses_related_tasks]
    assert {method.learn for method in methods} == TRAINING_COSTS.keys()
    for first in methods:
        assert trained_by(first.training).learn is first.learn
        for second in methods:
            alike = first.learn is second.learn and first.preset is second.preset
            assert (first.training == second.training) == alike, (first.name, second.name)


def test_lines_of_one_algorithm_stand_side_by_side_and_are_found_in_any_spelling():
    names = ("meta-mkl", "Meta-MKL code", "META-MKL · TUNED", "mmd_m")
    spec = SweepSpec(task="HDGM", methods=names, m_te=(50,), repeats=1)
    assert spec.task == "hdgm" and spec.methods == ("Meta-MKL", "Meta-MKL · code", "Meta-MKL · tuned", "MMD-M")
    learners = [cell.learner.learn for cell in spec.cells() if cell.learner]
    assert learners == ["learn_meta_kl", "learn_meta_kl · code", "learn_meta_kl · tuned"]


def test_the_published_p_value_is_another_cell_of_the_same_training():
    exact, published = (next(SweepSpec(methods=("Meta-MKL",), rule=rule).cells()) for rule in ("(1+b)/(1+B)", "b/B, ≥"))
    assert exact.key != published.key and exact.learner.key == published.learner.key


def test_keys_of_stored_results_do_not_change():
    """Stores hold hours of results under these keys."""
    spec = SweepSpec(methods=("Meta-MKL", "MMD-M"), m_te=(50,), repeats=1)
    assert spec.hash.startswith(spec.run_id) and spec.hash == "d45c87617fd25fc2793a02c5bf3d934f"
    with_learner, without = spec.cells()
    assert with_learner.key == "94f15c3e923387780b065ea17497e794" and without.key == "d19b89e1fe47a6c22d024ec84d070c60"
    assert with_learner.learner.key == "8bc23f1ebbe107de84e535e449c2a8e8" and without.learner is None


def test_every_method_has_a_label_and_an_origin_for_tables():
    assert (label_of("Feature-MKL"), origin_of("Feature-MKL")) == ("Feature-MKL (ours)", "ours")
    assert (label_of("Meta-MKL"), origin_of("Meta-MKL")) == ("Meta-MKL", "paper")
    assert (label_of(LIMIT), origin_of(LIMIT)) == (LIMIT, LIMIT)


def test_the_paper_is_registered_with_its_numbers():
    for name, experiment in PAPER.items():
        if experiment.kind != "relatedness":
            assert experiment.spec("full").repeats == 20 and experiment.spec("quick").repeats == 2
            assert len(list(experiment.spec("quick").cells())) < len(list(experiment.spec("full").cells()))
        else:
            with pytest.raises(ValueError, match="a measurement of its own"):
                experiment.spec("full")
        short = experiment.title.lower().replace("ure ", "").replace(" ", "")
        assert name.removesuffix("-all") in short or experiment.kind in ("type-I", "relatedness")
    assert len(PAPER["fig2a"].spec("full").methods) == 10  # nine, and the limit
    table = published_power()
    row = table.query("table == 'Table 6' and n_tasks == 100 and m_te == 200").iloc[0]
    assert (row["power"], row["doubt"]) == (0.759, "")
    assert "misprint" in table.query("table == 'Table 6' and n_tasks == 120 and m_te == 150")["doubt"].iloc[0]
    assert published_gamma()["gamma_hat"].tolist() == [0.035, 0.067, 0.076, 0.104, 0.134]


def test_published_numbers_stand_beside_ours_on_images():
    for name, method in (("table1", "MMD-D"), ("table7", "Meta-MKL"), ("table4", "MMD-D w/ AC"), ("table8", "ME")):
        spec = PAPER[name].spec("full").with_(methods=(method,), m_tr=(100,), m_te=(500,), repeats=1)
        known = published_table(name).query(f"method == {method!r} and m_tr == 100 and m_te == 500")["power"].item()
        ours = with_published(summarise(as_rows((cell, CellResult(5, 100, 1.0)) for cell in spec.cells())))
        assert ours["published"].item() == known
    assert published_table("table1").query("method == 'MMD-D' and m_tr == 100 and m_te == 500")["power"].item() == 0.222


def test_the_cost_of_images_grows_with_what_is_asked():
    spec = PAPER["table1"].spec("full", "tuned")
    cost = predict_cost(spec)
    assert cost.gpu_seconds < cost.seconds and 2**30 < cost.memory_bytes < 4 * 2**30
    assert predict_cost(PAPER["table1"].spec("full")).seconds > 3 * cost.seconds
    assert predict_cost(spec.with_(repeats=10)).seconds == pytest.approx(cost.seconds / 2)
    assert predict_cost(SweepSpec(task="digits-shift")).seconds < predict_cost(SweepSpec(task="cifar10-shift")).seconds
    assert predict_cost(SweepSpec()).gpu_seconds is None


def test_tables_learned_from_cifar100_use_all_its_class_pairs_and_fit_into_memory():
    for name, pairs in (("table1", 45), ("table2", 45), ("table4", 45), ("table7", 4950), ("table8", 4950)):
        quick, full = (PAPER[name].spec(scale) for scale in ("quick", "full"))
        assert full.n_tasks == (pairs,) and quick.n_tasks == (min(pairs, 100),)
        assert all(
            predict_cost(PAPER[name].spec("full", layer)).memory_bytes < 4 * 2**30 for layer in ("tuned", "paper")
        )
    few, all_pairs = (predict_cost(PAPER["table7"].spec("full").with_(n_tasks=(n,))) for n in (100, 4950))
    assert all_pairs.seconds > few.seconds and all_pairs.memory_bytes > few.memory_bytes


@pytest.mark.parametrize("task", TASKS)
def test_a_task_alone_describes_a_sweep(task):
    assert SweepSpec.from_toml(f'task = "{task}"').task == task


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("closeness = [inf]", "closeness must be a finite number ≥ 0. Got inf"),
        ("closeness = [nan]", "closeness must be a finite number"),
        ("n_permutations = 1000000000", "n_permutations must be a whole number from 1 to 1,000,000"),
        ("seed = 99999999999999999999", "seed must be a whole number"),
        ("seed = 1979-05-27", "Got '1979-05-27'"),
        ('methods = [["MMD-M"]]', "Unknown method"),
        ("m_te = [[[1]]]", "m_te must be a whole number"),
        ("[[task]]\nname = 1", "Unknown task"),
        ("m_te = " + "[" * 2000, "described by at most"),
        (".".join("a" * 9000) + " = 1", "described by at most"),
    ],
)
def test_odd_toml_is_a_sentence(text, message):
    with pytest.raises(SpecError, match=message):
        SweepSpec.from_toml(text)


def test_predicted_memory_grows_with_the_permutations():
    spec = SweepSpec(methods=("MMD-M",), m_te=(50,))
    usual, many = (predict_cost(spec.with_(n_permutations=count)).memory_bytes for count in (199, 10**6))
    assert usual < 500 * 2**20 and many > 10**6 * 200
    assert predict_cost(SweepSpec(methods=("limit",), n_permutations=10**6)).memory_bytes > 10**11
    images = SweepSpec(task="digits-shift", methods=("MMD-M",), m_te=(50,))
    assert predict_cost(images.with_(n_permutations=10**6)).memory_bytes > predict_cost(images).memory_bytes + 10**8


def test_class_pairs_share_images():
    """Of CIFAR-10 few do; of CIFAR-100 every image is in some pair. In varying light no two images are the same."""
    assert different_images("cifar10-shift", {}, 1, 100) == pytest.approx(200, rel=0.05)
    assert 8000 < different_images("cifar10-shift", {}, 45, 100) < 9000
    assert different_images("cifar100-shift", {}, 4950, 100) == 50_000
    assert different_images("cifar100-shift", {"lighting": 0.5}, 4950, 100) == 990_000


def test_a_former_preset_is_answered_with_the_names_that_replace_it():
    with pytest.raises(SpecError, match="Unknown entry 'preset'.*'Meta-MKL · code'.*'Meta-MKL · tuned'"):
        SweepSpec.from_toml('preset = "tuned"')
    for name in ("Meta-MKL", "Meta-MKL · code", "Meta-MKL · tuned"):
        assert SweepSpec(methods=(name,)).methods == (name,)
