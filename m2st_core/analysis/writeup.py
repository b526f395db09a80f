"""Text and code about an outcome: assumptions, the methods section, references, and how to repeat it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from m2st_core.analysis.answer import if_independent, p_short
from m2st_core.analysis.plan import Outcome, Plan
from m2st_core.data.tables.encoding import Cleaning
from m2st_core.data.tables.examples import EXAMPLES
from m2st_core.data.tables.files import Table, read_files
from m2st_core.data.tables.readings import Marks, words_by_file
from m2st_core.data.tables.upload import Upload, likely_words, suggest_groups
from m2st_core.presets import PRESETS
from m2st_core.testing.methods import METHODS
from m2st_core.types import VERSION

ROLES = (
    "group", "task", "related_group", "groups", "decimal", "read_as", "totals", "encoding", "related_groups",
)  # fmt: skip
OWN_WORK = re.compile(r"this project: .*?\)")  # up to the end of the document's name
TITLE = re.compile(r"\((\d{4})\),[^;]*")  # the year and the title after it
LEARNED = {"ours": "features", "paper": "deep kernels"}  # by the method's origin
PHIPSON = "Phipson, Smyth (2010), Permutation p-values should never be zero"
GASPARIN = "Gasparin, Wang, Ramdas (2025), Combining exchangeable p-values"
HOLM = "Holm (1979), A simple sequentially rejective multiple test procedure"
ASSUMPTIONS = (
    "Rows are independent of each other. Several rows from one person, site or day are not: declare that column as the "
    "block, or keep one row of each.",
    "If P and Q are the same, the rows are exchangeable: it does not matter which row carries which label. Groups that "
    "were collected differently may differ for that reason alone, and the test may detect it.",
    "No row is in both groups.",
    "The test was chosen before its result was known. If several tests were tried, all are reported.",
    "A small p-value says that the groups differ, not that the difference matters. A large p-value does not show that "
    "they are the same.",
)
RELATED = (
    "Learning from related tasks favours differences like theirs and may miss others. No tested row may be among their "
    "labelled rows. Shared rows that were recognised have been removed from the related tasks. If no shared row "
    "remains, related tasks change the power of the test and not its level."
)


def assumptions(outcome: Outcome) -> tuple[str, ...]:
    """Return the conditions under which the p-value is valid, in plain words."""
    independence, *others = ASSUMPTIONS
    if outcome.data.blocks is not None:
        block = outcome.data.record["cleaning"]["block"]
        independence = (
            f"Rows are exchangeable within each block of {block!r}. Blocks may differ from each other in any way, "
            "because labels are permuted only within them."
        )
    if METHODS[outcome.plan.primary].uses_related_tasks:
        others.append(RELATED)
    primary = outcome.analysis.primary
    if primary.exact_if:
        others.append(f"The p-value is exact if {primary.exact_if}. The rows cannot show this: too many are alike.")
    if repeats := if_independent(outcome):
        others.append(repeats)
    if not primary.counts_itself:
        others.append("This p-value is not exact: it assumes large samples, or leaves out the observed labelling.")
    return independence, *others


def methods_sentence(outcome: Outcome) -> str:
    """Return a paragraph for the methods section of a paper."""
    result, data, plan = outcome.analysis.primary, outcome.data, outcome.plan
    method = METHODS[result.method]
    learned = ""
    if method.uses_related_tasks:
        learner = outcome.learners[result.method]
        learned = f" whose {LEARNED[method.origin]} were learned from {len(learner.task_names)} related comparisons"
        if learner.knowledge.kernel is not None and PRESETS[result.preset].meta_network.pretraining is not None:
            learned += ", starting from a classifier of them (a setting of m2st)"
    if any(result.n_train):
        verb = "adapted" if method.uses_related_tasks else "learned"
        learned += f", {verb} on {result.n_train[0]} and {result.n_train[1]} other rows"
    blocks = " within blocks" if data.blocks is not None else ""
    if not result.by_permutation:
        how = "the statistic's asymptotic distribution"
    elif result.enumerated:
        how = f"all {result.n_permutations + 1} labellings{blocks}"
    else:
        error = f" (Monte-Carlo standard error {result.p_value_se:.2g})"
        error = " (the smallest p that they can give)" if result.at_floor else error
        how = f"{result.n_permutations} random permutations{blocks}{error}"
    if result.split_p_values:
        splits = len(result.split_p_values)
        how += f" under each of {splits} random splits, combined as twice the smallest running median"
    variables = len(data.encoding.columns)
    paragraph = (
        f"{result.n_test[0]} rows of “{data.x_name}” and {result.n_test[1]} rows of “{data.y_name}”, described by "
        f"{variables} variable{'s' * (variables != 1)}, were compared by the two-sample test {result.method} "
        f"({cited(method.reference)}; preset {result.preset}){learned}; it was declared the primary test beforehand. "
        f"{p_short(result)}, from {how}; significance level {result.alpha:g}, seed {result.seed}, m2st {VERSION}."
    )
    if result.exact_if:
        paragraph += f" The p-value is exact if {result.exact_if}."
    if plan.secondary:
        others = ", ".join(name + (" of m2st" if METHODS[name].origin == "ours" else "") for name in plan.secondary)
        together = "together with the primary test" if plan.family == "all" else "among themselves"
        paragraph += f" Secondary tests ({others}) were corrected by Holm's procedure, {together}."
        if plan.family == "all":
            paragraph += f" The primary test's corrected p is {outcome.analysis.decision.adjusted_p_value:.4g}."
    return paragraph


def cited(reference: str) -> str:
    """Return a reference as it is cited within a sentence: authors and year.

    >>> cited("this project: a thing (docs/thing.md), after Kübler, Muandet (2022), A witness two-sample test")
    'm2st, after Kübler, Muandet 2022'
    """
    return TITLE.sub(r"\1", OWN_WORK.sub("m2st", reference))


def references(outcome: Outcome) -> list[str]:
    """Return the works to cite, each once."""
    primary = outcome.analysis.primary
    works = [METHODS[name].reference.replace("this project", "m2st") for name in outcome.plan.methods]
    works += [PHIPSON] if primary.counts_itself else []
    works += [HOLM] if outcome.plan.secondary else []
    works += [GASPARIN] if primary.split_p_values else []
    return list(dict.fromkeys(works))


@dataclass(frozen=True)
class DataSource:
    """The files or the example of the data, the roles of columns, answers about reading, and a learner's file."""

    target: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    example: str = ""
    group: str | None = None
    task: str = "task"
    related_group: str | None = None
    learner: str = ""
    groups: tuple[str, ...] = ()
    decimal: Marks = ""
    read_as: Mapping[str, str] = field(default_factory=dict)
    totals: str = ""
    encoding: Marks = ""
    related_groups: tuple[str, ...] = ()

    def upload(self) -> Upload:
        """Read the files or the example."""
        if self.example:
            if self.target or self.related:
                raise ValueError("Give files or an example, not both.")
            return replace(EXAMPLES.find(self.example).load(), groups=self.groups, related_groups=self.related_groups)
        target = read_files(self.target)
        if len(target) != (1 if self.group else 2):
            wanted = "one file with a group column" if self.group else "two files, or one with --group-column"
            raise ValueError(f"test needs {wanted}. Got {len(target)}.{'' if self.group else self._likely(target)}")
        return Upload(target, read_files(self.related), **{name: getattr(self, name) for name in ROLES})

    def _likely(self, target: tuple[Table, ...]) -> str:
        """The columns of the only file that may be the group."""
        related = suggest_groups(*read_files(self.related), besides=self.task)
        likely = likely_words(suggest_groups(*target, related=related)) if len(target) == 1 else ""
        return f" Likely: --group-column {likely}." if likely else ""


