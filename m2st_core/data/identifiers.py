"""Columns that look like identifiers, which measure nothing: numbers of rows, names of persons, moments, UUIDs.

Where the rows of one group were entered before those of the other, an identifier differs between the groups, and a test
that uses it finds a meaningless difference. It is recognised by its name and its values together. The order of rows and
their labels are not used.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import torch
from scipy.special import gammaln, pdtr

from m2st_core.types import TwoSample, listed

PERSONS = (
    "patient|patienten|subject|subj|participant|proband|probanden|respondent|donor|paciente|sujeto|sujet|teilnehmer|"
    "versuchsperson"
)
UNITS = "person|animal|mouse|rat|household|family|pair|twin|customer|client|user|member|employee|student|pupil|kunde"
RECORDS = (
    "row|line|record|entry|item|obs|observation|case|sample|specimen|probe|invoice|ticket|visit|encounter|session|"
    "accession|admission|lot|wafer|vial|tube|slide|serial|seq|sequence|file|image|scan|satz|datensatz|zeile|fall|"
    "ligne|fila|registro"
)
NUMBER = "no|nr|num|number|nummer|numero|número|numéro|№|#|code|key|sn|ssn|номер|编号|番号"
INDEX = "index|idx"
ONE = "ids?|uid|uuid|guid|pid|mrn|identifiers?|identifikator|kennung|identificador|identifiant|barcode"
IDENTIFIER = re.compile(
    rf"(.* )?({ONE})( \d+)?|id .+|({PERSONS})|"
    rf"(.* )?({PERSONS}|{UNITS}) ?({NUMBER}|{INDEX})"
)
UNIT = re.compile(rf"(matched )?({UNITS})")  # one of several rows, or how many of them
RECORD = re.compile(
    rf"({RECORDS})|(.* )?({RECORDS}) ?({NUMBER}|{INDEX})( \d+)?|(s |sr |sl )?({NUMBER}|{INDEX})|"
    r"(.* )?\w{3,}(nummer|nr)|(.* )?(akten|kenn|geschäfts)zeichen|counter|lfd( nr)?|row ?names?|unnamed( \d+)?|"
    r"(index )?level \d+"
)
ENDS_IN_NUMBER = re.compile(rf".+ ({NUMBER})( \d+)?")
NUMBERED = re.compile(r"\s*(n[°º]|№|#)\s*\w", re.IGNORECASE)  # “N° dossier”
PROPERTY = re.compile(  # numbers that measure
    r"(.* )?(atomic|mass|wave|copy|octane|cetane|iodine|acid|peroxide|reynolds|mach|quantum|oxidation|coordination|"
    r"ordinal|cardinal|mean|average|total|max|min) (no|num|number)"
)
UNINFORMATIVE = re.compile(r"(x|v|var|variable|col|column|feature|field|[a-z])? ?\d*")
RANK = re.compile(r"(.* )?(rank|ranks|ranked|ranking|rang|placing|standing|percentile|quantile)( .*)?")
DATES = re.compile(
    r"(.* )?(dates?|\w*datum|fecha|datetime|datenum|timestamps?|dob|birthday|birthdate|julian|mjd|excel|"
    r"year ?frac(tion)?|decimal year)( .*)?"
)
TIMES = re.compile(r"(.* )?(times?|zeit|zeitpunkt|hora|epoch|unix|ts)( .*)?")
EVENTS = re.compile(  # a header that may name a moment, or what was measured then
    r"(.* )?(day|dt|tag|eingang|termin|created|updated|modified|recorded|received|sampled|sampling|measured|collected|"
    r"start|started|end|ended|begin|when)( at| on)?( s| ms| us| ns)?"
)
STAMP = re.compile(r"(.* )?(timestamps?|datetime|time stamp|date time)( \d+)?")
UNIT_IN_BRACKETS = re.compile(r"[(\[]\s*[^\d\s)\]][^)\]]*[)\]]\s*$")  # ends the header
UNIT_AT_THE_END = re.compile(
    r".* (ns|us|µs|ms|sec|secs|seconds?|mins?|minutes?|hrs?|hours?|days|weeks|months|years|yrs|nm|um|µm|mm|cm|dm|km|"
    r"inch|inches|feet|ft|yd|miles?|ng|ug|µg|mcg|mg|kg|lbs?|oz|ul|µl|ml|dl|lit(er|re)s?|hz|khz|mhz|ghz|mv|kv|ma|kw|mw|"
    r"wh|kwh|kj|kcal|cal|pa|hpa|kpa|mpa|mbar|bar|psi|deg|degrees|celsius|rpm|bpm|mmhg|pct|percent|ppm|ppb|mol|mmol|"
    r"umol|µmol|nmol|iu|eur|usd|gbp|chf|jpy|cny|inr|euros?|dollars?|cents?|px|pixels?|kb|mb|gb|bytes?|db)( \d+)?"
)
RATE = re.compile(r".* (per|pro|par|por) .*")
WORD_PARTS = re.compile(r"[^\W\d_]+|\d+|[№#]")
HUMP = re.compile(r"(?<=[a-zà-ÿ])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-zà-ÿ])")
FEWEST_NAMED, FEWEST_COUNTED = 3, 12  # rows from which on values are evidence: with a name, without one
NEARLY_ALL = 0.9  # share of different values
REPEATED = 0.1  # least share of different values under the name of an identifier
RARE = 1e-4  # chance of as few repeats in independent draws, or that all rows repeat in multiples of one number
UNIX = ((1e8, 4e9, 1), (1e11, 4e12, 1e3), (1e14, 4e15, 1e6))  # from, to, units per second
UNIX_SURE = (1e9, 2e9)  # seconds, 2001 to 2033: recognised without a name
DAYS = (20_000, 60_000)  # of Excel since 1900: 1954 to 2064
RECENT_DAYS, MOST_DAYS = (36_526, 55_000), 4_000  # 2000 to 2050; span of days under a header that may mean other things
OTHER_DAYS = {"Julian days": (2_400_000, 2_500_000), "days since the year 0": (700_000, 770_000)}
YEARS = (1900, 2100)
UUID = r"\{?[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\}?|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}"
FILE = (
    r".*[^\s.]\.(?i:jpe?g|png|tiff?|bmp|gif|webp|svg|dcm|nii(?:\.gz)?|csv|tsv|txt|xlsx?|json|xml|pdf|docx?|html?|wav|"
    r"mp3|mp4|flac|avi|mov|h5|hdf5|npy|npz|mat|fcs|fastq(?:\.gz)?|fq|fasta|bam|vcf|zip|gz|log)"
)
MOST_STEPS, NEAR = 1e6, 1e-6  # of counting numbers with decimals: largest number of steps, tolerance of a step
NAMED = 10  # columns in a note


def names_unit(name: str) -> bool:
    """Whether a header names persons or other units that may have several rows.

    >>> [names_unit(name) for name in ("PatientID", "subject no.", "household", "patience", "number of patients")]
    [True, True, True, False, False]
    """
    plain = _plain(name)
    return bool(IDENTIFIER.fullmatch(plain) or UNIT.fullmatch(plain)) and not _has_unit(name, plain)


def numbers_identify(name: str, values: np.ndarray) -> str:
    """The reason, as a clause, why a column of numbers is an identifier; empty if it may be a measurement.

    >>> numbers_identify("record_no", np.array([1001.0, 1003.0, 1002.0, 1007.0]))
    'it numbers rows, persons or records'
    >>> numbers_identify("mass", np.array([1001.0, 1003.0, 1002.0, 1007.0]))
    ''
    """
    plain, values = _plain(name), values[np.isfinite(values)]
    if len(values) < FEWEST_NAMED:
        return ""
    measured = _has_unit(name, plain)
    if moment := _moment(plain, values, measured):
        return moment
    if measured:
        return ""
    different, counts = np.unique(values, return_counts=True)
    nearly_all = len(different) >= NEARLY_ALL * len(values)
    counted = nearly_all and len(values) >= FEWEST_COUNTED and not RANK.fullmatch(plain)
    if (np.mod(values, 1) != 0).any():
        steps = _steps(different) if counted and _names_no_measurement(plain) else None
        return _counted(different) if steps is not None and _counts(steps, counts) else ""
    by_name = bool(IDENTIFIER.fullmatch(plain) and len(different) >= max(FEWEST_NAMED, REPEATED * len(values)))
    if by_name or (nearly_all and _names_records(name, plain)):
        return "it numbers rows, persons or records"
    if counted and _counts(different, counts):
        return _counted(different)
    # both groups may have been counted from 0 or 1, as in two files
    restarted = different[0] in (0, 1) and bool((np.diff(different) == 1).all() and (np.diff(counts) <= 0).all())
    if restarted and counts[0] == 2 and len(different) >= FEWEST_COUNTED and _names_no_measurement(plain):
        return _counted(different)
    return ""


def words_identify(name: str, counts: pd.Series) -> str:
    """The reason, as a clause, why a column of words is an identifier; ``counts`` is the frequency of each word.

    >>> words_identify("subject", pd.Series({"P001": 1, "P002": 1, "P003": 2}))
    'it names rows, persons or records'
    """
    plain, levels, total = _plain(name), counts.index.astype("str"), int(counts.sum())
    if len(levels) < FEWEST_NAMED:
        return ""
    nearly_all = len(levels) >= NEARLY_ALL * total
    if nearly_all or len(levels) > total / 2:
        for pattern, what in ((UUID, "UUIDs or the like"), (FILE, "names of files")):
            if levels.str.fullmatch(pattern).all():
                return f"its words are {what}"
    by_name = bool(IDENTIFIER.fullmatch(plain) and len(levels) >= max(FEWEST_NAMED, REPEATED * total))
    by_record = nearly_all and _names_records(name, plain)
    coded = nearly_all and bool(levels.str.fullmatch(r"[^\W\d_]{0,8}[-_. /]?\d{1,15}").all())
    return "it names rows, persons or records" if by_name or by_record or coded else ""


def identifier_notes(sample: TwoSample) -> tuple[str, ...]:
    """Note the columns of arrays that look like identifiers. They are tested like the others."""
    pooled = sample.pooled
    names = sample.columns or ("",) * pooled.shape[1]
    steps = (pooled[:2] - pooled[0]).remainder(1)
    whole = (steps == 0).all(dim=0)
    for index, name in enumerate(map(_plain, sample.columns)):
        whole[index] |= any(pattern.fullmatch(name) for pattern in (DATES, TIMES, EVENTS))  # may hold moments
    reasons = {i: numbers_identify(names[i], pooled[:, i].numpy()) for i in torch.nonzero(whole).flatten().tolist()}
    columns = [f"{names[i] or f'column {i + 1}'} ({reason})" for i, reason in reasons.items() if reason]
    if not columns:
        return ()
    single = "This column looks like an identifier and was tested"
    several = "These columns look like identifiers and were tested"
    return (
        f"{single if len(columns) == 1 else several}: {listed(columns, NAMED)}. If rows of one group were numbered "
        "before those of the other, this alone is a difference. Leave identifiers out.",
    )


def _plain(name: str) -> str:
    """The words and numbers of a header in lower case, separated by spaces: PatientID_2 becomes "patient id 2"."""
    return " ".join(WORD_PARTS.findall(HUMP.sub(" ", name).lower()))


def _names_no_measurement(plain: str) -> bool:
    return bool(UNINFORMATIVE.fullmatch(plain) or RECORD.fullmatch(plain) or IDENTIFIER.fullmatch(plain))


def _names_records(name: str, plain: str) -> bool:
    """Whether a header names records by their numbers. “NO” in capitals beside small letters is nitric oxide."""
    if RECORD.fullmatch(plain) or UNIT.fullmatch(plain) or NUMBERED.match(name):
        return name != "NO"
    is_oxide = "NO" in WORD_PARTS.findall(name) and not name.isupper()
    return bool(ENDS_IN_NUMBER.fullmatch(plain)) and not PROPERTY.fullmatch(plain) and not is_oxide


def _has_unit(name: str, plain: str) -> bool:
    """Whether a header says in which unit its numbers are."""
    return bool(UNIT_IN_BRACKETS.search(name) or UNIT_AT_THE_END.fullmatch(plain) or RATE.fullmatch(plain))


def _moment(plain: str, values: np.ndarray, measured: bool) -> str:
    """The reason why these numbers are moments or days: their range, which may be wider if the header names times.

    Numbers with a unit (``measured``) may be Unix times, but not days.
    """
    low, high = float(values.min()), float(values.max())
    dates, times, events = (bool(pattern.fullmatch(plain)) for pattern in (DATES, TIMES, EVENTS))
    for first, last, per_second in UNIX:
        wide = (dates or times) and not measured
        start, stop = (first, last) if wide else (UNIX_SURE[0] * per_second, UNIX_SURE[1] * per_second)
        unnamed = bool(UNINFORMATIVE.fullmatch(plain)) and len(values) >= FEWEST_COUNTED
        if start <= low and high < stop and (dates or times or events or unnamed):
            days = (pd.Timestamp(value / per_second, unit="s").date().isoformat() for value in (low, high))
            return f"it holds moments in Unix time, {' to '.join(days)}"
    if measured:
        return ""
    recent = RECENT_DAYS[0] <= low and high < RECENT_DAYS[1] and high - low <= MOST_DAYS
    if (dates and DAYS[0] <= low and high < DAYS[1]) or ((times or events) and recent):
        days = ((pd.Timestamp("1899-12-30") + pd.Timedelta(value, "D")).date().isoformat() for value in (low, high))
        return f"it holds days as Excel counts them, {' to '.join(days)}"
    for calendar, (first_day, last_day) in OTHER_DAYS.items():
        if (dates or times or events) and first_day <= low and high < last_day:
            return f"it holds {calendar}"
    if dates and YEARS[0] <= low and high < YEARS[1] and (np.mod(values, 1) != 0).any():
        return "it holds dates as fractions of years"
    if STAMP.fullmatch(plain) and len(np.unique(values)) >= NEARLY_ALL * len(values):
        return "it holds moments"
    return ""


def _steps(different: np.ndarray) -> np.ndarray | None:
    """Sorted numbers as whole multiples of their smallest difference, or None if they are not."""
    steps = (different - different[0]) / np.diff(different).min()
    whole = steps.round()
    return whole if whole[-1] < MOST_STEPS and np.allclose(steps, whole, rtol=0, atol=NEAR) else None


def _counted(different: np.ndarray) -> str:
    """The reason for numbers that count, with or without gaps."""
    gaps = np.diff(different)
    how = "only" if np.allclose(gaps, gaps[0]) else "nearly"
    return f"it {how} counts, from {different[0]:.15g} to {different[-1]:.15g}"


def _counts(different: np.ndarray, counts: np.ndarray) -> bool:
    """Whether whole numbers repeat less often than independent draws from their range.

    n draws from R equally likely values have about Poisson(n(n−1)/2R) equal pairs, and draws from other distributions
    have more. R is the number of steps between the smallest and the largest value; the step is the greatest common
    divisor of the differences.
    """
    rows = int(counts.sum())
    gaps = np.diff(different).astype(np.int64)
    possible = int((different[-1] - different[0]) / np.gcd.reduce(gaps)) + 1 if len(gaps) else 1  # R
    if len(different) == rows <= possible:  # the exact probability of no repeat
        chance = np.exp(gammaln(possible + 1) - gammaln(possible - rows + 1) - rows * np.log(possible))
    else:
        chance = pdtr(int((counts * (counts - 1)).sum()) // 2, rows * (rows - 1) / 2 / possible)
    return bool(chance < RARE)
