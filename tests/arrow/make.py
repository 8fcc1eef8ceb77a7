"""Makes a Parquet file, by pyarrow, of a description in JSON (pyarrow/__init__.py). make.py IN OUT"""
import json
import sys

import pyarrow
import pyarrow.parquet


def type_of(described):
    if isinstance(described, str):
        return pyarrow.decimal128(9, 2) if described == "decimal" else pyarrow.type_for_alias(described)
    if described[0] == "list":
        return pyarrow.list_(type_of(described[1]))
    return pyarrow.struct([(name, type_of(t)) for name, t in described[1]])


with open(sys.argv[1]) as f:
    content = json.load(f)
arrays = [
    pyarrow.array([row.get(name) for row in content["rows"]], type=type_of(t)) for name, t in content["columns"]
]
names = [name for name, _ in content["columns"]]
pyarrow.parquet.write_table(pyarrow.table(arrays, names=names), sys.argv[2], row_group_size=100)
