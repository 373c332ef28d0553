#!/usr/bin/env python3
"""What the compiler makes of the GPU's kernels: instructions of their inner loops by pipe, registers, shared memory, spills.

    python3 benches/cuda/sass.py [--json] [--loops] [--arch 80 89 90] [MODULE ...]
    python3 benches/cuda/sass.py --cubin FILE [--json]   of kernels for one token that others compiled, by four products of bytes
    python3 benches/cuda/sass.py --check             compares with sass.tsv beside this file
    python3 benches/cuda/sass.py --record            writes it, and diagnostics/src/speed/compiled.tsv

No GPU is needed, but two packages of PyPI, of the versions that the file was recorded with:

    pip install nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-nvdisasm==13.2.86

MODEL_FACTORY_NVRTC and NVDISASM name others. docs/cuda.md says what is counted and what a count cannot tell.
"""

import argparse
import collections
import ctypes
import glob
import heapq
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

VERSION = "13.2.86"
HERE = pathlib.Path(__file__).resolve().parent
CUDA = HERE.parents[1] / "crates" / "cuda" / "src"
RECORD = HERE / "sass.tsv"
# What the diagnosis estimates speeds with: the counts for 8.0.
COMPILED = HERE.parents[1] / "diagnostics" / "src" / "speed" / "compiled.tsv"
# Other releases of ptxas choose other instructions: what a check allows, of the count and at least so many.
TOLERANCE, LEAST = 0.10, 8

# Multiplications and additions of one instruction of a warp, where it is one that the kernel is there for.
FLOAT_WORK = [(r"FFMA\b|FFMA\.", 32), (r"HFMA2\.(?!MMA)|HFMA2$", 64)]
BYTE_WORK = [(r"IDP\.4A", 128)]
TENSOR_WORK = [
    (r"HMMA\.1688", 1024),
    (r"HMMA\.16816", 2048),
    (r"IMMA\.8816", 1024),
    (r"IMMA\.16816", 2048),
    (r"IMMA\.16832", 4096),
    (r"[HI]GMMA\.64x(\d+)x(\d+)", None),
]

# The pipe of an opcode's first word. What issues to several is counted where it is scarcest.
PIPES = {
    "fma": "FFMA FADD FMUL HADD2 HFMA2 HMUL2 IMAD IMUL FSWZADD FFMA2 FADD2 FMUL2",
    "alu": "IADD3 IADD LOP3 SHF LEA ISETP SEL PRMT IMNMX FSETP FMNMX FSEL PLOP3 P2R R2P IABS MOV CS2R VABSDIFF LOP I2FP F2FP"
    " VIADD VIMNMX VIMNMX3 VIADDMNMX IMMNMX BMSK SGXT HSETP2 HMNMX2 F2IP I2IP FCHK VOTE SHL SHR IDP BREV FMNMX3 LEPC",
    "tensor": "HMMA IMMA HGMMA IGMMA DMMA WARPGROUP",
    "lsu": "LDG LD STG ST LDS STS LDSM STSM LDL STL ATOM ATOMS ATOMG RED REDG SHFL LDGSTS LDGDEPBAR CCTL MEMBAR UTMALDG MATCH",
    "xu": "MUFU I2F F2I F2F I2I FRND POPC FLO S2R",
    "double": "DADD DMUL DFMA DSETP",
    "uniform": "UIADD3 UISETP ULDC USHF UIMAD ULEA UMOV USEL ULOP3 UPLOP3 UP2UR R2UR S2UR VOTEU REDUX UFLO UBMSK UPRMT UPOPC"
    " USGXT UCLEA",
    "constant": "LDC",
    "control": "BRA BSSY BSYNC EXIT CALL RET NOP BAR WARPSYNC DEPBAR BREAK YIELD BRX JMP ENDCOLLECTIVE BMOV ERRBAR SYNCS"
    " NANOSLEEP ACQBULK ELECT BPT PREEXIT R2B B2R",
}
PIPE_OF = {opcode: pipe for pipe, opcodes in PIPES.items() for opcode in opcodes.split()}

SPACES = {"global": ["LDG", "LDGSTS"], "generic": ["LD", "ST"], "shared": ["LDS", "STS", "LDSM"]}

