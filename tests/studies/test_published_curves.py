"""Published tables: what the files say is what is read, and damaged ones are said."""

import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.studies.published_curves import is_about, published_file, read_layers, read_published

GOOD = "Sparsity\tNNZ\tBaseline\tProposed\n0.800\t2.4 M\t94.3\t94.4\n0.900\t1.2 M\t94.3\t\n"


@pytest.fixture(scope="session")
def curves(shared):
    return shared / "fixtures" / "published_curves"


def test_every_published_value_is_read_as_it_stands_in_the_file(curves):
    files = sorted(curves.glob("performance__*.tsv"))
    assert len(files) >= 10
    for file in files:
        header, *lines = [line.split("\t") for line in file.read_text().splitlines()]
        expected = {}
        for line in lines:
            for name, cell in zip(header[2:], line[2:], strict=False):
                if cell:
                    expected.setdefault(name, []).append((float(line[0]), float(cell)))
        assert read_published(file) == expected


def test_some_values_of_the_papers_figures(curves):
    lstm = read_published(curves / "performance__Pruning_Soft-Attention_LSTM_MS-COCO_CIDEr.tsv")
    assert lstm["Proposed"] == [(0.8, 94.4), (0.9, 93.1), (0.95, 92.1), (0.975, 88.5)]
    assert lstm["SNIP"][-1] == (0.975, 24.9) and lstm["Baseline"][0] == (0.8, 94.3)
    up_down = read_published(curves / "performance__Pruning_Up-Down_MS-COCO_CIDEr.tsv")
    assert up_down["Hard pruning (class-blind)"] == [(0.95, 0.0)]
    assert len(up_down["Proposed"]) == 4 and len(up_down["Gradual pruning"]) == 3


@pytest.mark.parametrize(
    ("captioner", "score", "found"),
    [
        ("Soft-Attention LSTM", "CIDEr", "Pruning_Soft-Attention_LSTM_MS-COCO_CIDEr"),
        ("soft attention (GRU)", "BLEU-4", "Pruning_Soft-Attention_GRU_MS-COCO_BLEU-4"),
        ("Soft-Attention Inception-V1 GRU", "CIDEr", "Pruning_Soft-Attention_Inception-V1_GRU_MS-COCO_CIDEr"),
        ("Up-Down", "CIDEr", "Pruning_Up-Down_MS-COCO_CIDEr"),
        ("ORT", "BLEU-4", "Pruning_ORT_MS-COCO_BLEU-4"),
        ("Object Relation Transformer", "CIDEr", "Pruning_ORT_MS-COCO_CIDEr"),
        ("ACORT", "CIDEr", None),
        ("ORT", "SPICE", None),
        ("", "CIDEr", None),
        ("Soft-Attention", "CIDEr", None),
    ],
)
def test_a_captioners_table_is_found_by_its_name(curves, captioner, score, found):
    file = published_file(curves, captioner, score)
    assert (file and file.stem) == (found and f"performance__{found}")


def test_a_folder_that_is_not_there_has_no_tables(tmp_path):
    assert published_file(tmp_path / "none", "ORT", "CIDEr") is None
    assert not is_about(tmp_path / "ORT.tsv", "ORT")


def test_layers_are_read_as_they_stand_in_the_files(curves):
    for file in curves.glob("layerwise__*.tsv"):
        found = read_layers(file)
        header, *lines = [line.split("\t") for line in file.read_text().splitlines()]
        assert list(found) == header[1:]
        for column, method in enumerate(header[1:], start=1):
            expected = {line[0].removesuffix("/mask"): float(line[column]) for line in lines}
            assert found[method] == expected and len(expected) == len(lines)


def test_windows_line_ends_a_mark_at_the_start_and_blank_lines_do_no_harm(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode() + b"\r\n\t\t\r\n")
    assert read_published(tmp_path / "a.tsv") == {
        "Baseline": [(0.8, 94.3), (0.9, 94.3)],
        "Proposed": [(0.8, 94.4)],
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "begins with"),
        ("Method\tA\n0.8\t1\n", "first column is Sparsity"),
        ("Sparsity\n0.8\n", "has others"),
        ("Sparsity\tA\tA\n0.8\t1\t2\n", "its own name"),
        ("Sparsity\tA\t\n0.8\t1\t2\n", "its own name"),
        ("Sparsity\tA\n", "no line below its header"),
        ("Sparsity\tA\n\n\t\n", "no line below its header"),
        ("Sparsity\tA\n0.8\t1\t2\n", "line 2 has 3 cells for 2 columns"),
        ("Sparsity\tA\n0.8\t1\n0.9\tmany\n", 'line 3 has "many" under A'),
        ("Sparsity\tA\n0.8\tnan\n", 'line 2 has "nan" under A'),
        ("Sparsity\tA\n\t1\n", 'line 2 has "" under Sparsity'),
        ("Sparsity\tA\n80\t1\n", "line 2 has 80 under Sparsity.*from 0 to 1"),
        ("Sparsity\tA\n0.8\t1\n0.80\t1\n", "line 3 repeats the sparsity 0.8"),
        (b"Sparsity\tA\n0.8\t\xff\xfe\n", "no text with tabs"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "no text with tabs"),
        (b"Sparsity\tA\n" + b"0.8\t1\n" * 200_000, "larger than such a table"),
    ],
)
def test_a_damaged_table_is_said_in_a_sentence(tmp_path, content, message):
    file = tmp_path / "a.tsv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=f"a.tsv.*{message}") as raised:
        read_published(file)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Layer\tA\nx/mask\t0.5\nx\t0.6\n", 'line 3 names no new layer \\("x"\\)'),
        ("Layer\tA\n\t0.5\n", "line 2 names no new layer"),
        ("Layer\tA\nx\t97.5\n", "line 2 has 97.5 under A"),
        ("Sparsity\tA\n0.8\t1\n", "first column is Layer"),
    ],
)
def test_a_damaged_table_of_layers_is_said(tmp_path, content, message):
    (tmp_path / "a.tsv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_layers(tmp_path / "a.tsv")


def test_a_file_that_is_not_there_or_a_folder_is_said(tmp_path):
    for path in (tmp_path / "none.tsv", tmp_path):
        with pytest.raises(InputError, match="cannot read"):
            read_published(path)
