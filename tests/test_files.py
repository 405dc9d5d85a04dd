"""Files go in and out whole; what is wrong with one is said in a line."""

import errno
import gzip
import json
import os

import numpy as np
import pandas as pd
import pytest

from card.files import FileError, read_chunks, read_frame
from card.writing import Writer, atomic, csv_text

NAMES = ["t.csv", "t.tsv", "t.csv.gz", "t.jsonl", "t.jsonl.gz", "t.parquet", "t.feather"]


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "size": [1.5, None, -3.0],
            "rooms": [1, 2, 3],
            "town": ["Köln", "a,b;c", None],
            "new": [True, False, True],
        }
    )


def write(path, frame, **options):
    with Writer(path, **options) as out:
        out.write(frame)


def same(a, b):
    pd.testing.assert_frame_equal(
        a.astype(object).where(a.notna(), None), b.astype(object).where(b.notna(), None)
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_back_what_was_written(tmp_path, frame, name):
    write(tmp_path / name, frame)
    same(read_frame(tmp_path / name), frame)


@pytest.mark.parametrize("name", NAMES)
def test_chunks_in_and_out_are_the_whole_file(tmp_path, name):
    frame = pd.DataFrame({"v": np.arange(25), "w": [f"w{i}" for i in range(25)]})
    with Writer(tmp_path / name) as out:
        for start in range(0, 25, 10):
            out.write(frame[start : start + 10])
    chunks = list(read_chunks(tmp_path / name, rows=7))
    assert [len(c) for c in chunks][:1] == [7]
    assert sum(map(len, chunks)) == 25
    same(pd.concat(chunks, ignore_index=True).astype(str), frame.astype(str))


def test_between_semicolons_a_comma_is_a_decimal_point(tmp_path):
    (tmp_path / "t.csv").write_text(
        "price;town;note\n1.234,50;Ulm;a,b\n-0,5;Bonn;\n12;Ulm;3,x\n", encoding="utf-8"
    )
    read = read_frame(tmp_path / "t.csv")
    assert read["price"].tolist() == [1234.5, -0.5, 12.0]
    assert read["note"].tolist() == ["a,b", None, "3,x"]


def test_between_commas_a_quoted_comma_stays_text(tmp_path):
    (tmp_path / "t.csv").write_text('a,b\n"1,5",2\n', encoding="utf-8")
    assert read_frame(tmp_path / "t.csv")["a"].tolist() == ["1,5"]


def test_semicolons_and_byte_order_marks_are_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1;x\n", encoding="utf-8-sig")
    assert read_frame(path).to_dict("list") == {"a": [1], "b": ["x"]}


def test_codes_with_leading_zeros_stay_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("zip,n,neg\n01067,0,-0.5\n50667,0.5,0\n")
    frame = read_frame(path)
    assert frame["zip"].tolist() == ["01067", "50667"]
    assert frame["n"].tolist() == [0, 0.5]
    assert frame["neg"].tolist() == [-0.5, 0]


def test_extreme_numbers_are_read_exactly(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("v\n1e308\n1e-308\n-1e308\n")
    assert read_frame(path)["v"].tolist() == [1e308, 1e-308, -1e308]


def test_ten_thousand_columns_are_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"c{i}" for i in range(10_000)) + "\n" + ",".join(["1"] * 10_000) + "\n")
    assert read_frame(path).shape == (1, 10_000)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"a,b\n", "has a header but no rows"),
        ("t.csv", b"a,b\n1,2\n1,2,3\n", "line 3: 3 cells, but the header has 2"),
        ("t.csv", b"a,b\n1,2\n1\n", "line 3: 1 cell, but the header has 2"),
        ("t.csv", b"a,a\n1,2\n", "occur more than once: a"),
        ("t.csv", b"\n1,2\n", "must name the columns"),
        ("t.csv", "naïve\nä\n".encode("latin-1"), "not written in utf-8; say --encoding"),
        ("t.csv", "a\nb\n".encode("utf-16"), "say --encoding utf-16"),
        ("t.csv", bytes(range(256)) * 10, "is a binary file"),
        ("t.csv", b"PK\x03\x04 model", "is a zip or model file"),
        ("t.csv", gzip.compress(b"a\n1\n", mtime=0), "is packed by gzip; let its name end in .gz"),
        ("t.csv", b"PAR1 and more", "is a Parquet file; let its name end in .parquet"),
        ("t.csv", b"ARROW1 and more", "is a Feather file; let its name end in .feather"),
        ("t.card", b"PK\x03\x04 model", "unknown kind of file; a model is no table"),
        ("t.csv", b'a\n"open\n', "unexpected end of data"),
        ("t.csv.gz", b"not gzip", "not a complete gzip file"),
        ("t.csv.gz", gzip.compress(b"a\n" + b"1\n" * 9999, mtime=0)[:-20], "not a complete gzip file"),
        ("t.jsonl", b'{"a": 1}\n[1]\n', "line 2: not a JSON object"),
        ("t.jsonl", b'{"a": [1]}\n', "line 1: 'a' holds a list or an object, not one value"),
        ("t.csv.gz", gzip.compress(b"", mtime=0), "is empty"),
        ("t.json", b"[]", "write one object a line, as .jsonl"),
        ("t.parquet", b"a,b\n1,2\n", "is not a parquet file"),
        ("t.feather", b"a,b\n1,2\n", "is not a feather file"),
        ("t.xlsx", b"x", "unknown kind of file; spreadsheets come and go as CSV"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FileError, match=message) as error:
        read_frame(path)
    assert "\n" not in str(error.value)


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(FileError, match=r"nothing\.csv: no such file"):
        read_frame(tmp_path / "nothing.csv")


