"""An outcome in words: the methods section, the assumptions, and how to repeat it elsewhere."""

from __future__ import annotations

import platform
import re
import shlex
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

from m2st_core.analysis.own_data import Outcome, Plan
from m2st_core.data.tables.encoding import Cleaning
from m2st_core.data.tables.examples import EXAMPLES
from m2st_core.data.tables.files import read_files
from m2st_core.data.tables.upload import Upload
from m2st_core.presets import PRESETS
from m2st_core.testing.methods import METHODS
from m2st_core.types import VERSION

OWN_WORK = re.compile(r"this project: .*?\)")  # up to the document that describes it
TITLE = re.compile(r"\((\d{4})\),[^;]*")  # what follows the authors and the year
LEARNED = {"ours": "features", "paper": "deep kernels"}  # what related tasks teach, by whose the method is
LIBRARIES = ("torch", "numpy", "pandas", "scipy", "plotly")
PHIPSON = "Phipson, Smyth (2010), Permutation p-values should never be zero"
GASPARIN = "Gasparin, Wang, Ramdas (2025), Combining exchangeable p-values"
HOLM = "Holm (1979), A simple sequentially rejective multiple test procedure"
ASSUMPTIONS = (
    "Rows are independent of each other. Several rows of one person, site or day are not: name that column as the "
    "block, or keep one row of each.",
    "If P and Q are the same, it does not matter which row carries which label (exchangeability). Groups that were "
    "collected differently may differ for that reason alone, and the test may say so.",
    "No row is in both groups.",
    "The test was chosen before its result was seen. If several were tried, all of them are reported.",
    "A small p-value says that the groups differ somehow, not how much it matters; a large one does not show that they "
    "are the same.",
)
HISTORY = (
    "What related tasks taught finds differences like those seen before, and may miss others. No tested row may have "
    "taught with its label: rows that are recognised in both were left out of the related tasks, and rows with few "
    "different values cannot be recognised one by one. If none remains, related tasks make the test stronger or weaker "
    "and leave its level as it is."
)


@dataclass(frozen=True)
class Origin:
    """Where the data came from, for code that repeats the outcome: files, or an example; and the roles of columns."""

    target: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    example: str = ""
    group: str | None = None
    task: str = "task"
    related_group: str | None = None
    learner: str = ""

    def upload(self) -> Upload:
        """Read it."""
        if self.example:
            if self.target or self.related:
                raise ValueError("Bring files or take an example, not both.")
            return EXAMPLES.find(self.example).load()
        target = read_files(self.target)
        if len(target) != (1 if self.group else 2):
            wanted = "one file with a group column" if self.group else "two files, or one with --group-column"
            raise ValueError(f"test needs {wanted}. Got {len(target)}.")
        return Upload(target, read_files(self.related), self.group, self.task, self.related_group)


def versions() -> dict[str, str]:
    """What computed it."""
    return {"m2st": VERSION, "Python": platform.python_version()} | {n: metadata.version(n) for n in LIBRARIES}


def assumptions(outcome: Outcome) -> tuple[str, ...]:
    """What has to hold for the p-value to mean what it says, in plain words."""
    said = list(ASSUMPTIONS)
    record = outcome.data.record.get("cleaning", {})
    if outcome.data.x_blocks is not None:
        said[0] = (
            f"Within each block of {record['block']!r} rows are exchangeable; blocks may differ from each other as "
            "much as they like, because labels are permuted within them only."
        )
    if METHODS[outcome.plan.primary].uses_related_tasks:
        said.append(HISTORY)
    if not outcome.analysis.primary.exact:
        said.append("This p-value is not exact: it relies on large samples, or leaves the observed labelling out.")
    return tuple(said)


def methods_sentence(outcome: Outcome) -> str:
    """What to write in the methods section of a paper."""
    result, data = outcome.analysis.primary, outcome.data
    method = METHODS[result.method]
    learned = ""
    if method.uses_related_tasks:
        learner = outcome.learners[result.method]
        count = len(learner.task_names)
        learned = f" whose {LEARNED[method.origin]} were learned from {count} related comparisons"
        if learner.knowledge.kernel is not None and PRESETS[result.preset].meta_network.pretraining is not None:
            learned += ", starting from a classifier of them (a setting of m2st)"
    if any(result.n_train):
        verb = "adapted" if method.uses_related_tasks else "learned"
        learned += f", {verb} on {result.n_train[0]} and {result.n_train[1]} other rows"
    blocks = " within blocks" if data.x_blocks is not None else ""
    if not result.by_permutation:
        how = "the statistic's asymptotic distribution"
    elif result.enumerated:
        how = f"all {result.n_permutations + 1} labellings{blocks}"
    else:
        how = f"{result.n_permutations} random permutations{blocks}"
        how += "" if result.at_floor else f" (Monte-Carlo standard error {result.p_value_se:.2g})"
    if result.split_p_values:
        count = len(result.split_p_values)
        how += f" under each of {count} random splits, combined as twice the smallest running median"
    others = ", ".join(f"{name}{_by_us(name)}" for name in outcome.plan.secondary)
    together = "together with the primary test" if outcome.plan.family == "all" else "among themselves"
    second = f" Secondary tests ({others}) were corrected by Holm's procedure, {together}." if others else ""
    if others and outcome.plan.family == "all":
        second += f" The primary test's corrected p is {outcome.analysis.decision.adjusted_p_value:.4g}."
    return (
        f"{result.n_test[0]} rows of “{data.x_name}” and {result.n_test[1]} rows of “{data.y_name}”, described by "
        f"{len(data.features)} variables, were compared by the two-sample test {result.method} "
        f"({cited(method.reference)}; preset {result.preset}){learned}; "
        f"it was declared the primary test beforehand. {result.p_words}, from {how}; level {result.alpha:g}, "
        f"seed {result.seed}, m2st {VERSION}.{second}"
    )


