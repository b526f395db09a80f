"""The contract of every page in the navigation of the app."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from app import PAGES, TABS
from tests.pages.harness import open_page, run

PATHS = list(dict.fromkeys([*PAGES, *TABS]))
NAMES = [Path(path).stem for path in PATHS]
NUMERIC = ("number_input", "slider", "select_slider")
BOUND = (*NUMERIC, "toggle", "selectbox", "multiselect", "segmented_control")
CONTROLS = (*BOUND, "file_uploader", "button")


def elements(app, kinds):
    return [element for kind in kinds for element in getattr(app, kind)]


def settings(app):
    return {element.key: element.value for element in elements(app, BOUND)}


def another(control):
    """The lowest value of a control, or the next one if it is the current value."""
    if control.type == "select_slider":
        values = control.options[:2]
    else:
        values = (control.min, control.min + control.step)
    first, second = map(type(control.value), values)
    return second if control.value == first else first


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def app(name):
    return open_page(name)


def test_it_opens_with_one_title_and_without_an_error(app):
    assert len(app.title) == 1
    assert not app.error


def test_no_two_controls_have_the_same_label(app):
    once = [control for control in elements(app, CONTROLS) if not str(control.key).endswith("_below")]
    labels = [(control.type, control.label) for control in once]  # "_below": a button again, at a long page's end
    assert len(labels) == len(set(labels))


def test_every_control_has_help(app):
    for control in elements(app, CONTROLS):
        assert control.proto.help, control.label


def test_every_chart_has_a_text(app):
    assert all(chart.proto.alt for chart in app.get("plotly_chart"))


def test_no_key_is_used_twice(app):
    keys = [control.key for control in elements(app, CONTROLS) if control.key]
    assert len(keys) == len(set(keys))


def test_a_rerun_keeps_every_setting(app):
    before = settings(app)
    assert settings(run(app)).items() >= before.items()


def test_its_own_link_brings_every_number_back(name, app):
    """With every number changed, a new session that opens the link has the same settings.

    The browser writes the link, from the name that each control sends along.
    """
    numeric = elements(app, NUMERIC)
    changed = {control.key: another(control) for control in numeric}
    link = {control.proto.query_param_key: str(changed[control.key]) for control in numeric}
    assert "" not in link and len(link) == len(changed)
    opened = settings(open_page(name, **link))
    assert opened.items() >= changed.items()
    for key, value in changed.items():
        app.session_state[key] = value
    assert settings(run(app)).items() >= opened.items()


HOSTILE = ("inf", "1e309", "nan", "-1", "9" * 400, "1.5", "true", "[]", "{}", "", "\u202e\x00漢😀", "<b>", "../..", "٣")
FURTHER = ("run", "share", "task", "experiment", "teacher", "method", "methods")


def links(keys):
    """Addresses that set all controls to something they cannot be, each to another such text, or to several."""
    for first in range(0, len(HOSTILE), 3):
        yield {key: HOSTILE[(first + place) % len(HOSTILE)] for place, key in enumerate(keys)}
    chance = random.Random(0)
    yield {key: chance.sample(HOSTILE, 3) for key in keys}


def test_no_link_breaks_it(name, app, caplog):
    keys = sorted({str(control.key) for control in elements(app, BOUND) if control.key} | set(FURTHER))
    for link in links(keys):
        open_page(name, **link)
        broken = [record.exc_info for record in caplog.records if "could not be shown" in record.getMessage()]
        broken += [record.exc_info for record in caplog.records if "a page failed" in record.getMessage()]
        assert not broken, link


LOADING = """
import ast, sys, threading, streamlit
failed, start = [], threading.Barrier(len(sys.argv) - 1)

def load(path):
    body = [node for node in ast.parse(open(path).read()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    start.wait()
    try:
        exec(compile(ast.Module(body, []), path, "exec"), {})
    except BaseException as error:
        failed.append((path, repr(error)))

tabs = [threading.Thread(target=load, args=(path,)) for path in sys.argv[1:]]
for do in (threading.Thread.start, threading.Thread.join):
    for tab in tabs:
        do(tab)
sys.exit(str(failed) if failed else 0)
"""


def test_tabs_that_are_opened_at_once_do_not_block_one_another():
    """A server that has just started runs the pages themselves, each on a thread: what they import may not cross."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", LOADING, *PATHS], cwd=root, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
