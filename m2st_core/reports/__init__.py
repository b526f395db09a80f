"""Room 8: an outcome → pictures, words and one file to keep."""

from m2st_core.reports.pictures import Picture, pictures
from m2st_core.reports.report import html_report
from m2st_core.reports.words import Origin, as_command, as_python, assumptions, decisions, methods_sentence, versions

__all__ = [
    "Origin",
    "Picture",
    "as_command",
    "as_python",
    "assumptions",
    "decisions",
    "html_report",
    "methods_sentence",
    "pictures",
    "versions",
]
