"""The registry of tasks, and a function that makes a task by its name."""

from __future__ import annotations

from m2st_core.data.images.tasks import IMAGE_TASKS, Digits
from m2st_core.data.synthetic import HDGM, Blobs, MeanShift, VarianceShift
from m2st_core.tasks import Setting, Task
from m2st_core.types import Registry

EVERY_TASK: tuple[type[Task], ...] = (HDGM, Blobs, MeanShift, VarianceShift, Digits, *IMAGE_TASKS)
TASKS: Registry[type[Task]] = Registry("task", {task.name: task for task in EVERY_TASK})


def make_task(name: str, *, null: bool = False, **settings: Setting) -> Task:
    """Make a task by its registered name, with its parameters. ``null=True`` draws both samples from P.

    >>> x, y = make_task("hdgm", delta=0.7).sample(200, seed=1)
    >>> tuple(x.shape), tuple(y.shape)
    ((200, 2), (200, 2))
    """
    return TASKS[name](null=null, **settings)


def size_unit(task: str) -> str:
    """Return what a size counts: rows per mode for HDGM, rows per sample elsewhere."""
    return "per mode" if TASKS[task].rows_per_size == 2 else "per sample"
