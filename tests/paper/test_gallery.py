"""The gallery: whether each figure and table agrees with the paper, in a word and in a sentence."""

import pandas as pd
import pytest

from m2st_core.paper import gallery, published, results
from m2st_core.paper.experiments import PAPER
from m2st_core.paper.gallery import agreement_with_paper, gallery_card, gallery_summary, paper_verdict
from m2st_core.paper.published import published_power
from m2st_core.paper.results import commit_results
from m2st_core.sweeps.cells import CellResult
from m2st_core.sweeps.store import Store


@pytest.fixture
def give(tmp_path, monkeypatch):
    """Commit results: as many rejections as published, with ``extra`` for one method, one more in odd repeats."""
    for module in (results, published, gallery):
        monkeypatch.setattr(module, "FOLDER", tmp_path / "reproduction")
    store = Store(tmp_path / "store")
    power = published_power().set_index(["method", "n_tasks", "m_te"])["power"]

    def give_(name, extra=("", 0), repeats=6):
        store.runs.start(PAPER[name].full)
        for cell in PAPER[name].full.cells():
            if cell.repeat < repeats:
                place = cell.method, cell.n_tasks, cell.m_te
                known = power.get(place)
                rate = 0.5 if known is None else float(known if pd.api.types.is_number(known) else known.iloc[0])
                count = round(100 * rate) + cell.repeat % 2 + (extra[1] if cell.method == extra[0] else 0)
                store.cells.add([(cell, CellResult(min(count, 100), 100, 1.0))])
        commit_results(PAPER[name], "paper", store)
        return gallery_card(PAPER[name])

    return give_


def table(**differences):
    """Numbers compared at two sizes."""
    rows = [(m.replace("_", "-"), 50 + i, d) for m, pair in differences.items() for i, d in enumerate(pair)]
    return pd.DataFrame(rows, columns=["method", "m_te", "difference"])


def test_a_sentence_says_who_agrees_and_how_far_the_others_are():
    assert (
        agreement_with_paper(table(Meta_MKL=(1, -2), ME=(0, 0)))
        == "Meta-MKL and ME agree with the paper at every size."
    )
    assert agreement_with_paper(table(Meta_MKL=(1, 1), Meta_KL=(2.2, 2.94))) == (
        "Meta-MKL agrees with the paper at every size; Meta-KL is up to 2.9 standard errors above it."
    )
    assert agreement_with_paper(table(Meta_KL=(-3.0, 1))) == "Meta-KL is 3.0 standard errors below the paper."
    assert agreement_with_paper(table(Meta_KL=(-3.0, 4))) == "Meta-KL is up to 4.0 standard errors away from the paper."


def test_green_needs_every_number(give):
    card = give("fig2a")
    assert (card.run, card.state, card.badge) == ("whole", "agrees", "all 14 agree")
    assert gallery_card(PAPER["fig3c"]).state == "agrees"  # the same numbers
    part = gallery_card(PAPER["table6"])
    assert (part.run, part.state, part.badge) == ("in part", "open", "7 of 41 run, all agree")  # one is a misprint


def test_amber_counts_what_is_off(give):
    card = give("fig2a", extra=("Meta-KL", 30))
    assert (card.state, card.badge) == ("differs", "7 of 14 differ")
    assert card.sentence.startswith("Meta-MKL agrees with the paper at every size; Meta-KL is up to ")


def test_few_repeats_decide_nothing(give):
    card = give("fig2a", repeats=4)
    assert (card.run, card.state, card.badge) == ("in part", "open", "too few repeats") and card.compared.empty


def test_grey_says_why(give):
    assert gallery_card(PAPER["table1"]).badge == "not run" and "GPU" in gallery_card(PAPER["table1"]).sentence
    assert gallery_card(PAPER["gamma"]).badge == "no standard errors"
    card = give("fig3a")
    assert (card.run, card.badge) == ("whole", "no published numbers") and "without numbers" in card.sentence
    card = give("type1", extra=("ME", -50))
    assert "tests keep their level. Those that reject too often: " in card.sentence and "ME (" not in card.sentence


def test_numbers_that_two_figures_share_count_once(give):
    give("fig2a", extra=("Meta-KL", 30))
    cards = [gallery_card(PAPER[name]) for name in ("fig2a", "fig3c", "table1")]
    assert gallery_summary(cards) == (
        "This software has run 2 of the paper's 3 figures and tables. "
        "7 of 14 published numbers lie within two standard errors of ours. Numbers that the paper prints twice count "
        "once."
    )


def test_a_table_on_two_cards_counts_once_and_our_own_entry_not(give):
    give("table3-all")
    cards = [gallery_card(PAPER[name]) for name in ("table3-all", "type1")]
    assert gallery_summary(cards).startswith(
        "This software has run 1 of the paper's 1 figures and tables. In 1 of them every number agrees."
    )
    both = gallery_summary([*cards, gallery_card(PAPER["table3"])])
    assert both.startswith("This software has run 0 of the paper's 1 figures and tables, and 1 more in part. 2 of 2 ")


def test_the_gallery_follows_its_files(give):
    before = {card.experiment.name: card.run for card in gallery.gallery()}
    give("table3-all")
    after = {card.experiment.name: card.run for card in gallery.gallery()}
    assert list(after) == list(PAPER) and (before["table3-all"], after["table3-all"]) == ("no", "whole")


def test_every_experiment_with_numbers_has_a_picture():
    for experiment in PAPER.values():
        assert gallery_card(experiment).picture.startswith("<svg"), experiment.name


def test_the_verdict_names_the_numbers_of_related_tasks_that_agree():
    said = paper_verdict(gallery.gallery())
    assert said.startswith("**Meta-MKL** agrees with the paper for N = 50, 80 and 100 (Figure 2a); it is stronger here")
    assert "**Meta-KL** agrees with the paper for N = 80 and 150;" in said
    assert "would explain Meta-KL at N = 50 and 120, but not Meta-KL at N = 20 and 100 and Meta-MKL at N = 20" in said
    assert paper_verdict([]) == "None of the paper's tables has been compared yet."
