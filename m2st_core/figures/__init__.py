"""Room 7: numbers → plotly figures."""

from m2st_core.figures.compare import compare_figure
from m2st_core.figures.null import null_figure
from m2st_core.figures.power import (
    FIGURES,
    ablation_figure,
    closeness_figure,
    power_figure,
    tasks_figure,
    training_figure,
    type_1_figure,
)
from m2st_core.figures.samples import samples_figure

__all__ = [
    "FIGURES",
    "ablation_figure",
    "closeness_figure",
    "compare_figure",
    "null_figure",
    "power_figure",
    "samples_figure",
    "tasks_figure",
    "training_figure",
    "type_1_figure",
]