Instruction = collections.namedtuple("Instruction", "guard opcode operands target")
Kernel = collections.namedtuple("Kernel", "registers shared code")


def modules():
    """Name -> (kind, source), as `modules.rs` puts the text of a module together; attention for heads of 128 and a cache in F16, or F32."""
    text = (CUDA / "modules.rs").read_text()

    def found(pattern):
        return re.findall(pattern, text) or sys.exit(f"modules.rs: expected /{pattern}/: from there sass.py has a module's parts")

    paths = dict(found(r'const (\w+): &str =\s*include_str!\("([^"]+)"\)'))
    parts = {name: (CUDA / path).read_text() for name, path in paths.items()}
    always = found(r"\[([^\]]+)\]\s*\.into_iter\(\)\s*\.chain\(parts\)")[0]

    def source(own, names, sizes=""):
        named = parts | {"own": own, "&sizes": sizes}
        return "\n".join(named[name.strip()] for name in f"{always}, {names}".split(","))

    sources = {"steps": ("Steps", source("", found(r"Module::Steps => vec!\[([^\]]+)\]")[0]))}
    for name, sizes, names in re.findall(r'Module::(\w+) \{[^}]+\} => \{\s*sizes = format!\("([^"]+)".*\);\s*vec!\[([^\]]+)\]', text):
        sizes = sizes.replace("\\n", "\n").replace("{dim}", "128")
        sources[name.lower()] = ("Steps", source("", names, sizes.replace("{}", "1")))
        sources[f"{name.lower()}_f32"] = ("Steps", source("", names, sizes.replace("{}", "0")))
    arms = found(r"Some\(\(([^,]+), ([^,]+), own\)\) => vec!\[([^\]]+)\]")
    for dtype, kind, path in found(r'\(DType::(\w+), Kind::(\w+), include_str!\("([^"]+)"\)\)'):
        fits = lambda pattern, value: pattern == "_" or value in pattern.replace("|", " ").split()
        names = next(names for a, b, names in arms if fits(a, f"DType::{dtype}") and fits(b, f"Kind::{kind}"))
        sources[dtype.lower()] = (kind, source((CUDA / path).read_text(), names))
    return sources


def options(architecture):
    text = (CUDA / "nvrtc.rs").read_text()
    found = re.search(r"let options = \[([^\]]+)\]", text) or sys.exit(f"{CUDA / 'nvrtc.rs'}: expected `let options = [`")
    return [option.replace("{architecture}", architecture) for option in re.findall(r'"([^"]+)"', found.group(1))]


def beside(pattern):
    """A file of the packages, in this Python's environment."""
    places = [os.path.join(place, "nvidia", "*", pattern) for place in sys.path if place.endswith("-packages")]
    return next((path for place in places for path in sorted(glob.glob(place))), None)


