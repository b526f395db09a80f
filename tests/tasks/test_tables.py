import pytest

from m2st_core.tasks.tables import read_csv, read_csv_pair


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_with_and_without_a_header(write):
    named = read_csv(write("a.csv", "height, weight\n1, 2\n3.5,-4e2\n\n"))
    assert named.columns.tolist() == ["height", "weight"]
    assert named.to_numpy().tolist() == [[1, 2], [3.5, -400]]
    assert read_csv(write("b.csv", "1,2\n3,4\n")).to_numpy().tolist() == [[1, 2], [3, 4]]
    assert read_csv(write("c.csv", "1\n2\n3\n")).shape == (3, 1)


def test_columns_are_matched_by_name(write):
    p, q = read_csv_pair(write("p.csv", "a,b\n1,2\n3,4\n"), write("q.csv", "b,a\n20,10\n40,30\n"))
    assert q.columns.tolist() == p.columns.tolist()
    assert q.to_numpy().tolist() == [[10, 20], [30, 40]]


BAD = {
    "empty": ("", "the file is empty"),
    "header only": ("a,b\n", "a header but no row"),
    "text cell": ("a,b\n1,2\n3,dog\n", "row 3, column 'b': 'dog' is not a number"),
    "empty cell": ("a,b\n1,\n3,4\n", "row 2, column 'b': the cell is empty"),
    "empty first cell": ("1,\n3,4\n", "row 1, column 2: the cell is empty"),
    "missing first cell": ("NA,1\n3,4\n", "row 1, column 1"),
    "no header": ("1,2\n3,x\n", "row 2, column 2: 'x' is not a number"),
    "ragged": ("1,2\n3,4,5\n", "not readable as comma-separated"),
    "latin-1": ("größe,b\n1,2\n".encode("latin-1"), "not readable as comma-separated UTF-8"),
    "twice": ("a,a\n1,2\n", "two columns are called 'a'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_named_with_row_and_column(name, write):
    text, message = BAD[name]
    path = write("data.csv", text)
    with pytest.raises(ValueError, match=message) as caught:
        read_csv(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_missing_files_and_other_columns(write):
    p = write("p.csv", "a,b\n1,2\n")
    with pytest.raises(ValueError, match="no such file"):
        read_csv_pair(p, "nowhere.csv")
    with pytest.raises(ValueError, match="only in .*p.csv: b; only in .*q.csv: c"):
        read_csv_pair(p, write("q.csv", "a,c\n1,2\n"))
    with pytest.raises(ValueError, match="2 columns and .* has 3"):
        read_csv_pair(write("r.csv", "1,2\n3,4\n"), write("s.csv", "1,2,3\n"))
