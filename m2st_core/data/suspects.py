"""Suspect columns and rows: identifiers, which measure nothing, and rows that repeat more often than chance allows.

Where the rows of one group were entered before those of the other, an identifier differs between the groups, and a test
that uses it finds a meaningless difference. It is recognised by its name and its values together. Rows that repeat may
be copies, or repeated measurements of a unit, and are not independent. The order of rows and their labels are not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.special import gammaln, pdtr, pdtrc

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

FEWEST = 12  # rows, or values of a column, from which on repeats, or one column that determines another, are evidence
FEWER = 0.6  # share of the expected number of different rows, below which rows repeat too often
EVEN = 0.5  # share of the expected number of values that an evenly spaced column must have
DEPENDENT = 0.5  # share of its information that an evenly spaced column adds to the others
LONGEST_GRID = 10_000
TOLERANCE = 1e-6  # of a step, for values that were scaled
SAME = 1e-7  # difference of copies, as a share of a column's spread
FINE = 0.05  # probability of a tie up to which a column is evidence of copies
TIES_ADDED = 3  # 95 % bound on equal pairs where none is observed
TOGETHER = 0.9  # rank correlation from which on columns tie together
MOST_COLUMNS = 30  # by which repeats are explained
SUPPOSES = "The p-value supposes that repeated rows are independent observations."


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


class _Values(NamedTuple):
    """The values of a column: the code of each row's, their frequencies, and the length of their even grid, or 0.

    The values 1, 2, 4 and 5 are on a grid of length 5.
    """

    codes: np.ndarray
    counts: np.ndarray
    grid: int

    @property
    def log_tie(self) -> float:
        """The log-probability that two rows agree."""
        pairs = float((self.counts * (self.counts - 1.0)).sum())
        return float(np.log(max(pairs, 1e-300) / (len(self.codes) * (len(self.codes) - 1.0))))

    @property
    def designed(self) -> bool:
        """Whether all values, or those of the factor of which this is an indicator, are equally frequent."""
        is_indicator = self.grid == 2 and len(self.codes) % int(self.counts.min()) == 0
        return self.grid == len(self.counts) and (is_indicator or bool(np.ptp(self.counts) == 0))


def repeated_rows_note(rows: np.ndarray) -> tuple[str, ...]:
    """Note how few of the pooled rows (N, d) are different, if far fewer are than their columns let expect.

    >>> repeated_rows_note(np.tile(np.random.default_rng(0).standard_normal((12, 3)), (5, 1)))[0].split(".")[0]
    '60 rows, only 12 different'
    >>> repeated_rows_note(np.random.default_rng(0).integers(1, 6, (200, 2)).astype(float))
    ()
    """
    if len(rows) < FEWEST:
        return ()
    groups, is_copy = _groups_of_equal_rows(rows)
    repeated = int(is_copy.sum())
    different = len(rows) - repeated
    if not repeated or not _beyond_chance(rows[~is_copy], len(rows), int(is_copy[~_at_an_end(rows)].sum())):
        columns = []
        for values in rows.T:
            codes, levels = pd.factorize(values)
            if len(levels) > FEWER * len(rows):
                return ()
            columns.append(_Values(codes, np.bincount(codes), _grid(np.sort(levels), len(rows))))
        if not _repeat_too_often(columns, np.bincount(groups)):
            return ()
    return (
        f"{len(rows):,} rows, only {different:,} different. {SUPPOSES} If they are copies, or come from one unit, "
        "keep one of each: otherwise the p-value is too small.",
    )


def repeats_in(notes: Iterable[str]) -> str:
    """The note on repeated rows among these notes; empty if there is none."""
    return next((note for note in notes if SUPPOSES in note), "")


def _groups_of_equal_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of each row's group of equal rows, and whether the row repeats an earlier one: (N,) each."""
    groups = np.zeros(len(rows), dtype=np.int64)
    for values in rows.T:
        if groups.max() == len(rows) - 1:
            break
        low, high = np.quantile(values, [0.25, 0.75])
        codes = pd.factorize(np.round(values / (SAME * (high - low))) if high > low else values)[0]
        groups = pd.factorize(groups * len(rows) + codes)[0]
    return groups, pd.Series(groups).duplicated().to_numpy()


def _at_an_end(rows: np.ndarray) -> np.ndarray:
    """Mark the rows that are at an end of the range in all columns, such as rows of zeros: (N,)."""
    return ((rows == rows.min(axis=0)) | (rows == rows.max(axis=0))).all(axis=1)


