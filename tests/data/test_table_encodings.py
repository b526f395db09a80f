"""Files in different text encodings: the same words are the same, or the user is asked before any test."""

import codecs
import io
import zipfile

import numpy as np
import pytest

import m2st_core as m2st
from m2st_core.__main__ import main
from m2st_core.analysis.report import DataSource, as_command, as_python
from m2st_core.data.tables.assemble import assemble
from m2st_core.data.tables.encoding import Cleaning, open_questions
from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.prepare import prepare
from m2st_core.data.tables.questions import TableError, Unanswered
from m2st_core.data.tables.text_encoding import ACCEPTED, bytes_of_guess, guess_text
from m2st_core.data.tables.upload import Upload

WORDS = {
    "cp1251": ["Москва", "Киев", "Тула"],
    "koi8-r": ["Москва", "Киев", "Тула"],
    "cp866": ["Москва", "Киев", "Тула"],
    "cp1250": ["Łódź", "Kraków", "Żory"],
    "iso-8859-2": ["Řím", "Šumperk", "Žďár"],
    "cp1253": ["Αθήνα", "Πάτρα", "Βόλος"],
    "mac-roman": ["Zürich", "Genève", "Köln"],
    "shift_jis": ["東京", "大阪", "なら"],
    "gb18030": ["男", "女", "北京"],
    "euc-kr": ["서울", "부산", "대구"],
    "big5": ["臺北", "高雄", "臺南"],
    "utf-16": ["Москва", "Zürich", "東京"],
}


def text(words, seed, rows=30, header="city,v"):
    generator = np.random.default_rng(seed)
    return f"{header}\n" + "".join(
        f"{generator.choice(words)},{value:.4f}\n" for value in generator.standard_normal(rows)
    )


def upload(first, second, encodings, **answers):
    """P and Q with these texts in these encodings."""
    files = zip("pq", (first, second), encodings, strict=True)
    return Upload(tuple(read_table(f"{name}.csv", said.encode(codec)) for name, said, codec in files), **answers)


def cities(encodings, codec="cp1251", header="city,v", **answers):
    """P and Q with the same words, and other rows."""
    return upload(*(text(WORDS[codec], seed, header=header) for seed in (0, 1)), encodings, **answers)


def p_value(given):
    data = prepare(given)
    return m2st.two_sample_test(data.x, data.y, method="MMD-M", n_permutations=99).p_value


def question_of(given):
    (question,) = (one for one in assemble(given).readings.questions if one.option == "encoding")
    return question


def test_two_files_in_two_encodings_lead_to_both_if_the_first_answers_are_taken():
    towns = ["Łódź", "Kraków", "Gdańsk"]
    answers, files = {}, ("cp1250", "iso-8859-2")
    for name in ("p.csv", "q.csv"):
        question = question_of(upload(text(towns, 0), text(towns, 1), files, encoding=answers))
        assert question.files == (name,)
        answers |= {name: next(iter(question.answers))}
    assert answers == {"p.csv": "cp1250", "q.csv": "iso-8859-2"}
    whole = prepare(upload(text(towns, 0), text(towns, 1), files, encoding=answers))
    assert whole.features == prepare(upload(text(towns, 0), text(towns, 1), ("utf-8", "utf-8"))).features


@pytest.mark.parametrize("codec", sorted(WORDS.keys() - {"utf-16"}))
def test_one_file_in_another_encoding_is_asked_about_and_the_right_one_comes_first(codec):
    both = cities(("utf-8", "utf-8"), codec)
    mixed = cities(("utf-8", codec), codec)
    with pytest.raises(TableError, match=rf"q.csv: row \d+, column 'city'.*--encoding q.csv={codec} "):
        prepare(mixed)
    question = question_of(mixed)
    assert next(iter(question.answers)) == codec and question.files == ("q.csv",)
    assert len(question.answers) <= 6 and (codec != "cp1251" or "cp1252" in question.answers)  # the guess is offered
    assert {readings[0] for _, readings in question.examples} & {*WORDS[codec]}
    assert any(cell.cell != readings[0] for cell, readings in question.examples)
    for said in (codec, {"q.csv": codec}):
        answered = prepare(cities(("utf-8", codec), codec, encoding=said))
        assert np.array_equal(answered.x, prepare(both).x) and np.array_equal(answered.y, prepare(both).y)
        assert answered.features == prepare(both).features
    assert prepare(cities((codec, "utf-8"), codec, encoding=codec)).features == prepare(both).features


