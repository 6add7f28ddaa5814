"""What the folder of a page is made of: weights that are stored once, and a runtime that is known
by its hashes."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from clearhead.errors import ClearheadError, ConfigError, FolderError
from clearhead.interop.certificate import Certificate
from clearhead.web import exporting, runtime
from clearhead.web.card import card_of
from clearhead.web.drawing import WEIGHTS, WeightStore
from clearhead.web.runtime import RuntimeFile, find_runtime, runtime_files

PAGE = Path(exporting.__file__).parent / "page_files"


def test_a_table_of_two_graphs_is_stored_once_even_transposed(tmp_path: Path):
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    make, kinds = onnx.helper, onnx.TensorProto
    rng = np.random.default_rng(0)
    table = rng.normal(size=(40, 8)).astype(np.float16).astype(np.float32)  # as a run stores it
    fine = rng.normal(size=(8, 40)).astype(np.float32)  # which half precision does not hold

    def written(name: str, nodes: list, inputs: list, tensors: dict[str, np.ndarray]) -> Path:
        initial = [onnx.numpy_helper.from_array(value, key) for key, value in tensors.items()]
        output = make.make_tensor_value_info("y", kinds.FLOAT, ["n", None])
        graph = make.make_graph(nodes, name, inputs, [output], initial)
        proto = make.make_model(
            graph, opset_imports=[make.make_opsetid("", 18)], ir_version=onnx.IR_VERSION_2023_5_5
        )
        store.take_from(proto, onnx)
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(proto.SerializeToString())
        return path

    store = WeightStore()
    tokens = make.make_tensor_value_info("tokens", kinds.INT64, ["n"])
    rows = make.make_tensor_value_info("rows", kinds.FLOAT, ["n", 8])
    gather = make.make_node("Gather", ["table", "tokens"], ["y"])
    both = [
        make.make_node("MatMul", ["rows", "turned"], ["one"]),
        make.make_node("MatMul", ["rows", "fine"], ["two"]),
        make.make_node("Add", ["one", "two"], ["y"]),
    ]
    first = written("first", [gather], [tokens], {"table": table})
    turned = np.ascontiguousarray(table.T)
    second = written("second", both, [rows], {"turned": turned, "fine": fine})
    (tmp_path / WEIGHTS).write_bytes(bytes(store.data))

    assert len(store.data) == table.size * 2 + fine.size * 4
    ids, x = np.array([3, 0, 39]), rng.normal(size=(5, 8)).astype(np.float32)
    found = onnxruntime.InferenceSession(first).run(None, {"tokens": ids})[0]
    assert (found == table[ids]).all()
    found = onnxruntime.InferenceSession(second).run(None, {"rows": x})[0]
    assert np.allclose(found, x @ turned + x @ fine, atol=1e-5)


def fill(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[RuntimeFile]:
    """A folder like npm's, with small files whose hashes stand in the table."""
    small: list[RuntimeFile] = []
    for each in runtime_files():
        data = f"{each.package} {each.path}".encode()
        path = folder / each.package / each.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        small.append(each._replace(bytes=len(data), sha256=digest))
    monkeypatch.setattr(runtime, "runtime_files", lambda: small)
    return small


def test_the_runtime_is_copied_from_npms_folder_or_from_an_earlier_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    small = fill(tmp_path / "node_modules", monkeypatch)
    found = find_runtime(tmp_path / "node_modules")
    assert set(found) == {each.name for each in small} | {"onnxruntime-web.LICENSE"}
    earlier = tmp_path / "runtime"
    earlier.mkdir()
    for name, data in found.items():
        (earlier / name).write_bytes(data)
    assert find_runtime(earlier) == found
    monkeypatch.chdir(tmp_path)
    assert find_runtime(None) == found


def test_another_runtime_is_refused_with_the_command_that_brings_the_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(ClearheadError, match="npm install onnxruntime-web@") as error:
        find_runtime(tmp_path)
    assert "@huggingface/tokenizers@" in str(error.value)
    small = fill(tmp_path, monkeypatch)
    path = tmp_path / small[1].package / small[1].path
    path.write_bytes(bytes(reversed(path.read_bytes())))
    with pytest.raises(FolderError, match="its hash differs"):
        find_runtime(tmp_path)


def test_the_decision_page_has_the_table_of_the_runtime():
    page = Path(__file__).parent.parent.parent / "docs" / "decisions" / "2026-11-18-web.md"
    text = page.read_text(encoding="utf-8")
    for each in runtime_files():
        row = f"| {each.package} {each.version} | `{each.path}` | {each.bytes:,} | {each.licence} |"
        assert row in text


def test_the_pages_modules_are_all_written_and_hold_no_markup():
    assert {path.name for path in PAGE.glob("*.js")} == set(exporting.MODULES)
    for path in PAGE.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|\beval\(|insertAdjacent|document\.write", text)
        assert not re.search(r"https?://", text)


def test_a_card_tells_how_a_run_was_trained(tmp_path: Path):
    model = tmp_path / "run" / "model"
    model.mkdir(parents=True)
    certificate = Certificate(
        family="web",
        architecture="Seq2Seq",
        versions={},
        library="onnxruntime",
        largest_difference=2e-6,
    )
    assert card_of(model, certificate)["training"] is None
    records = [
        {"step": 5, "loss": 3.0},
        {"step": 10, "valid": True, "new_best": True, "loss": 2.5},
        {"step": 11, "loss": 2.0},
    ]
    lines = [json.dumps(each) for each in records]
    (tmp_path / "run" / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 12, "lo']))
    (tmp_path / "run" / "recipe.toml").write_text('name = "mine"')
    (model / "ATTRIBUTION.txt").write_text("by somebody")
    card = card_of(model, certificate)
    assert card["training"] == {"step": 10, "loss": 2.5}
    assert card["recipe"] == 'name = "mine"' and card["about"] is None
    assert card["files"] == ["ATTRIBUTION.txt"] and "2.0e-06" in card["parity"]


def test_options_of_the_web_are_refused_elsewhere(tmp_path: Path):
    import clearhead as ch

    with pytest.raises(ConfigError, match="example"):
        ch.export("copy-task", tmp_path / "out", to="huggingface", example="abc")
    assert not (tmp_path / "out").exists()
