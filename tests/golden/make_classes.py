#!/usr/bin/env python3
"""Every class of transformers that is a model -> tests/golden/classes.txt: "model_type kind Class ...",
the kinds as AutoModel (base), AutoModelForCausalLM (causal), AutoModelForMaskedLM (masked) and
AutoModelForPreTraining (pretraining) of the package know them, all others "other".
    tests/golden/make_classes.py"""
import importlib
import os
import pkgutil
import sys
import warnings

warnings.filterwarnings("ignore")
import transformers
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto

MAPS = {"base": modeling_auto.MODEL_MAPPING_NAMES, "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        "pretraining": modeling_auto.MODEL_FOR_PRETRAINING_MAPPING_NAMES}
rows = {}
skipped = []
for m in pkgutil.iter_modules(transformers.models.__path__):
    where = transformers.models.__path__[0] + "/" + m.name
    for f in sorted(os.listdir(where) if os.path.isdir(where) else []):
        if not f.startswith("modeling_") or not f.endswith(".py"):
            continue
        try:
            module = importlib.import_module("transformers.models.%s.%s" % (m.name, f[:-3]))
        except Exception as e:
            skipped.append("%s: %s" % (f, e))
            continue
        for name, x in vars(module).items():
            if not isinstance(x, type) or not issubclass(x, PreTrainedModel) or x.__module__ != module.__name__:
                continue
            if not getattr(x, "config_class", None) or name.endswith("PreTrainedModel"):
                continue
            kind = x.config_class.model_type
            if not kind:
                continue
            said = [k for k, names in MAPS.items()
                    if name in (names.get(kind) if isinstance(names.get(kind), (tuple, list)) else [names.get(kind)])]
            rows.setdefault((kind, said[0] if said else "other"), set()).add(name)
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "classes.txt")
with open(path, "w") as f:
    f.write("# transformers %s, by make_classes.py\n" % transformers.__version__)
    for (kind, said), names in sorted(rows.items()):
        f.write("%s %s %s\n" % (kind, said, " ".join(sorted(names))))
print("%d classes, skipped: %s" % (sum(map(len, rows.values())), "; ".join(skipped) or "none"), file=sys.stderr)