def _beyond_chance(different: np.ndarray, rows: int, repeated: int) -> bool:
    """Whether the number of repeated rows among N has probability below 1e−4 by chance, by Poisson's law.

    Two rows are equal by chance with the probability that their columns tie, each as often as among the different rows
    (U, d): the product over columns, over √det R, where R are the correlations of their ranks. A column on a grid ties
    as often as draws from half of it. Of columns with nearly the same ranks, the one with most ties counts for all.
    Columns in which ties are frequent are no evidence.
    """
    pairs = max(len(different) * (len(different) - 1) / 2, 1.0)
    ties = np.zeros(different.shape[1])
    for column, values in enumerate(different.T):
        codes, levels = pd.factorize(values)
        counts, grid = np.bincount(codes), _grid_steps(np.sort(levels))
        equal = float((counts * (counts - 1.0)).sum() / 2)
        ties[column] = max((equal + TIES_ADDED) / pairs, 2 / grid if grid else 0.0)
    fine = np.argsort(ties, kind="stable")[:MOST_COLUMNS]
    fine = fine[ties[fine] <= FINE]
    if repeated < 2 or not len(fine):
        return False
    ranks = np.stack([pd.Series(different[:, column]).rank().to_numpy() for column in fine])
    correlations = np.atleast_2d(np.corrcoef(ranks))
    leaders: list[int] = []  # the first columns of those with nearly the same ranks
    largest = ties[fine]
    for index in range(len(fine)):
        leader = next((first for first in leaders if abs(correlations[index, first]) > TOGETHER), None)
        if leader is None:
            leaders.append(index)
        else:
            largest[leader] = max(largest[leader], largest[index])
    tied = np.log(largest[leaders]).sum() - np.linalg.slogdet(correlations[np.ix_(leaders, leaders)])[1] / 2
    return bool(pdtrc(repeated - 1, rows * (rows - 1) / 2 * np.exp(tied)) < RARE)


def _repeat_too_often(columns: Sequence[_Values], counts: np.ndarray) -> bool:
    """Whether rows with these frequencies repeat too often, by the columns that others do not determine.

    They do if all frequencies are multiples of one number, which is rare for independent draws, unless a design makes
    all values equally frequent. They also do if far fewer rows are different than expected.
    """
    divisor = int(np.gcd.reduce(counts))  # of each frequency with a probability of about 1/divisor
    copied = divisor > 1 and min(divisor, 3.0) ** (1 - len(counts)) < RARE
    if not copied and not _too_few(columns, len(counts)):
        return False
    even = sorted((c for c in columns if c.grid), key=lambda c: -len(c.counts))
    free: list[_Values] = []
    for column in even:
        if not any(len(before.counts) >= FEWEST and _determine([before], column) for before in free):
            free.append(column)
    free += [c for c in columns if not c.grid and not (even and _determine(even, c))]
    return (copied and not all(c.designed for c in free)) or _too_few(free, len(counts))


def _too_few(columns: Sequence[_Values], different: int) -> bool:
    """Whether far fewer rows are different than if the columns were independent, evenly spaced ones about half.

    If two rows agree with probability S, they are drawn from about 1/S equally likely ones. S is the product of the
    columns' probabilities of a tie. Answers, counts and indicators depend on each other, so their root is taken.
    """
    log_tie = sum(column.log_tie * (DEPENDENT if column.grid else 1.0) for column in columns)
    return different <= FEWER * _expected(len(columns[0].codes), float(np.exp(min(-log_tie, 50.0))))


def _expected(draws: int, values: float) -> float:
    """The expected number of different values among draws from equally likely ones."""
    return float(-values * np.expm1(draws * np.log1p(-1 / values))) if values > 1 else 1.0


def _determine(columns: Sequence[_Values], column: _Values) -> bool:
    """Whether rows that agree in these columns agree in another one."""
    joint = pd.factorize(_joint(columns))[0]
    return len(np.unique(joint * len(column.counts) + column.codes)) == joint.max() + 1


def _joint(columns: Sequence[_Values]) -> np.ndarray:
    """One number per row, equal if all columns are."""
    hashes = np.zeros(len(columns[0].codes), dtype=np.uint64)
    for column in columns:
        hashes = hashes * np.uint64(1_000_003) + pd.util.hash_array(column.codes, categorize=False)
    return hashes


def _grid_steps(different: np.ndarray) -> int:
    """The length of the even grid that sorted values lie on, with or without gaps; 0 if they lie on none."""
    if len(different) < 3:
        return len(different)
    steps = (different - different[0]) / np.diff(different).min()
    even = steps[-1] <= LONGEST_GRID and (np.abs(steps - steps.round()) <= TOLERANCE * steps[-1]).all()
    return round(steps[-1]) + 1 if even else 0


def _grid(different: np.ndarray, rows: int) -> int:
    """The length of the even grid of sorted values; 0 if they are not even, or fewer than half of those expected."""
    length = _grid_steps(different)
    return length if length < 3 or len(different) >= EVEN * _expected(rows, length) else 0