def test_the_same_samples_in_two_encodings_have_the_p_value_of_one():
    """Without a question they had p = .01, the smallest: all words differed."""
    expected = p_value(cities(("utf-8", "utf-8")))
    assert expected > 0.05
    for encodings in (("utf-8", "cp1251"), ("koi8-r", "utf-8"), ("cp1251", "koi8-r")):
        with pytest.raises(TableError, match="the file is not UTF-8"):
            p_value(cities(encodings))
        said = {f"{n}.csv": codec for n, codec in zip("pq", encodings, strict=True) if codec != "utf-8"}
        assert p_value(cities(encodings, encoding=said)) == expected


@pytest.mark.parametrize("codec", sorted(WORDS))
def test_no_question_where_the_encoding_changes_nothing(codec):
    """Bytes that are equal in both files are equal words; UTF-16 says what it is."""
    expected = prepare(cities(("utf-8", "utf-8"), codec))
    alike = prepare(cities((codec, codec), codec))
    assert not open_questions(assemble(cities((codec, codec), codec)), Cleaning())
    assert sorted(alike.x.sum(axis=0)) == pytest.approx(sorted(expected.x.sum(axis=0)))
    assert codec == "utf-16" or any("Not UTF-8" in note for note in alike.decisions)
    with_ascii = upload(text(["Tula", "Kiew"], 0), text(WORDS[codec], 1), ("utf-8", codec))
    assert prepare(with_ascii).x.shape[0] == 30


def test_words_that_the_guess_reads_right_are_not_asked_about():
    words = ["Zürich", "Genève", "Köln", "2 µg"]
    both = [prepare(upload(text(words, 0), text(words, 1), codecs)) for codecs in (("utf-8",) * 2, ("utf-8", "cp1252"))]
    assert np.array_equal(both[0].x, both[1].x) and np.array_equal(both[0].y, both[1].y)
    rare = upload(text(["Zürich", "Basel", "Köln"], 0), text(["Zürich", "Basel", "Genève"], 1), ("utf-8", "cp1252"))
    assert prepare(rare).x.shape[0] == 30


def test_words_of_which_none_is_in_the_other_file_are_asked_about():
    with pytest.raises(TableError, match="--encoding q.csv=cp1251"):
        prepare(upload(text(["Орёл", "Омск"], 0), text(WORDS["cp1251"], 1), ("utf-8", "cp1251")))


def test_columns_that_are_not_compared_are_not_asked_about():
    """Left out, free text, of one file only, or cells that are numbers with a sign of Latin-1."""
    assert prepare(cities(("utf-8", "cp1251")), cleaning=Cleaning(left_out=("city",))).features == ("v",)
    comments = ["\n".join(["note,v", *(f"Пример {i} {name},{i * 7 % 5}" for i in range(30))]) for name in "ПК"]
    same = ["\n".join(["note,v", *(f"Пример {i},{(i * k) % 5}" for i in range(300))]) for k in (3, 7)]
    for pair in (comments, same):
        assert prepare(upload(*pair, ("utf-8", "cp1251"))).features == ("v",)
    alone = upload(text(WORDS["cp1251"], 0), text(["1.5", "2.5"], 1, header="w,v"), ("cp1251", "utf-8"))
    assert prepare(alone).features == ("v",)
    prices = [text(["10 €", "12 €", "1\u00a0000 €"], seed, header="price,v") for seed in (0, 1)]
    assert prepare(upload(*prices, ("utf-8", "cp1252"))).features == ("price", "v")


def test_units_are_words_too():
    weights = [text(["10 кг", "12 кг", "14 кг"], seed, header="w,v") for seed in (0, 1)]
    with pytest.raises(TableError, match="--encoding q.csv=cp1251"):
        prepare(upload(*weights, ("utf-8", "cp1251")))
    assert prepare(upload(*weights, ("utf-8", "cp1251"), encoding="cp1251")).features == ("w", "v")


def test_names_of_columns_are_asked_about_before_a_column_is_dropped():
    header = "город,v"
    mixed = cities(("utf-8", "cp1251"), header=header)
    with pytest.raises(TableError, match=r"q.csv: row 1: .* 'город', as in p.csv. Choose --encoding q.csv=cp1251"):
        prepare(mixed)
    assert not question_of(mixed).columns  # leaving a column out does not settle it
    expected = prepare(cities(("utf-8", "utf-8"), header=header))
    answered = prepare(cities(("utf-8", "cp1251"), header=header, encoding="cp1251"))
    assert answered.features == expected.features and np.array_equal(answered.y, expected.y)
    same = prepare(cities(("cp1251", "cp1251"), header=header))
    assert len(same.features) == len(expected.features)


