"""The reader of files, of a stand-in for pyarrow."""
import json

from . import ArrowException, Type


class Schema:
    def __init__(self, columns):
        self.names = [name for name, _ in columns]
        self.all = Type(["struct", columns]).fields

    def field(self, name):
        return next(f for f in self.all if f.name == name)


class Batch:
    def __init__(self, rows):
        self.rows = rows

    def to_pylist(self):
        return self.rows


def whole(described, value):
    """As Parquet has it: every struct has all of its members."""
    if value is None or isinstance(described, str):
        return value
    if described[0] == "list":
        return [whole(described[1], v) for v in value]
    return {name: whole(t, value.get(name)) for name, t in described[1]}


def is_chosen(name, columns):
    return any(name == column or name.startswith(column + ".") for column in columns)


class ParquetFile:
    def __init__(self, source):
        try:
            self.content = json.loads(source.f.read())
        except ValueError:
            raise ArrowException("Parquet magic bytes not found in footer")
        self.schema_arrow = Schema(self.content["columns"])

    def iter_batches(self, batch_size, columns, use_threads):
        assert not use_threads
        # A chosen name takes the columns whose names begin with it and a dot, too, as in pyarrow.
        taken = [c for c in self.content["columns"] if columns is None or is_chosen(c[0], columns)]
        rows = [whole(["struct", taken], row) for row in self.content["rows"]]
        for i in range(0, len(rows), batch_size):
            yield Batch(rows[i : i + batch_size])
