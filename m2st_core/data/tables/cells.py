"""The grammar of a cell: its number by decimal point and by decimal comma, or its other form.

A cell such as 8,65 has one reading. 8.654 is open: a decimal number or thousands, as other cells decide
(``readings``).
"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import pandas as pd

GAPS = " \u00a0\u2009\u202f'’"  # separators of thousands
MINUS = "−–‐‑‒﹣－-"
TO_ASCII = {ord(mark): "-" for mark in MINUS}
MISSING_SIGNS = frozenset(("", "?", "-", "--", ".", "..", "–", "—", "−"))
MISSING_WORDS = frozenset(
    f(word) for word in ("n/a", "nan", "null", "nil", "missing", "<na>", "#n/a") for f in (str, str.upper, str.title)
) | {"NaN"}
VALUES_OR_MISSING = frozenset(("NA", "na", "Na", "NONE", "none", "None"))  # missing, or Namibia, sodium, no symptom
EXCEL_ERRORS = frozenset(("#DIV/0!", "#REF!", "#VALUE!", "#NAME?", "#NUM!", "#NULL!", "#SPILL!", "#CALC!"))
INFINITE_WORDS = re.compile(rf"[+{MINUS}]?(inf|infinity|∞)", re.IGNORECASE)
TOTALS = re.compile(
    r"((grand |sub-?)?totals?|sums?|mean|average|avg\.?|median|(gesamt)?summe|gesamt|mittelwert|durchschnitt|somme|"
    r"moyenne|suma|media|totale|sd|std\.?( ?dev\.?)?|standard deviation|standardabweichung|"
    r"min(imum)?\.?|max(imum)?\.?|count)( ?\(.*\))?",
    re.IGNORECASE,
)
DATE_FORMS = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}([T ].*)?|\d{1,2}:\d{2}(:\d{2}.*)?"
    r"|\d{1,2}[. -]+[^\W\d]{3,9}[., -]+\d{2,4}|[^\W\d]{3,9} \d{1,2},? \d{4}"
    r"|\d{1,2}[. -]+(?i:jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[^\W\d]*\.?",
)
MONEY_SIGNS = "$€£¥₹₩₽₺₪฿₫₴"
MONEY_CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK|HUF|AUD|CAD|NZD|BRL|MXN|ZAR|KRW|TRY|SGD|HKD"
UNITS = frozenset(
    "% ‰ ° °C °F kg g mg µg ng pg t lb oz km m cm dm mm µm nm in ft yd mi m2 m² m3 m³ cm2 cm² cm3 cm³ l L ml mL "
    "dl dL µl µL s ms µs min h hr hour d day week month year yr Hz kHz MHz GHz V mV W kW MW J kJ cal kcal kWh Pa "
    "hPa kPa bar mbar mmHg mol mmol µmol nmol M mM µM nM U IU ppm ppb dB px B kB MB GB km/h m/s mph bpm mg/dl "
    "mg/dL mmol/l mmol/L g/l g/L kg/m2 kg/m² A mA K C F".split()
)
SPELLINGS = {
    "lbs": "lb", "hr": "h", "hrs": "h", "hour": "h", "hours": "h", "sec": "s", "secs": "s", "second": "s",
    "mins": "min", "minute": "min", "yr": "year", "yrs": "year", "ug": "µg", "ul": "µl", "um": "µm", "KG": "kg",
    "Kg": "kg", "L": "l", "mL": "ml", "dL": "dl", "µL": "µl", "mg/dL": "mg/dl", "mmol/L": "mmol/l", "g/L": "g/l",
    "m²": "m2", "m³": "m3", "cm²": "cm2", "cm³": "cm3", "kg/m²": "kg/m2", "C": "°C", "F": "°F", "d": "day",
}  # fmt: skip
ATTACHED = frozenset("gmshltdLVWJ%‰°")  # units of one letter that may follow the digits without a space
CELL = re.compile(
    rf"(?P<bound>[<>≤≥≈~]=?\s*)?(?P<sign>[+{MINUS}])?(?P<money>[{MONEY_SIGNS}]|(?:R|US|C|A)\$|{MONEY_CODES})?\s?"
    rf"(?P<inner>[+{MINUS}])?(?P<body>\d[\d.,{GAPS}]*|[.,]\d+)(?P<exponent>[eE][+{MINUS}]?\d+)?"
    rf"(?P<unit>[%‰°{MONEY_SIGNS}]|(?:[°µμ]|[^\W\d_])[^\s\d,;:_+=]{{0,11}}[23]?)?",
)
MANY_DECIMALS = re.compile(r"-?(?:0|[1-9][0-9]{0,30})\.[0-9]{4,60}(?:[eE][+-]?[0-9]{1,2})?")
DIGITS = {
    mark: re.compile(
        rf"(?:[1-9]\d{{0,2}}(?P<gap>[{other}{GAPS}])\d{{3}}(?:(?P=gap)\d{{3}})*|\d+)?(?:[{mark}]\d*)?",
    )
    for mark, other in ((".", ","), (",", "."))
}
DAY_AND_MONTH = re.compile(r"(0[1-9]|[12]\d|3[01])\.(0[1-9]|1[0-2])")
PARTS = ("sign", "inner", "body", "money", "unit", "exponent", "bound")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
LONGEST_SHOWN = 200
BARE_EXPONENT = re.compile(r"\d+E\d+")

FORMS = (
    "missing", "value or missing", "whole", "padded", "point", "comma", "groups by point", "groups by comma",
    "open point", "open comma", "compact date", "day and month", "code", "infinite", "error", "bound", "total", "date",
    "word",
)  # fmt: skip
(
    MISSING, VALUE_OR_MISSING, WHOLE, PADDED, POINT, COMMA, POINT_GROUPS, COMMA_GROUPS, OPEN_POINT, OPEN_COMMA,
    COMPACT_DATE, DAY_MONTH, CODE, INFINITE, ERROR, BOUND, TOTAL, DATE, WORD,
) = range(len(FORMS))  # fmt: skip
NUMBERS = slice(WHOLE, CODE + 1)  # forms with a value
NEARLY = slice(WHOLE, TOTAL + 1)  # these, and other forms that occur in columns of numbers


@dataclass(frozen=True)
class CellExample:
    """A cell of a file, its file and row."""

    file: str
    row: int
    cell: str

    @property
    def where(self) -> str:
        """The file and the row, for messages."""
        return f"{self.file}: row {self.row:,}"


class ParsedCell(NamedTuple):
    """The form of a cell, its values by decimal point and by decimal comma (NaN if none), and its unit."""

    form: int
    point: float = math.nan
    comma: float = math.nan
    unit: str = ""

    def value(self, mark: str) -> float:
        """The number by this decimal mark, or by the other mark if this one gives none."""
        first, second = (self.point, self.comma) if mark == "." else (self.comma, self.point)
        return second if math.isnan(first) else first


BY_TEXT = (
    dict.fromkeys(EXCEL_ERRORS, ParsedCell(ERROR))
    | dict.fromkeys(VALUES_OR_MISSING, ParsedCell(VALUE_OR_MISSING))
    | dict.fromkeys((*MISSING_SIGNS, *MISSING_WORDS), ParsedCell(MISSING))
)


@lru_cache(maxsize=2**14)
def read_cell(text: str) -> ParsedCell:
    """Read a cell without spaces around it.

    >>> cells = [read_cell(text) for text in ("1.234,5", "8.654", "–1", "10 %", "<0.1", "dog")]
    >>> [(FORMS[cell.form], cell.point, cell.comma, cell.unit) for cell in cells[:2]]
    [('groups by point', nan, 1234.5, ''), ('open point', 8.654, 8654.0, '')]
    >>> [(FORMS[cell.form], cell.value("."), cell.unit) for cell in cells[2:]]
    [('whole', -1.0, ''), ('whole', 10.0, '%'), ('bound', nan, ''), ('word', nan, '')]
    """
    if MANY_DECIMALS.fullmatch(text):  # most cells that software writes: a fast path, three times as fast
        return ParsedCell(POINT, float(text))
    if (cell := BY_TEXT.get(text)) is not None:
        return cell
    if INFINITE_WORDS.fullmatch(text):
        return ParsedCell(INFINITE)
    if DATE_FORMS.fullmatch(text):
        return ParsedCell(DATE)
    return _number(text) or ParsedCell(TOTAL if TOTALS.fullmatch(text.rstrip(":")) else WORD)


def _number(text: str) -> ParsedCell | None:
    """Read a number with a sign, a currency and a unit; None if there is none."""
    match = CELL.fullmatch(text)
    if not match:
        return None
    sign, inner, whole, money, unit, exponent, bound = match.group(*PARTS)
    body = whole.rstrip(GAPS)
    unit = _unit(money, unit, attached=len(body) == len(whole))
    if unit is None or (sign and inner):
        return None
    exponent = exponent.translate(TO_ASCII) if exponent else ""
    factor = -1.0 if (sign or inner or "+") in MINUS else 1.0
    point, comma = factor * _value(body, exponent, "."), factor * _value(body, exponent, ",")
    if math.isnan(point) and math.isnan(comma):
        return None
    if bound:
        return ParsedCell(BOUND)
    if math.isinf(point) or math.isinf(comma):
        return ParsedCell(INFINITE)
    return ParsedCell(_form(text, body, exponent, point, comma), point, comma, unit)


def _form(text: str, body: str, exponent: str, point: float, comma: float) -> int:
    if math.isnan(point):
        return POINT_GROUPS if "." in body else COMMA
    if body == text and is_compact_date(body):
        return COMPACT_DATE
    if math.isnan(comma):
        return COMMA_GROUPS if "," in body else DAY_MONTH if DAY_AND_MONTH.fullmatch(text) else POINT
    if point != comma:
        return OPEN_POINT if "." in body else OPEN_COMMA
    if exponent:
        return CODE if BARE_EXPONENT.fullmatch(text) else WHOLE
    if body != text:
        return WHOLE
    return PADDED if len(body) > 1 and body[0] == "0" else WHOLE


def is_compact_date(digits: str) -> bool:
    """Whether digits are a day such as 20240131 or 20240131.0, or a moment such as 20240131120000."""
    digits = digits.removesuffix(".0")
    if len(digits) not in (8, 12, 14) or digits[:2] not in ("19", "20"):
        return False
    try:
        datetime.strptime(digits, "%Y%m%d%H%M%S"[: len(digits) - 2])
    except ValueError:
        return False
    return True


def _value(body: str, exponent: str, mark: str) -> float:
    match = DIGITS[mark].fullmatch(body)
    if not match:
        return math.nan
    gap = match["gap"]
    if gap and exponent:
        return math.nan
    digits = body.replace(gap, "") if gap else body
    return float(digits.replace(",", ".") + exponent)


def _unit(money: str | None, unit: str | None, attached: bool) -> str | None:
    """The unit, empty if there is none; None if the letters are part of a code such as 12A."""
    if money and unit:
        return None
    if money or not unit:
        return money or ""
    unit = unit.replace("μ", "µ").rstrip(".")
    if len(unit) > 3 and unit.endswith("s"):  # days
        unit = unit[:-1]
    if attached and len(unit) == 1 and unit not in ATTACHED and unit not in MONEY_SIGNS:
        return None
    if unit not in UNITS and (unit in ("AM", "PM", "am", "pm") or any(map(str.isnumeric, unit))):
        return None  # part of a time, fraction, power or product
    return unit


def same_unit(unit: str) -> str:
    """The usual spelling of a unit."""
    return SPELLINGS.get(unit, unit)


def is_known_unit(unit: str) -> bool:
    """Whether these letters or signs are a unit or a currency."""
    return unit in UNITS or unit in MONEY_SIGNS or unit.endswith("$") or unit in MONEY_CODES.split("|")


def safe_cell(value: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would evaluate as a formula.

    >>> safe_cell("=cmd|' /C calc'!A0"), safe_cell("-1.5"), safe_cell(-1.5), safe_cell("red")
    ("'=cmd|' /C calc'!A0", '-1.5', -1.5, 'red')
    """
    if not isinstance(value, str) or NUMBER.fullmatch(value):
        return value
    return f"'{value}" if value.startswith(FORMULA_STARTS) or value.lstrip().startswith(FORMULA_STARTS) else value


def safe_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with a header and words that are safe in a spreadsheet; missing words are empty."""
    safe = frame.rename(columns=lambda name: safe_cell(str(name)))
    for position, dtype in enumerate(safe.dtypes):
        if not pd.api.types.is_numeric_dtype(dtype):
            safe.isetitem(position, ["" if pd.isna(c) else safe_cell(c) for c in safe.iloc[:, position]])
    return safe


def to_safe_csv(frame: pd.DataFrame) -> str:
    """Write the frame as CSV that is safe to open in a spreadsheet."""
    return safe_frame(frame).to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)  # a lone \r would end the row


def plain(text: str, longest: int = LONGEST_SHOWN) -> str:
    r"""Escape text from a file, so that Streamlit renders no Markdown, HTML, formula, link or emoji.

    >>> plain("**a** <b>")
    '\\*\\*a\\*\\* \\<b\\>'
    """
    short = " ".join(str(text).split())
    short = short if len(short) <= longest else short[: longest - 1] + "…"
    escaped = PUNCTUATION.sub(r"\\\1", short)
    for start in ("\\:", "\\@", "www"):  # emoji codes and bare addresses are recognised after unescaping
        escaped = escaped.replace(start, f"{start}\u2060")
    return escaped