def related(codec, names):
    """A target with a group column and related tasks in one table, whose names and words are Cyrillic."""
    generator = np.random.default_rng(5)
    rows = [
        f"{task},{generator.choice(['да', 'нет'])},{side},{generator.standard_normal():.4f}"
        for task in ("а", "б") for side in ("опыт", "норма") for _ in range(12)
    ]  # fmt: skip
    return read_table("r.csv", "\n".join([names, *rows]).encode(codec))


def test_groups_and_roles_are_found_in_the_right_encoding():
    """Roles may be said as the guess showed them, as on the page, or as they are."""
    names = "задача,ответ,группа,v"
    target = "\n".join(
        [
            "ответ,группа,v",
            *(f"{'да' if i % 3 else 'нет'},{'опыт' if i % 2 else 'норма'},{i * 37 % 11}.5" for i in range(40)),
        ]
    )
    one = read_table("d.csv", target.encode("cp1251"))
    history = related("utf-8", names)
    made = assemble(Upload((one,), (history,), "группа", "задача", encoding="cp1251"))
    guessed = [word.encode("cp1251").decode("cp1252") for word in ("группа", "норма", "опыт")]
    again = assemble(Upload((one,), (history,), guessed[0], "задача", groups=tuple(guessed[1:]), encoding="cp1251"))
    assert made.target.p.label == again.target.p.label and {made.target.p.label, made.target.q.label} == {
        "опыт",
        "норма",
    }
    assert [pair.p.label for pair in made.related] == [made.target.p.label] * 2
    with pytest.raises(Unanswered, match="--encoding d.csv=cp1251"):  # the related tasks lack the column as guessed
        assemble(Upload((one,), (history,), guessed[0], "задача"))
    swapped = Upload((read_table("d.csv", target.encode()),), (related("cp1251", names),), "группа", "задача")
    with pytest.raises(Unanswered, match="--encoding r.csv=cp1251"):
        assemble(swapped)


def test_a_learner_knows_words_and_names():
    """A target in one encoding, against a learner of UTF-8 tables; words that match are not asked about."""
    words = WORDS["cp1251"]
    encoding = prepare(cities(("utf-8", "utf-8"))).encoding
    same = cities(("cp1251", "cp1251"))
    with pytest.raises(TableError, match=r"as in the learner. Choose --encoding p.csv=cp1251 --encoding q"):
        prepare(same, encoding=encoding)
    answered = prepare(cities(("cp1251", "cp1251"), encoding="cp1251"), encoding=encoding)
    assert np.array_equal(answered.x, prepare(cities(("utf-8", "utf-8")), encoding=encoding).x)
    by_guess = prepare(same).encoding  # a learner of such tables has the guessed words
    assert prepare(upload(text([*words, "Орёл"], 3), text(words, 4), ("cp1251",) * 2), encoding=by_guess) is not None
    named = prepare(cities(("utf-8", "utf-8"), header="город,v")).encoding
    with pytest.raises(TableError, match="--encoding p.csv=cp1251"):
        prepare(cities(("cp1251", "cp1251"), header="город,v"), encoding=named)


def test_the_block_is_compared_too():
    blocks = Cleaning(block="city")
    with pytest.raises(TableError, match="--encoding q.csv=cp1251"):
        prepare(cities(("utf-8", "cp1251")), cleaning=blocks)
    assert set(prepare(cities(("utf-8", "cp1251"), encoding="cp1251"), cleaning=blocks).blocks) == set(WORDS["cp1251"])


@pytest.mark.parametrize("name", ["rot13", "zip", "idna", "punycode", "hex", "unicode_escape", "x" * 99, "../a", "\0"])
def test_only_text_encodings_are_accepted(name):
    with pytest.raises(TableError, match=r"encoding must be a text encoding such as utf-8, .* Got "):
        cities(("utf-8", "cp1251"), encoding=name)
    with pytest.raises(TableError, match="must be a text encoding"):
        read_table("q.csv", b"a,b\n1,2\n3,4\n", encoding=name)


def test_wrong_encodings_get_one_sentence():
    for said, match in (
        ("utf-8", r"q.csv: row 2 is not utf-8 text. Choose another encoding, or save it as UTF-8.$"),
        ("utf-16", r"q.csv: row 2 is not utf-16 text"),
        ({"p.csv": "cp1251"}, r"p.csv: it is utf-8 text, so it cannot be read as cp1251"),
        ({"r.csv": "cp1251"}, r"encoding names 'r.csv', which is no file here. There are p.csv, q.csv"),
    ):
        with pytest.raises(TableError, match=match):
            assemble(cities(("utf-8", "cp1251"), encoding=said))
    ascii_too = upload(text(["a", "b"], 0), text(WORDS["cp1251"], 1), ("utf-8", "cp1251"))
    said = {"p.csv": "cp1251", "q.csv": "windows-1251"}
    assert "Москва" in " ".join(prepare(Upload(ascii_too.target, encoding=said)).features)