def test_another_encoding_can_be_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("town\nKöln\n".encode("latin-1"))
    assert read_frame(path, encoding="latin-1")["town"].tolist() == ["Köln"]
    with pytest.raises(FileError, match="no encoding named 'klingon'"):
        read_frame(path, encoding="klingon")


def test_nothing_is_replaced_without_force(tmp_path, frame):
    path = tmp_path / "t.csv"
    path.write_text("precious")
    with pytest.raises(FileError, match="exists already; --force replaces it"):
        write(path, frame)
    assert path.read_text() == "precious"
    write(path, frame, force=True)
    assert path.read_text().startswith("size,rooms")


def test_a_folder_or_a_missing_folder_is_refused(tmp_path):
    for path in (tmp_path / "no" / "t.csv",):
        with pytest.raises(FileError, match="no such folder"):
            Writer(path)
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(FileError, match="it is a folder"):
        Writer(tmp_path / "d.csv", force=True)


def test_a_read_only_folder_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(FileError, match=r"t\.csv cannot be written: its folder is read-only"):
        Writer(tmp_path / "t.csv")


def test_a_full_disk_is_told_by_the_name_that_was_asked_for(tmp_path, monkeypatch):
    def full(**_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", full)
    with pytest.raises(FileError, match=r"t\.csv cannot be written: No space left on device"):
        atomic(tmp_path / "t.csv").__enter__()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("name", NAMES)
def test_an_interrupted_write_leaves_nothing(tmp_path, frame, name, error):
    def interrupted():
        with Writer(tmp_path / name) as out:
            out.write(frame)
            raise error

    with pytest.raises(error):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_replacement_leaves_the_old_file(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")

    def interrupted():
        with atomic(path, force=True) as part:
            part.write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


def test_written_files_have_the_usual_permissions(tmp_path, frame):
    write(tmp_path / "t.csv", frame)
    (tmp_path / "plain").write_text("")
    assert os.stat(tmp_path / "t.csv").st_mode == os.stat(tmp_path / "plain").st_mode


@pytest.mark.parametrize(
    "cell", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "  =1", "\uff1d1"]
)
def test_a_formula_is_never_written_to_csv_as_it_stands(cell):
    text = csv_text(pd.DataFrame({cell: [cell]}))
    header, row = text.splitlines()[0], text.splitlines()[1]
    assert header.lstrip('"').startswith("'")
    assert row.lstrip('"').startswith("'")


def test_numbers_and_ordinary_strings_are_written_as_they_are():
    frame = pd.DataFrame({"v": [-1.5], "text": ["-3"], "a": ["plain = text"]})
    assert csv_text(frame) == "v,text,a\n-1.5,-3,plain = text\n"


def test_json_lines_keep_formulas_because_nothing_runs_them(tmp_path):
    write(tmp_path / "t.jsonl", pd.DataFrame({"a": ["=1"]}))
    assert json.loads((tmp_path / "t.jsonl").read_text()) == {"a": "=1"}


def test_a_name_met_once_in_json_lines_is_a_column_from_then_on(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"a": 1, "b": 2}\n{"a": 3}\n{"c": 4, "a": 5}\n{}\n')
    chunks = list(read_chunks(tmp_path / "t.jsonl", rows=1))
    assert [list(c) for c in chunks] == [["a", "b"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c"]]
    assert chunks[2]["c"].tolist() == [4]
    assert read_frame(tmp_path / "t.jsonl").shape == (4, 3)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.feather"])
def test_rows_with_new_columns_are_refused_rather_than_shifted(tmp_path, name):
    def grow():
        with Writer(tmp_path / name) as out:
            out.write(pd.DataFrame({"a": [1]}))
            out.write(pd.DataFrame({"a": [1], "b": [2]}))

    with pytest.raises(FileError, match="a later row has a new column 'b'"):
        grow()
    assert list(tmp_path.iterdir()) == []


def test_json_lines_take_new_columns(tmp_path):
    with Writer(tmp_path / "t.jsonl") as out:
        out.write(pd.DataFrame({"a": [1]}))
        out.write(pd.DataFrame({"a": [1], "b": [2]}))
    assert read_frame(tmp_path / "t.jsonl").shape == (2, 2)


@pytest.mark.parametrize("name", ["t.parquet", "t.feather"])
def test_a_column_that_begins_empty_is_text(tmp_path, name):
    with Writer(tmp_path / name) as out:
        out.write(pd.DataFrame({"a": [None, None]}))
        out.write(pd.DataFrame({"a": ["x", None]}))
    assert read_frame(tmp_path / name)["a"].fillna("").tolist() == ["", "", "x", ""]


def test_types_that_change_are_told_in_a_line(tmp_path):
    def change():
        with Writer(tmp_path / "t.parquet") as out:
            out.write(pd.DataFrame({"a": [1]}))
            out.write(pd.DataFrame({"a": [1.5]}))

    with pytest.raises(FileError, match=r"later rows are of another type .*write \.jsonl") as error:
        change()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("gap", ["?", " ", "NA ", "#NA", "1.#QNAN"])
def test_a_gap_is_known_by_many_words(tmp_path, gap):
    (tmp_path / "t.csv").write_text(f"v,w\n1,a\n{gap},b\n")
    assert read_frame(tmp_path / "t.csv")["v"].tolist()[0] == 1.0
    assert np.isnan(read_frame(tmp_path / "t.csv")["v"].tolist()[1])


def test_bars_part_cells_where_nothing_else_does(tmp_path):
    (tmp_path / "t.csv").write_text("a|b\n1|x\n")
    assert read_frame(tmp_path / "t.csv").to_dict("list") == {"a": [1], "b": ["x"]}


def test_names_and_cells_may_hold_line_breaks(tmp_path):
    (tmp_path / "t.csv").write_text('"a\nb",c\n"x\ny",1\n')
    read = read_frame(tmp_path / "t.csv")
    assert list(read) == ["a\nb", "c"]
    assert read["a\nb"].tolist() == ["x\ny"]


@pytest.mark.parametrize("name", ["t.parquet", "t.feather"])
def test_chunks_do_not_depend_on_how_the_file_was_cut(tmp_path, name):
    """Also where each piece of the file has categories of its own."""
    frame = pd.DataFrame({"v": np.arange(25), "w": pd.Categorical([f"w{i // 4}" for i in range(25)])})
    with Writer(tmp_path / name) as out:
        for start in range(0, 25, 4):
            out.write(frame[start : start + 4].assign(w=lambda f: f["w"].cat.remove_unused_categories()))
    chunks = list(read_chunks(tmp_path / name, rows=10))
    assert [len(c) for c in chunks] == [10, 10, 5]
    same(pd.concat([c.astype(str) for c in chunks], ignore_index=True), frame.astype(str))
