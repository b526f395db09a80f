"""What is installed: the wheel, built from the files that the container's image is built from."""

import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CARDS = "from m2st_core.paper.gallery import gallery; print(*(c.experiment.name for c in gallery() if c.run == 'no'))"


def lines(name):
    return [line.strip() for line in (ROOT / name).read_text(encoding="utf-8").splitlines()]


def data_files():
    """What the package holds besides code."""
    found = (path for path in (ROOT / "m2st_core").rglob("*.*") if "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in found if path.suffix != ".py"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel made of what .dockerignore lets through and the Dockerfile copies, and of nothing else."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    let_through = {line[1:] for line in lines(".dockerignore") if line.startswith("!")}
    assert "*" in lines(".dockerignore")
    for line in lines("Dockerfile"):
        if line.startswith("COPY ") and "--from" not in line:
            for name in shlex.split(line)[1:-1]:
                assert name in let_through, f"{name} is copied, but .dockerignore leaves it out"
                path = ROOT / name
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(path, source / name, ignore=ignored) if path.is_dir() else shutil.copy(path, source)
    code = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(out.glob("*.whl")))


def test_the_wheel_has_the_reproduction_and_all_other_data(wheel):
    there = data_files()
    assert {f"m2st_core/paper/results/{name}" for name in ("about.json", "explanations.csv", "table5.csv")} <= there
    assert there - set(wheel.namelist()) == set()


@pytest.mark.slow
def test_an_installed_copy_shows_what_was_run(wheel, tmp_path):
    """Only the tables on images, which need CIFAR-10.1 and a GPU, say that they were not run."""
    wheel.extractall(tmp_path)
    code = f"import m2st_core; print(m2st_core.__file__); {CARDS}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    place, cards = done.stdout.splitlines()
    assert Path(place).is_relative_to(tmp_path)
    assert cards.split() == ["table1", "table2", "table4", "table7", "table8"]