def test_utf_16_without_a_mark_can_be_said():
    data = "a,b\n1,ü\n3,é\n".encode("utf-16-le")
    assert read_table("d.csv", data, encoding="utf-16-le").frame["b"].tolist() == ["ü", "é"]
    with pytest.raises(TableError, match="NUL byte"):
        read_table("d.csv", data)


def test_a_guess_loses_nothing():
    every = bytes(range(256))
    assert bytes_of_guess(guess_text(every)) == every
    assert {codecs.lookup(name).name for name in ("latin-1", "windows-1251", "gbk", "sjis", "koi8-u")} <= ACCEPTED


def test_random_tables_come_back_in_any_encoding_that_is_said():
    """Words with quotes, separators and spaces around them, in eight encodings, by 40 tables each."""
    letters = {"cp1251": "абвяё", "koi8-r": "абвяё", "cp866": "абвяё", "cp1253": "αβγω", "iso-8859-2": "łśž",
               "mac-roman": "äéßø", "shift_jis": "東ソ表なカ", "gb18030": "男女㐂京"}  # fmt: skip
    draw = np.random.default_rng(7)
    for codec, alphabet in letters.items():
        for _ in range(40):
            cells = ["".join(draw.choice([*alphabet, *"az ;'"], size=draw.integers(2, 8))) + "z" for _ in range(6)]
            lines = "\n".join(["w,v", *(f'"{cell}",{i}' for i, cell in enumerate(cells))])
            plain, other = (read_table("d.csv", lines.encode(name), encoding=codec) for name in ("utf-8", codec))
            assert plain.frame["w"].tolist() == other.frame["w"].tolist() and list(plain.frame) == list(other.frame)
            late = Upload((plain, read_table("e.csv", lines.encode(codec))), encoding={"e.csv": codec})
            assert late.decoded().target[1].frame["w"].tolist() == plain.frame["w"].tolist()


def test_bytes_are_kept_only_where_the_encoding_is_a_guess():
    sizes = {
        codec: len(read_table("d.csv", text(WORDS["cp1251"], 0).encode(codec)).raw) for codec in ("utf-8", "cp1251")
    }
    assert sizes["utf-8"] == 0 and sizes["cp1251"] == len(text(WORDS["cp1251"], 0))
    assert read_table("d.csv", text(WORDS["cp1251"], 0).encode("cp1251"), encoding="cp1251").raw == b""


def test_many_files_in_one_encoding_are_asked_about_at_once():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for task in range(20):
            for side in "PQ":
                name, seed = f"t{task}_{side}.csv", 2 * task + (side == "Q")
                archive.writestr(name, text(WORDS["cp1251"], seed).encode("cp1251"))
    tasks = m2st.read_tables("r.zip", stream.getvalue())
    given = Upload(cities(("utf-8", "utf-8")).target, tasks)
    assert len(question_of(given).files) == 40
    answered = prepare(Upload(given.target, tasks, encoding="cp1251"))
    assert set(answered.features) == {*(f"city = {word}" for word in WORDS["cp1251"]), "city is other", "v"}


def test_the_shell_refuses_and_the_answer_is_repeated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, codec, seed in (("p", "utf-8", 0), ("q", "cp1251", 1)):
        (tmp_path / f"{name}.csv").write_bytes(text(WORDS["cp1251"], seed).encode(codec))
    command = ["test", "p.csv", "q.csv", "--method", "MMD-M", "--permutations", "99"]
    assert main(command) == 2 and "--encoding q.csv=cp1251" in capsys.readouterr().err
    expected = p_value(cities(("utf-8", "utf-8")))
    for said in ("cp1251", "q.csv=cp1251", "q.csv=windows-1251"):
        assert main([*command, "--encoding", said, "--report", "r.html"]) == 0
        assert f"p-value    {expected:.4g} " in capsys.readouterr().out
        assert f"--encoding {said}" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert main([*command, "--encoding", "cp1251", "--encoding", "q.csv=cp1251"]) == 2
    assert "--encoding takes NAME once, or FILE=NAME for each file. Got 'cp1251'" in capsys.readouterr().err
    source = DataSource(("p.csv", "q.csv"), encoding={"q.csv": "cp1251"})
    plan = m2st.Plan("MMD-M")
    assert "--encoding q.csv=cp1251" in as_command(source, Cleaning(), plan)
    assert "encoding={'q.csv': 'cp1251'}" in as_python(source, Cleaning(), plan)
    assert source.upload().digest != DataSource(("p.csv", "q.csv")).upload().digest
    assert prepare(source.upload()).record["answers"]["encoding"] == {"q.csv": "cp1251"}
