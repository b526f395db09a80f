"""Room 7: numbers → plotly figures."""

from m2st_core.figures.null import null_figure
from m2st_core.figures.samples import samples_figure

__all__ = ["null_figure", "samples_figure"]