def as_command(source: DataSource, cleaning: Cleaning, plan: Plan, report: str = "report.html") -> str:
    """Return a command line that repeats the outcome."""
    if source.learner:  # it fixes all other choices about columns
        cleaning = Cleaning(missing=cleaning.missing, block=cleaning.block, ids=cleaning.ids)
    options = (  # flag, value, default
        ("--example", source.example, ""),
        ("--group-column", None if source.example else source.group, ""),
        ("--groups", source.groups, ()),
        ("--related-groups", source.related_groups, ()),
        *(("--decimal", word, "") for word in words_by_file(source.decimal)),
        ("--read-as", tuple(f"{column}={kind}" for column, kind in source.read_as.items()), ()),
        ("--totals", source.totals, ""),
        *(("--encoding", word, "") for word in words_by_file(source.encoding)),
        ("--related", source.related, ()),
        ("--task-column", source.task if source.related else None, DataSource.task),
        ("--related-group-column", source.related_group if source.related else None, ""),
        ("--learner", source.learner, ""),
        ("--method", plan.primary, None),
        ("--secondary", plan.secondary, ()),
        ("--missing", cleaning.missing, None if source.learner else Cleaning.missing),
        ("--scaling", cleaning.scaling, Cleaning.scaling),
        ("--levels", cleaning.levels, Cleaning.levels),
        ("--block-column", cleaning.block, None),
        ("--id-column", cleaning.ids, None),
        ("--alpha", plan.alpha, Plan.alpha),
        ("--permutations", plan.n_permutations, Plan.n_permutations),
        ("--train-fraction", plan.train_fraction, Plan.train_fraction),
        ("--splits", plan.splits, Plan.splits),
        ("--family", plan.family, Plan.family),
        ("--preset", plan.preset, Plan.preset),
        ("--seed", plan.seed, None),
        ("--leave-out", cleaning.left_out, ()),
        ("--use", cleaning.use, ()),
        ("--report", report, None),
    )
    words = ["python", "-m", "m2st_core", "test", *source.target]
    for flag, value, default in options:
        if value is not None and value != default:
            words += [flag, *(value if isinstance(value, tuple) else [str(value)])]
    return shlex.join(words)


