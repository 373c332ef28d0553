#!/usr/bin/env python3
"""rustdoc's JSON of a crate -> its public items, a line each, sorted: api.py FOLDER CRATE.

An item is listed by the path at which a program names it. What the crate re-exports of other crates of the workspace, item by
item, is listed as its own; a crate or module that is re-exported whole is one line.
"""

import json
import sys
from pathlib import Path

FORMAT = 57  # of Rust 1.95
AUTO = {"Send", "Sync", "Unpin"}


class Crate:
    def __init__(self, folder, name):
        with open(folder / f"{name}.json") as file:
            self.json = json.load(file)
        self.index, self.paths = self.json["index"], self.json["paths"]
        self.by_path = {"::".join(p["path"]): i for i, p in self.paths.items() if p["crate_id"] == 0}

    def item(self, id):
        return self.index.get(str(id))


class Api:
    def __init__(self, folder):
        self.folder, self.crates, self.lines = folder, {}, set()
        self.first = {}  # where each type and trait is listed with what it has

    def crate(self, name):
        if name not in self.crates:
            there = (self.folder / f"{name}.json").exists()
            self.crates[name] = Crate(self.folder, name) if there else None
        return self.crates[name]

    def find(self, crate, id):
        """The crate and the item of an id, which may be of another crate of the workspace."""
        if item := crate.item(id):
            return crate, item
        path = crate.paths[str(id)]["path"] if str(id) in crate.paths else [""]
        other = self.crate(path[0])
        if other and (found := other.by_path.get("::".join(path))):
            return other, other.item(found)
        return crate, None

    def add(self, path, text):
        self.lines.add(f"{path}  {text}" if text else path)

    def module(self, crate, item, path):
        children = [child for child in map(crate.item, item["inner"]["module"]["items"]) if child and not hidden(child)]
        for child in sorted(children, key=lambda child: "module" in child["inner"]):  # the shortest path comes first
            self.place(crate, child, path)

    def place(self, crate, item, path):
        kind, inner = next(iter(item["inner"].items()))
        if kind == "use":
            owner, target = self.find(crate, inner["id"])
            name = f"{path}::{inner['name']}"
            if target is None or hidden(target):
                if target is None:
                    self.add(name, f"use {inner['source']}")
            elif "module" in target["inner"] and owner is not crate:
                self.add(name, f"use {inner['source']}")
            elif inner["is_glob"]:
                self.module(owner, target, path)
            else:
                self.item(owner, target, name)
        elif item["visibility"] == "public":
            self.item(crate, item, f"{path}::{item['name']}")

    def item(self, crate, item, path):
        kind, inner = next(iter(item["inner"].items()))
        if kind in ("struct", "enum", "union", "trait"):
            first = self.first.setdefault((id(crate), item["id"]), path)
            if first != path:
                self.add(path, f"use {first}")
                return
        mark = "".join(f"#[{attr}] " for attr in ("non_exhaustive", "must_use") if has(item, attr))
        if kind == "use":
            self.place(crate, item, path.rsplit("::", 1)[0])
        elif kind == "module":
            self.add(path, "mod")
            self.module(crate, item, path)
        elif kind in ("struct", "enum", "union"):
            self.add(path, f"{mark}{kind}{generics(inner['generics'])}{self.traits(crate, item, inner, path)}")
            self.fields(crate, inner, path)
            self.methods(crate, inner, path)
        elif kind == "trait":
            self.add(path, f"trait{generics(inner['generics'])}{bounds(': ', inner['bounds'])}")
            for member in map(crate.item, inner["items"]):
                self.item(crate, member, f"{path}::{member['name']}")
        elif kind == "function":
            provided = " { .. }" if item["visibility"] == "default" and inner["has_body"] else ""
            self.add(path, f"{mark}{function(inner)}{provided}")
        elif kind in ("constant", "static"):
            self.add(path, f"const: {type_of(inner['type'])}")
        elif kind == "assoc_const":
            self.add(path, f"const: {type_of(inner['type'])}")
        elif kind == "assoc_type":
            self.add(path, f"type{bounds(': ', inner['bounds'])}" + (f" = {type_of(inner['type'])}" if inner["type"] else ""))
        elif kind == "type_alias":
            self.add(path, f"type{generics(inner['generics'])} = {type_of(inner['type'])}")
        else:
            self.add(path, kind)

    def fields(self, crate, inner, path):
        if "variants" in inner:
            for variant in map(crate.item, inner["variants"]):
                shape = variant["inner"]["variant"]["kind"]
                mark = "#[non_exhaustive] " if has(variant, "non_exhaustive") else ""
                name = f"{path}::{variant['name']}"
                if isinstance(shape, dict) and "tuple" in shape:
                    types = [type_of(crate.item(id)["inner"]["struct_field"]) if id is not None else "_" for id in shape["tuple"]]
                    self.add(name, f"{mark}({', '.join(types)})")
                elif isinstance(shape, dict):
                    fields = [crate.item(id) for id in shape["struct"]["fields"]]
                    text = ", ".join(f"{f['name']}: {type_of(f['inner']['struct_field'])}" for f in fields)
                    self.add(name, f"{mark}{{ {text} }}")
                else:
                    self.add(name, mark.strip())
            return
        kind = inner.get("kind")
        ids = kind.get("plain", {}).get("fields", kind.get("tuple", [])) if isinstance(kind, dict) else inner.get("fields", [])
        for field in filter(None, (crate.item(id) for id in ids if id is not None)):
            if field["visibility"] == "public" and not hidden(field):
                self.add(f"{path}.{field['name']}", type_of(field["inner"]["struct_field"]))

    def traits(self, crate, item, inner, path):
        found = []
        for one in (crate.item(id)["inner"]["impl"] for id in inner["impls"] if crate.item(id)):
            trait = one["trait"]
            if trait is None or one["blanket_impl"] or one["is_negative"] or trait["path"].endswith("StructuralPartialEq"):
                continue
            name = trait["path"].rsplit("::", 1)[-1]
            if one["for"].get("resolved_path", {}).get("id") != item["id"]:
                self.add(path, f"impl {name}{arguments(trait['args'])} for {type_of(one['for'])}")
            elif not one["is_synthetic"] or name in AUTO:
                found.append(name + arguments(trait["args"]))
        return f": {' + '.join(sorted(set(found)))}" if found else ""

    def methods(self, crate, inner, path):
        for one in (crate.item(id)["inner"]["impl"] for id in inner["impls"] if crate.item(id)):
            if one["trait"] is not None:
                continue
            for member in filter(None, map(crate.item, one["items"])):
                if member["visibility"] == "public" and not hidden(member):
                    self.item(crate, member, f"{path}::{member['name']}")


