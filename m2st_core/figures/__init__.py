"""Room 7: numbers → plotly figures."""

from m2st_core.figures.bounds import bound_course_figure, bound_terms_figure
from m2st_core.figures.columns import bars_figure, levels_figure, numbers_figure
from m2st_core.figures.compare import compare_figure
from m2st_core.figures.explain import history_figure, importance_figure, witness_figure
from m2st_core.figures.filling import filling_figure, settling_figure
from m2st_core.figures.heat import heat_figure
from m2st_core.figures.images import class_witness_figure, image_grid, pair_figure
from m2st_core.figures.learning import learning_size_figure
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
from m2st_core.figures.relatedness import (
    closeness_power_figure,
    gamma_figure,
    gamma_power_figure,
    gamma_spread_figure,
)
from m2st_core.figures.reproduction import layers_figure, layers_marks, layers_type_1
from m2st_core.figures.samples import samples_figure
from m2st_core.figures.strip import p_value_strip
from m2st_core.figures.weights import criterion_figure, share_figure, weight_spread_figure, weights_figure

__all__ = [
    "FIGURES",
    "ablation_figure",
    "bars_figure",
    "bound_course_figure",
    "bound_terms_figure",
    "class_witness_figure",
    "closeness_figure",
    "compare_figure",
    "closeness_power_figure",
    "criterion_figure",
    "filling_figure",
    "gamma_figure",
    "gamma_power_figure",
    "gamma_spread_figure",
    "heat_figure",
    "history_figure",
    "image_grid",
    "importance_figure",
    "layers_figure",
    "layers_marks",
    "layers_type_1",
    "learning_size_figure",
    "levels_figure",
    "null_figure",
    "numbers_figure",
    "p_value_strip",
    "pair_figure",
    "power_figure",
    "samples_figure",
    "settling_figure",
    "share_figure",
    "tasks_figure",
    "training_figure",
    "type_1_figure",
    "weight_spread_figure",
    "weights_figure",
    "witness_figure",
]
