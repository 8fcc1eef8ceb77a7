"""The tests of types, of a stand-in for pyarrow."""


def of(*kinds):
    return lambda t: t.kind in kinds


is_string = of("string")
is_large_string = of("large_string")
is_boolean = of("bool")
is_integer = of("int8", "int32", "int64", "uint64")
is_floating = of("float", "double")
is_null = of("null")
is_list = of("list")
is_struct = of("struct")
is_dictionary = is_large_list = is_fixed_size_list = of()