def as_python(source: DataSource, cleaning: Cleaning, plan: Plan) -> str:
    """Return a script that repeats the outcome."""
    roles = _changed(source, DataSource(), ROLES)
    start, files = "", [source.target, source.related] if source.related else [source.target]
    upload = f"m2st.Upload({', '.join([*(f'm2st.read_files({list(names)!r})' for names in files), *roles])})"
    if source.example:
        upload = f"m2st.EXAMPLES[{source.example!r}].load()"
        if order := _changed(source, DataSource(), ("groups", "related_groups")):
            start, upload = "from dataclasses import replace\n\n", f"replace({upload}, {', '.join(order)})"
    choices = ", ".join(_changed(cleaning, Cleaning(), tuple(vars(cleaning))))
    settings = ", ".join([repr(plan.primary), *_changed(plan, Plan(), tuple(vars(plan))[1:])])
    learner, encoding, passed = "", "", ""
    if source.learner:
        learner = f"learner, encoding = m2st.open_learner({source.learner!r})\n"
        encoding, passed = ", encoding=encoding", ", learner=learner"
    return f"""{start}import m2st_core as m2st

{learner}upload = {upload}
data = m2st.prepare(upload, cleaning=m2st.Cleaning({choices}){encoding})
outcome = m2st.carry_out(data, m2st.Plan({settings}){passed})
print(outcome.analysis.primary.p_value, outcome.analysis.sentence)
open("report.html", "w", encoding="utf-8").write(m2st.html_report(outcome))
"""


def _changed(chosen: object, default: object, names: tuple[str, ...]) -> list[str]:
    """Return ``name=value`` for the fields that differ from the default."""
    return [f"{k}={getattr(chosen, k)!r}" for k in names if getattr(chosen, k) != getattr(default, k)]