def has(item, attr):
    return any(a == attr or (isinstance(a, dict) and attr in a) for a in item["attrs"])


def hidden(item):
    return any(isinstance(a, dict) and "doc(hidden)" in a.get("other", "").replace(" ", "") for a in item["attrs"])


def named(path):
    """The name of a type; whose error it is, too."""
    name = path.rsplit("::", 1)[-1]
    return path if name in ("Error", "Result") and not path.startswith(("crate", "$crate", "self", "super")) else name


def type_of(t):
    if t is None:
        return "()"
    if isinstance(t, str):
        return "_"
    kind, inner = next(iter(t.items()))
    if kind == "resolved_path":
        return named(inner["path"]) + arguments(inner["args"])
    if kind in ("generic", "primitive"):
        return "!" if inner == "never" else inner
    if kind == "tuple":
        return f"({', '.join(map(type_of, inner))})"
    if kind == "slice":
        return f"[{type_of(inner)}]"
    if kind == "array":
        return f"[{type_of(inner['type'])}; {inner['len']}]"
    if kind == "borrowed_ref":
        lifetime = f"{inner['lifetime']} " if inner["lifetime"] else ""
        return f"&{lifetime}{'mut ' if inner['is_mutable'] else ''}{type_of(inner['type'])}"
    if kind == "raw_pointer":
        return f"*{'mut' if inner['is_mutable'] else 'const'} {type_of(inner['type'])}"
    if kind == "impl_trait":
        return bounds("impl ", inner)
    if kind == "dyn_trait":
        traits = [poly(one) for one in inner["traits"]] + ([inner["lifetime"]] if inner["lifetime"] else [])
        return f"dyn {' + '.join(traits)}"
    if kind == "qualified_path":
        trait = inner["trait"] and inner["trait"]["path"].rsplit("::", 1)[-1]
        trait = f" as {trait}" if trait else ""
        owner = type_of(inner["self_type"])
        return f"<{owner}{trait}>::{inner['name']}" if trait else f"{owner}::{inner['name']}"
    if kind == "function_pointer":
        return signature("fn", inner["sig"])
    return kind


