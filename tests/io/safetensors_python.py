#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files between this library and Python's safetensors: `safetensors_python.py <io_test>`.

Ends with 77, skipped, where Python has no safetensors or no numpy.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
    import safetensors
    import safetensors.numpy
except ImportError as missing:
    print(f"safetensors_python: skipped, {missing}")
    sys.exit(77)

# In the order of the format.
BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
        "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
        "C64": 64, "F64": 64, "I64": 64, "U64": 64}


def expected(number, name):
    return bytes((k + number) % 256 if k % 2 == 0 and name != "BOOL" else 0 for k in range(24 * BITS[name] // 8))


with tempfile.TemporaryDirectory() as directory:
    directory = pathlib.Path(directory)
    random = numpy.random.default_rng(7)
    tensors = {
        "layer.0.weight": random.standard_normal((3, 5), dtype=numpy.float32),
        "layer.0.bias": random.standard_normal(5).astype(numpy.float16),
        "scalar": numpy.array(7, dtype=numpy.int64),
        "empty": numpy.zeros((0, 4), dtype=numpy.uint8),
        "flags": numpy.array([True, False, True]),
        "wide": random.standard_normal((2, 2, 2)),
    }
    safetensors.numpy.save_file(tensors, directory / "python.safetensors", {"format": "np"})

    subprocess.run([sys.argv[1], "[.python]"], check=True,
                   env={**os.environ, "SHARDWRIGHT_PYTHON_DIRECTORY": str(directory)})

    again = (directory / "again.safetensors").read_bytes()
    assert again == (directory / "python.safetensors").read_bytes(), "Python's file must come back byte for byte"
    loaded = safetensors.numpy.load_file(directory / "again.safetensors")
    assert loaded.keys() == tensors.keys()
    assert all(numpy.array_equal(loaded[name], tensors[name]) for name in tensors)

    ours = (directory / "ours.safetensors").read_bytes()
    header = json.loads(ours[8:8 + int.from_bytes(ours[:8], "little")])
    assert header.pop("__metadata__") == {"format": "np"}
    known = {}
    for name in header:  # Python's version may not know the newest element types
        try:
            single = f'{{"a":{{"dtype":"{header[name]["dtype"]}","shape":[0],"data_offsets":[0,0]}}}}'.encode()
            known[name] = len(safetensors.deserialize(len(single).to_bytes(8, "little") + single)) == 1
        except safetensors.SafetensorError:
            known[name] = False
    if all(known.values()):
        read = dict(safetensors.deserialize(ours))
        assert len(read) == len(BITS)
        for number, name in enumerate(BITS):
            tensor = read["\u00e9 " + name]
            assert tensor["dtype"] == name and list(tensor["shape"]) == [2, 3, 4]
            assert bytes(tensor["data"]) == expected(number, name), name

    index = json.loads((directory / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 48 + 96 + 192 and len(set(index["weight_map"].values())) == 3
    for name, file in index["weight_map"].items():
        with safetensors.safe_open(directory / file, framework="np") as opened:
            assert opened.metadata() == {"format": "pt"}
            value = opened.get_tensor(name)
        dtype = name.removeprefix("\u00e9 ")
        assert value.tobytes() == expected(list(BITS).index(dtype), dtype)
    print(f"safetensors {safetensors.__version__}: {len(tensors)} tensors of Python, "
          f"{sum(known.values())} of {len(known)} element types known there")
