"""A stand-in for pyarrow: as much of it as client/convert.py calls.

Its files are descriptions in JSON, {"columns": [[NAME, TYPE], ...], "rows": [...]}, and no Parquet. A TYPE is
the name that Arrow has for it, ["list", TYPE], or ["struct", [[NAME, TYPE], ...]]. tests/arrow/make.py makes
Parquet of the same descriptions where the package is installed.
"""
from . import types


class ArrowException(Exception):
    pass


class Field:
    def __init__(self, name, described):
        self.name = name
        self.type = Type(described)


class Type:
    def __init__(self, described):
        self.kind = described if isinstance(described, str) else described[0]
        self.fields = [Field(*field) for field in described[1]] if self.kind == "struct" else []
        self.value_type = Type(described[1]) if self.kind == "list" else None
        self.num_fields = len(self.fields)

    def field(self, i):
        return self.fields[i]

    def __str__(self):
        return self.kind


class PythonFile:
    def __init__(self, f):
        self.f = f


def system_memory_pool():
    return None


def set_memory_pool(pool):
    assert pool is None