class Compiler:
    """NVRTC and nvdisasm."""

    def __init__(self):
        nvrtc = os.environ.get("MODEL_FACTORY_NVRTC") or beside("lib/libnvrtc.so.*") or "libnvrtc.so.13"
        self.nvdisasm = os.environ.get("NVDISASM") or beside("bin/nvdisasm") or shutil.which("nvdisasm")
        try:
            self.nvrtc = ctypes.CDLL(nvrtc)
        except OSError as error:
            sys.exit(f"no NVRTC: {error}: install nvidia-cuda-nvrtc=={VERSION}")
        if not self.nvdisasm:
            sys.exit(f"no nvdisasm: install nvidia-cuda-nvdisasm=={VERSION}")

    def cubin(self, name, source, given):
        def call(function, *of):
            # Not `sys.exit`, for which a pool of processes would wait for ever.
            if getattr(self.nvrtc, function)(*of) != 0:
                raise RuntimeError(f"{function} of {name}: {self.log()}")

        self.program = ctypes.c_void_p()
        call("nvrtcCreateProgram", ctypes.byref(self.program), source.encode(), name.encode(), 0, None, None)
        call("nvrtcCompileProgram", self.program, len(given), (ctypes.c_char_p * len(given))(*[o.encode() for o in given]))
        size = ctypes.c_size_t()
        call("nvrtcGetCUBINSize", self.program, ctypes.byref(size))
        image = ctypes.create_string_buffer(size.value)
        call("nvrtcGetCUBIN", self.program, image)
        call("nvrtcDestroyProgram", ctypes.byref(self.program))
        return image.raw

    def log(self):
        size = ctypes.c_size_t()
        self.nvrtc.nvrtcGetProgramLogSize(self.program, ctypes.byref(size))
        log = ctypes.create_string_buffer(max(size.value, 1))
        self.nvrtc.nvrtcGetProgramLog(self.program, log)
        return log.value.decode(errors="replace")

    def kernels(self, name, source, given):
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(self.cubin(name, source, given))
            file.flush()
            return self.disassembled(file.name)

    def disassembled(self, path):
        done = subprocess.run([self.nvdisasm, path], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{self.nvdisasm}: {done.stderr}")
        return parse(done.stdout)


def parse(text):
    """nvdisasm's text -> name -> Kernel, with branches to indices of instructions."""
    kernels = {}
    for section in text.split("//--------------------- .")[1:]:
        if section.startswith("text."):
            name = section[5:].split(" ", 1)[0]
            registers = r"EIATTR_REGCOUNT\n(?:(?!EIATTR).*\n)*?.*index@\(%s\)\n.*\.word\s+(0x[0-9a-f]+)" % name
            registers = int(re.search(registers, text).group(1), 16)
            code, labels = [], {}
            for line in section.splitlines():
                if label := re.match(r"(\.L_x_\d+):", line):
                    labels[label.group(1)] = len(code)
                elif found := re.match(r"\s+/\*[0-9a-f]+\*/\s+\{?\s*(@!?U?P\w+)?\s*([A-Z]\S*)\s*([^;]*);", line):
                    target = re.search(r"`\((\.L_x_\d+)\)", found.group(3))
                    code.append(Instruction(found.group(1), found.group(2), found.group(3), target and target.group(1)))
            code = [one._replace(target=labels.get(one.target)) for one in code]
            size = re.search(rf"^\.nv\.shared\.{name}:\s+\.zero\s+(\d+)", text, re.MULTILINE)
            kernels[name] = Kernel(registers, int(size.group(1)) if size else 0, code)
    return kernels


def is_branch(one):
    return one.target is not None and one.opcode.split(".")[0] in ("BRA", "CALL")


def reaches(code, goal, without):
    """Whether `goal` is reached from the first instruction without passing `without`."""
    todo, seen = [0], {without}
    while todo:
        at = todo.pop()
        while at < len(code) and at not in seen:
            if at == goal:
                return True
            seen.add(at)
            one = code[at]
            if one.target is not None and one.opcode[:3] != "BSS":
                todo.append(one.target)
            if ends(one):
                break
            at += 1
    return False


def ends(one):
    """Whether the next instruction is not run after this one."""
    return one.guard is None and (one.opcode.split(".")[0] in ("EXIT", "RET", "BRX", "JMP") or one.opcode == "BRA")


def is_branch(one):
    return one.target is not None and one.opcode.split(".")[0] in ("BRA", "CALL")


def loops(code):
    """(first, last) of every loop: a branch back to what is passed on every way to it."""
    heads = {}
    for at, one in enumerate(code):
        if is_branch(one) and one.target < at and one.target > 0 and not reaches(code, at, one.target):
            heads[one.target] = max(at, heads.get(one.target, 0))
    return sorted(heads.items())


def dropped(code, cold, leftovers):
    """Instructions that a branch skips and that the usual case does not run: `cold` tells by the opcodes between. What leads up
    to an unrolled loop, for what unrolling leaves over, is skipped too: three tests that leave for the same place."""
    out = set()
    for at, one in enumerate(code):
        if is_branch(one) and one.guard and one.target > at:
            region = range(at + 1, one.target)
            leaves = sum(is_branch(code[i]) and bool(code[i].guard) and code[i].target == one.target for i in region)
            loop = any(is_branch(code[i]) and code[i].target <= i for i in region)
            if (leftovers and leaves >= 2 and not loop) or (cold and cold([code[i].opcode for i in region])):
                out.update(region)
    return out


def trips(code, first, last):
    """How often a loop runs that counts from 0 up to a number in steps of another; None where the code does not tell."""
    guards = [one.guard for one in code[first : last + 1] if is_branch(one) and one.guard and not first < one.target <= last]
    if not guards:
        return None
    predicate = guards[-1].strip("@!")
    for at in range(last, first - 1, -1):
        one = code[at]
        # A predicate of the whole warp is copied to one of the lanes.
        if one.opcode == "PLOP3.LUT" and (copied := re.match(rf"{predicate}, PT, PT, PT, (UP\d)", one.operands)):
            predicate = copied.group(1)
        compared = "ISETP" in one.opcode and re.match(rf"{predicate}, U?PT, (U?R\d+)(?:\.reuse)?, (0x[0-9a-f]+), ", one.operands)
        if not compared and "SETP" in one.opcode and one.operands.startswith(predicate + ","):
            return None
        for by in range(first, last + 1) if compared else []:
            plus = re.match(r"(U?R\d+), (U?R\d+)(?:\.reuse)?, (0x[0-9a-f]+)", code[by].operands)
            if plus and code[by].opcode in ("IADD3", "UIADD3", "VIADD") and compared.group(1) in plus.group(1, 2):
                counted = by < at and compared.group(1) == plus.group(1)
                return -(-int(compared.group(2), 16) // int(plus.group(3), 16)) + (not counted)
    return None


def work_of(one, table):
    for pattern, macs in table:
        if found := re.match(pattern, one.opcode):
            return macs or 64 * int(found.group(1)) * int(found.group(2))
    return 0


def width(opcode):
    found = re.search(r"\.(U?8|S8|U?16|S16|64|128)\b", opcode)
    return int(found.group(1).strip("US")) // 8 if found else 4


def shortest(code, start, goals, avoid):
    """The fewest instructions from `start` to one of `goals`, indices or "exit", through none of `avoid`."""
    queue, seen = [(0, start)], set()
    while queue:
        issued, at = heapq.heappop(queue)
        if at in goals:
            return issued
        if at in seen or at >= len(code) or at in avoid:
            continue
        seen.add(at)
        one = code[at]
        if one.opcode == "EXIT" and not one.guard and "exit" in goals:
            return issued + 1
        if is_branch(one):
            heapq.heappush(queue, (issued + 1, one.target))
        if not ends(one):
            heapq.heappush(queue, (issued + 1, at + 1))
    return None


def times(code, all_loops, first, last, gone):
    """How often each instruction runs in one turn of a loop."""
    found = {at: 1 for at in range(first, last + 1) if at not in gone}
    for f, l in all_loops:
        if first <= f and l <= last and (f, l) != (first, last):
            factor = trips(code, f, l) or 1
            found.update({at: found[at] * factor for at in range(f, l + 1) if at in found})
    return found


def around(code, all_loops, first, last):
    """The fewest instructions before and after a loop."""
    others = {l for f, l in all_loops if not (f <= first and last <= l)}
    before = shortest(code, 0, {first}, others) or 0
    leave = {one.target for one in code[first : last + 1] if is_branch(one) and one.target > last} | {last + 1}
    after = [shortest(code, at, {"exit"}, {last}) for at in leave]
    return before + min([n for n in after if n is not None], default=0)


def count(kernel, table, cold):
    """The row of a kernel: of one turn of its busiest loop, with the loops in it as often as they run; without a `table` of
    what it is there for, of its whole text."""
    code, all_loops = kernel.code, loops(kernel.code)
    row = {"registers": kernel.registers, "static_shared": kernel.shared}
    row["spills"] = sum(one.opcode.split(".")[0] in ("LDL", "STL") for one in code)
    best = (0, {at: 1 for at in range(len(code))}, 0)
    if table:
        # Of the products for many tokens a turn of the loop may end between its stages; nothing is left over.
        gone = dropped(code, cold, table is not TENSOR_WORK)
        for first, last in all_loops:
            turns = times(code, all_loops, first, last, gone)
            work = sum(n * work_of(code[at], table) for at, n in turns.items())
            # Of a loop and the one around it, the latter.
            if work > best[0]:
                best = (work, turns, around(code, all_loops, first, last))
    row["macs"], turns, row["around"] = best
    return row | tally(code, turns)


def tally(code, turns):
    pipes, loads = collections.Counter(issued=sum(turns.values())), collections.Counter()
    for at, n in turns.items():
        opcode = code[at].opcode
        short = opcode.split(".")[0]
        pipe = PIPE_OF.get(short)
        if pipe is None:
            print(f"unknown opcode {opcode}", file=sys.stderr)
        pipes[pipe] += n
        for space, names in SPACES.items():
            if short in names:
                pipes[space] += n
                loads[space] += n * width(opcode)
    row = {pipe: pipes[pipe] for pipe in ["issued", *PIPES, *SPACES]}
    # Bytes a lane asks for: of global memory by name, and by addresses that may be anywhere.
    return row | {"global_bytes": loads["global"], "generic_bytes": loads["generic"]}


def compiled(job):
    """The kernels of a module for a GPU, and their rows."""
    name, kind, source, sm = job
    kernels = sorted(Compiler().kernels(f"{name}.cu", source, options(f"sm_{sm}")).items())
    rows = [{"module": name, "sm": sm, "kernel": kernel, **count(found, *work_for(kind, kernel))} for kernel, found in kernels]
    return rows, kernels


def work_for(kind, kernel):
    """The instructions that a kernel is there for, and what its loop does not run of what it holds."""
    if kernel not in ("many_64", "many_128", "few_1", "few_2", "few_4", "few_8"):
        return None, None
    # One scale a row and no zero point, as w8a8 has it.
    if kernel.startswith("many"):
        return TENSOR_WORK, (lambda opcodes: "IDP" in (pipes := {opcode.split(".")[0] for opcode in opcodes}) and "IMMA" not in pipes) if kind == "Int8" else None
    if kind == "Int8":
        return BYTE_WORK, lambda opcodes: not any(re.match(r"LDG\S*\.128", opcode) for opcode in opcodes)
    return (BYTE_WORK if kind == "Blocks" else FLOAT_WORK), None


def show(found):
    print(f"{'module':6} sm {'kernel':8} regs shared spills loop around  /mac  by pipe and space, bytes")
    for row in found:
        each = f"{32 * row['issued'] / row['macs']:6.3f}" if row["macs"] else "     -"
        rest = " ".join(f"{key} {row[key]}" for key in [*PIPES, *SPACES, "global_bytes", "generic_bytes"] if row[key])
        print(
            f"{row['module']:6} {row['sm']:2} {row['kernel']:8} {row['registers']:4} {row['static_shared']:6} {row['spills']:6} "
            f"{row['issued']:4} {row['around']:6} {each}  {rest}"
        )


def show_loops(name, architecture, kernel, code):
    """The innermost loops."""
    all_loops = loops(code)
    for first, last in all_loops:
        if not any(first <= f and l <= last and (f, l) != (first, last) for f, l in all_loops):
            rest = tally(code, {at: 1 for at in range(first, last + 1)})
            rest = " ".join(f"{key} {n}" for key, n in rest.items() if n)
            print(f"{name:6} {architecture} {kernel:8} {first}..{last} turns {trips(code, first, last) or '?'}: {rest}")


# What is recorded of a row: the rest tells where a difference comes from.
COLUMNS = ["module", "sm", "kernel", "registers", "static_shared", "spills", "macs", "issued", "around"]


def read_record():
    lines = [line.split("\t") for line in RECORD.read_text().splitlines() if not line.startswith("#")]
    return [dict(zip(lines[0], [int(word) if word.isdigit() else word for word in line])) for line in lines[1:]]


def write_record(found):
    lines = [f"# By sass.py --record with nvrtc and nvdisasm {VERSION}.", "\t".join(COLUMNS)]
    lines += ["\t".join(str(row[column]) for column in COLUMNS) for row in found]
    RECORD.write_text("\n".join(lines) + "\n")
    write_compiled({(row["module"], row["kernel"]): row for row in found if row["sm"] == "80"})


def show_table(found):
    """A summary: instructions of a lane for a weight and a token, with rows of 4096 inputs."""
    row_of = {(row["module"], row["sm"], row["kernel"]): row for row in found}
    for module, (kind, source) in modules().items():
        few, many = row_of.get((module, "80", "few_1")), row_of.get((module, "80", "many_128"))
        if few:
            block = re.search(r"BYTES = (\d+), BLOCKS = (\d+)", source)
            size = re.search(r"SIZE = (\d+)", source)
            bytes = int(block[1]) / int(block[2]) / 32 if block else int(size[1]) if size else 1
            turns = -(-2 * 4096 // few["macs"])
            each = 32 * (turns * few["issued"] + few["around"]) / (2 * 4096)
            cells = [f"{bytes:.3g}", f"{32 * few['issued'] / few['macs']:.2f}", f"{each:.2f}", f"{each / bytes:.1f}"]
            cells += [f"{128 * bytes / each:.0f}", few["registers"]]
            cells += [f"{32 * many['issued'] / many['macs']:.2f}", many["registers"]] if many else ["–", "–"]
            print(f"| {module.upper()} | " + " | ".join(map(str, cells)) + " |")


def write_compiled(found):
    """Instructions that a warp issues in a turn of the inner loop, and its multiplications: of the kernel for one token, with the
    instructions before and after the loop, and of the kernel for many."""
    numbers = lambda row, *columns: [str(row[column]) for column in columns] if row else ["-"] * len(columns)
    lines = [["dtype", "few_issued", "few_macs", "few_around", "many_issued", "many_macs"]]
    for dtype in re.findall(r"\(DType::(\w+), Kind::", (CUDA / "modules.rs").read_text()):
        few, many = found[dtype.lower(), "few_1"], found.get((dtype.lower(), "many_128"))
        lines.append([dtype, *numbers(few, "issued", "macs", "around"), *numbers(many, "issued", "macs")])
    text = "".join("\t".join(line) + "\n" for line in lines)
    COMPILED.write_text("# By benches/cuda/sass.py --record: what the compiler makes of the GPU's products.\n" + text)


def check(found):
    key = lambda row: (row["module"], int(row["sm"]), row["kernel"])
    new = {key(row): row for row in found}
    chosen = {name[:2] for name in new}
    known = {key(row): row for row in read_record() if key(row)[:2] in chosen}
    wrong = [f"{missing}: {'not compiled' if missing in known else 'not recorded'}" for missing in known.keys() ^ new.keys()]
    for name in known.keys() & new.keys():
        for column in COLUMNS[3:]:
            was, now = known[name][column], new[name][column]
            if abs(now - was) > (0 if column in ("spills", "macs") else max(LEAST, TOLERANCE * was)):
                wrong.append(f"{name}: {column} {now}, recorded {was}")
    for line in sorted(wrong):
        print(line)
    print(f"{len(new)} kernels compared with {RECORD.name}, {len(wrong)} differences")
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--arch", nargs="+", default=["80", "89", "90"])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--loops", action="store_true", help="the innermost loops of every kernel")
    parser.add_argument("--cubin")
    parser.add_argument("--table", action="store_true", help="a summary of the products in Markdown")
    given = parser.parse_args()
    if given.cubin:
        kernels = Compiler().disassembled(given.cubin)
        found = [{"module": "", "sm": "", "kernel": name, **count(of, BYTE_WORK, None)} for name, of in kernels.items()]
        return print(json.dumps(found)) if given.json else show(found)
    all_modules = modules()
    if unknown := [name for name in given.modules if name not in all_modules]:
        parser.error(f"no module {unknown[0]}: there are {', '.join(all_modules)}")
    chosen = [(name, *of, sm) for name, of in all_modules.items() for sm in given.arch if name in (given.modules or all_modules)]
    with multiprocessing.Pool(min(len(chosen), os.cpu_count() or 1)) as pool:
        done = pool.map(compiled, chosen, chunksize=1)
    found = [row for rows, _ in done for row in rows]
    if given.loops:
        for (name, _, _, sm), (_, kernels) in zip(chosen, done):
            for kernel, of in kernels:
                show_loops(name, sm, kernel, of.code)
    if given.json:
        print(json.dumps(found))
    elif given.record:
        write_record(found)
    elif given.table:
        show_table(found)
    elif given.check:
        sys.exit(not check(found))
    elif not given.loops:
        show(found)


if __name__ == "__main__":
    main()