def poly(one):
    forall = ", ".join(param["name"] for param in one["generic_params"])
    return (f"for<{forall}> " if forall else "") + one["trait"]["path"].rsplit("::", 1)[-1] + arguments(one["trait"]["args"])


def bounds(before, all):
    texts = []
    for one in all:
        if "trait_bound" in one:
            texts.append(("?" if one["trait_bound"]["modifier"] == "maybe" else "") + poly(one["trait_bound"]))
        else:
            texts.append(str(one.get("outlives", next(iter(one)))))
    return before + " + ".join(texts) if texts else ""


def arguments(args):
    if not args:
        return ""
    if "parenthesized" in args:
        inner = args["parenthesized"]
        output = f" -> {type_of(inner['output'])}" if inner["output"] else ""
        return f"({', '.join(map(type_of, inner['inputs']))}){output}"
    inner = args.get("angle_bracketed", {"args": [], "constraints": []})
    texts = []
    for one in inner["args"]:
        kind, value = next(iter(one.items())) if isinstance(one, dict) else ("infer", "_")
        texts.append(type_of(value) if kind == "type" else value["expr"] if kind == "const" else value)
    for one in inner["constraints"]:
        binding, value = next(iter(one["binding"].items()))
        text = type_of(value["type"]) if binding == "equality" and "type" in value else "_"
        texts.append(f"{one['name']} = {text}" if binding == "equality" else one["name"] + bounds(": ", value))
    return f"<{', '.join(texts)}>" if texts else ""


def generics(inner):
    texts = []
    for param in inner["params"]:
        kind, value = next(iter(param["kind"].items()))
        if kind == "lifetime":
            texts.append(param["name"])
        elif kind == "const":
            texts.append(f"const {param['name']}: {type_of(value['type'])}")
        elif not value["is_synthetic"]:
            default = f" = {type_of(value['default'])}" if value["default"] else ""
            texts.append(param["name"] + bounds(": ", value["bounds"]) + default)
    where = []
    for one in inner["where_predicates"]:
        if "bound_predicate" in one:
            where.append(type_of(one["bound_predicate"]["type"]) + bounds(": ", one["bound_predicate"]["bounds"]))
    return (f"<{', '.join(texts)}>" if texts else "") + (f" where {', '.join(where)}" if where else "")


def signature(before, sig):
    inputs = []
    for name, kind in sig["inputs"]:
        text = type_of(kind)
        if name == "self":
            inputs.append({"Self": "self", "&Self": "&self", "&mut Self": "&mut self"}.get(text, f"self: {text}"))
        else:
            inputs.append(f"{name}: {text}" if name not in ("", "_") else text)
    output = f" -> {type_of(sig['output'])}" if sig["output"] else ""
    return f"{before}({', '.join(inputs)}){output}"


def function(inner):
    header = inner["header"]
    words = [word for word in ("const", "async", "unsafe") if header[f"is_{word}"]]
    return signature(" ".join([*words, "fn"]) + generics(inner["generics"]), inner["sig"])


def main():
    folder, name = Path(sys.argv[1]), sys.argv[2]
    api = Api(folder)
    crate = api.crate(name)
    if crate is None or crate.json["format_version"] != FORMAT:
        found = crate and crate.json["format_version"]
        print(f"skipped: rustdoc wrote JSON of format {found}, expected {FORMAT}, that of Rust 1.95", file=sys.stderr)
        sys.exit(3)
    api.module(crate, crate.item(crate.json["root"]), name)
    print("\n".join(sorted(api.lines)))


main()
