"""Sentence models in ONNX, of a few numbers, made where a test needs them."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from support.embed_models import VECTORS


def save_model(path: Path, *, inputs: tuple[str, ...] = ("input_ids", "attention_mask"), pooled: bool = False) -> None:
    """Write a model whose answer for a token is its row in the table; `pooled` adds the largest of each column."""
    onnx: Any = importlib.import_module("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])]
    outputs = [helper.make_tensor_value_info("last_hidden_state", kinds.FLOAT, ["batch", "tokens", 3])]
    if pooled:
        nodes.append(helper.make_node("ReduceMax", ["last_hidden_state", "axis"], ["sentence_embedding"], keepdims=0))
        outputs.append(helper.make_tensor_value_info("sentence_embedding", kinds.FLOAT, ["batch", 3]))
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, kinds.INT64, ["batch", "tokens"]) for name in inputs],
        outputs,
        [onnx.numpy_helper.from_array(VECTORS, "table"), onnx.numpy_helper.from_array(np.array([1]), "axis")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