def _by_us(name: str) -> str:
    """What to add to the names of our tests in somebody else's paper."""
    return " of m2st" if METHODS[name].origin == "ours" else ""


def cited(reference: str) -> str:
    """A reference as it is cited within a sentence: authors and year.

    >>> cited("this project: a thing (docs/thing.md), after Kübler, Muandet (2022), A witness two-sample test")
    'm2st, after Kübler, Muandet 2022'
    """
    return TITLE.sub(r"\1", OWN_WORK.sub("m2st", reference))


def references(outcome: Outcome) -> list[str]:
    """What to cite, each once."""
    found = [METHODS[name].reference.replace("this project", "m2st") for name in outcome.plan.methods]
    found += [PHIPSON] if outcome.analysis.primary.exact else []
    found += [HOLM] if outcome.plan.secondary else []
    found += [GASPARIN] if any(outcome.analysis.primary.split_p_values) else []
    return list(dict.fromkeys(found))


def decisions(outcome: Outcome, tested: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Everything that was decided and found, as plain values for JSON."""
    analysis = outcome.analysis
    return {
        "data": dict(outcome.data.record),
        "plan": vars(outcome.plan) | {"secondary": list(outcome.plan.secondary)},
        "primary": analysis.primary.to_dict(),
        "family": {"of": analysis.family, "primary_holm_p_value": analysis.decision.adjusted_p_value},
        "secondary": [
            verdict.result.to_dict() | {"holm_p_value": verdict.adjusted_p_value, "rejected": verdict.rejected}
            for verdict in analysis.secondary
        ],
        "power": {
            "estimate": analysis.answer.power,
            "interval": analysis.answer.power_interval,
            "rows_for_80_percent": analysis.answer.rows_for_power,
            "how": analysis.answer.how,
        },
        "tested_in_this_session": tested or [],
        "versions": versions(),
    }


def as_command(origin: Origin, cleaning: Cleaning, plan: Plan, report: str = "report.html") -> str:
    """A command line that gives the same result."""
    words: list[str] = ["python", "-m", "m2st_core", "test", *origin.target]
    words += ["--example", origin.example] if origin.example else []
    words += ["--group-column", origin.group] if origin.group and not origin.example else []
    words += ["--related", *origin.related] if origin.related else []
    words += ["--task-column", origin.task] if origin.related and origin.task != "task" else []
    words += ["--related-group-column", origin.related_group] if origin.related_group and origin.related else []
    words += ["--learner", origin.learner] if origin.learner else []
    words += ["--method", plan.primary]
    words += ["--secondary", *plan.secondary] if plan.secondary else []
    plain, own = Cleaning(), Plan()
    if origin.learner:  # it brings all choices but these
        words += ["--missing", cleaning.missing]
        cleaning = replace(plain, block=cleaning.block)
    for flag, value, usual in (
        ("--missing", cleaning.missing, plain.missing),
        ("--scaling", cleaning.scaling, plain.scaling),
        ("--levels", cleaning.levels, plain.levels),
        ("--block-column", cleaning.block, plain.block),
        ("--alpha", plan.alpha, own.alpha),
        ("--permutations", plan.n_permutations, own.n_permutations),
        ("--train-fraction", plan.train_fraction, own.train_fraction),
        ("--splits", plan.splits, own.splits),
        ("--family", plan.family, own.family),
        ("--preset", plan.preset, own.preset),
        ("--seed", plan.seed, None),
    ):
        words += [flag, str(value)] if value is not None and value != usual else []
    words += ["--leave-out", *cleaning.left_out] if cleaning.left_out else []
    return " ".join(map(shlex.quote, [*words, "--report", report]))


def as_python(origin: Origin, cleaning: Cleaning, plan: Plan) -> str:
    """A script that gives the same result."""
    roles = "".join(
        f", {name}={value!r}"
        for name, value in (("group", origin.group), ("task", origin.task), ("related_group", origin.related_group))
        if value not in (None, "task")
    )
    related = f", m2st.read_files({list(origin.related)!r})" if origin.related else ""
    upload = f"m2st.Upload(m2st.read_files({list(origin.target)!r}){related}{roles})"
    upload = f"m2st.EXAMPLES[{origin.example!r}].load()" if origin.example else upload
    chosen = ", ".join(f"{k}={v!r}" for k, v in vars(cleaning).items() if v != getattr(Cleaning(), k))
    settings = "".join(f", {k}={v!r}" for k, v in vars(plan).items() if v != getattr(Plan(), k) and k != "primary")
    learner, encoded, passed = "", "", ""
    if origin.learner:
        learner = f"learner, encoding = m2st.open_learner({origin.learner!r})\n"
        encoded, passed = ", encoding", ", learner=learner"
    return f"""import m2st_core as m2st

{learner}upload = {upload}
data = m2st.prepare(upload, m2st.Cleaning({chosen}){encoded})
outcome = m2st.carry_out(data, m2st.Plan({plan.primary!r}{settings}){passed})
print(outcome.analysis.primary.p_value, outcome.analysis.sentence)
open("report.html", "w", encoding="utf-8").write(m2st.html_report(outcome))
"""
