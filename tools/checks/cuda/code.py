"""Reads the machine code of CUDA kernels: cubin files, with nvdisasm.

figures_of(cubin) returns a Code per kernel. FIGURES says what each figure is.
"""

import bisect
import dataclasses
import functools
import re
import struct
import subprocess

FIGURES = {
    "stack": "bytes of local memory per thread: spilled registers and arrays in memory",
    "local": "instructions that load or store local memory",
    "registers": "registers per thread",
    "blocks": "blocks that an SM holds at once, by registers, threads and static shared memory",
    "hmma": "tensor-core instructions in the main loop",
    "others": "other instructions per tensor-core instruction in the main loop",
    "burst": "the longest run of accesses of shared memory in the main loop without a tensor-core instruction between them",
    "math": "percent of the instructions of the main loop that multiply and add",
    "conversions": "conversions of integers to floats, and divisions, in loops",
    "wide": "loads of 16 bytes from global memory",
    "flight": "the most bytes that a thread loads from global memory before it uses any of them",
}

TENSOR = re.compile(r"(HMMA|IMMA|HGMMA|IGMMA|QGMMA|QMMA)\b")
# HFMA2 with the constant zero is how the compiler loads a constant.
MATH = re.compile(r"(FFMA2?|HFMA2(?!\.MMA R\d+, -RZ)|IDP|IMAD(?!\.MOV|\.SHL|\.IADD|\.U32|\.WIDE|\.X|\.HI)|DFMA)\b")
# A call of a label leaves a loop; divisions are calls of functions.
CONVERSION = re.compile(r"I2F\w*\b|CALL\S* `\(\$")
SHARED = re.compile(r"(LDSM|LDS|STS|LDGSTS)\b")
WIDE = re.compile(r"LDG\S*\.128")
GLOBAL = re.compile(r"LDG?\.\S* (R\d+)")  # LD: of an address that comes from memory itself
WIDTH = re.compile(r"\.(128|64|[US]16|[US]8)\b")
REGISTER = re.compile(r"\bR(\d+)(\.64)?")
LINE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
LABEL = re.compile(r"(\.L_[\w]+):")
TARGET = re.compile(r"^(?:@!?U?P\w+ )?BRA\b.*`\((\.L_\w+)\)")
PREDICATE = re.compile(r"^@!?U?P\w+ +")
# Accesses to global memory. CCTL is a prefetch or drops cached values.
AFTER_WAIT = re.compile(r"(LDG|STG|LD|ST|ATOM|ATOMG|RED|REDG|LDGSTS|UBLKCP|UTMA\w*|CALL|EXIT|PREEXIT)\b")
ENDS = re.compile(r"(BRA|EXIT|RET|BRX)\b")
TEXT = re.compile(r"\s*\.section\s+\.text\.([^,\"]+),")

# Of one SM, from the CUDA C++ Programming Guide, "Compute Capabilities": threads, bytes of shared
# memory, of which a block reserves 1 KiB from sm_80 on. Each SM has 65,536 registers, which a warp
# takes in steps of 256.
SM = {75: (1024, 64, 0), 80: (2048, 164, 1), 86: (1536, 100, 1), 87: (1536, 164, 1), 89: (1536, 100, 1),
      90: (2048, 228, 1), 100: (2048, 228, 1), 120: (1536, 100, 1)}
REGISTERS = 65536


@dataclasses.dataclass
class Code:
    """The machine code of one kernel."""
    symbol: str
    architecture: int
    registers: int = 0
    stack: int = 0
    threads: int = 0   # of a block; 0: the kernel does not say
    shared: int = 0    # static, in bytes
    instructions: list = dataclasses.field(default_factory=list)  # (address, text)
    labels: dict = dataclasses.field(default_factory=dict)        # label: address

    @functools.cached_property
    def ranges(self):
        """The loops, as pairs of addresses: the target of a backward branch, and the branch."""
        ranges = set()
        for at, text in self.instructions:
            found = TARGET.match(text)
            to = self.labels.get(found[1]) if found else None
            if to is not None and to < at:
                ranges.add((to, at))
        return ranges

    @functools.cached_property
    def loops(self):
        """The innermost loops, each a list of instructions."""
        places = [at for at, _ in self.instructions]
        innermost, last = [], None
        for begin, end in sorted(self.ranges, key=lambda r: (r[1], -r[0])):
            if last is None or last < begin:  # no loop lies between `begin` and `end`
                innermost.append((begin, end))
            last = begin if last is None else max(last, begin)
        return [[PREDICATE.sub("", text) for _, text in
                 self.instructions[bisect.bisect_left(places, begin):bisect.bisect_right(places, end)]]
                for begin, end in innermost]

    def before_wait(self):
        """Returns the instructions that may not be reached before the kernel waits for the launch
        before (device/begin.cuh): accesses to global memory, the end, and the start of the next
        launch.
        """
        places = {at: i for i, (at, _) in enumerate(self.instructions)}
        found, seen, left = [], set(), [0] if self.instructions else []
        while left:
            i = left.pop()
            if i in seen or i >= len(self.instructions):
                continue
            seen.add(i)
            text = self.instructions[i][1]
            operation = PREDICATE.sub("", text)
            if operation.startswith("ACQBULK"):
                continue
            if AFTER_WAIT.match(operation):
                found.append(operation)
            if target := TARGET.match(text):
                left.append(places[self.labels[target[1]]])
            if operation == text and ENDS.match(operation):
                continue
            left.append(i + 1)
        return found

    def main_loop(self):
        """The innermost loop with most tensor-core instructions: the shortest, because others of
        that size treat the edges of a matrix. Else the innermost loop with most multiply-adds,
        times their share: a loop of functions such as tanh has as many, but between others.
        """
        def weight(loop):
            tensor = sum(TENSOR.match(t) is not None for t in loop)
            math = sum(MATH.match(t) is not None for t in loop)
            return tensor, -len(loop) if tensor else math * math / len(loop)
        return max(self.loops, key=weight, default=[])

    def burst(self, loop):
        """The longest run of accesses of shared memory between two tensor-core instructions."""
        first = next(i for i, t in enumerate(loop) if TENSOR.match(t))
        most = run = 0
        for text in loop[first:] + loop[:first]:  # the end of the loop continues with its begin
            run = 0 if TENSOR.match(text) else run + (SHARED.match(text) is not None)
            most = max(most, run)
        return most

    def flight(self):
        """The most bytes of loads from global memory between which no instruction uses a loaded
        register. Reads the code in its order, up to a jump back or an end.
        """
        most = now = 0
        loaded = set()
        for _, text in self.instructions:
            operation = PREDICATE.sub("", text)
            load = GLOBAL.match(operation)
            # The address of a load is used, but not its result.
            used = operation[load.end():] if load else operation
            touched = {int(n) + i for n, pair in REGISTER.findall(used) for i in range(2 if pair else 1)}
            if loaded & touched or ENDS.match(text):
                now, loaded = 0, set()
            if load:
                width = WIDTH.search(operation[:load.start(1)])
                size = int(re.sub(r"\D", "", width[1])) // 8 if width else 4
                first = int(load[1][1:])
                loaded |= set(range(first, first + max(size // 4, 1)))
                now += size
                most = max(most, now)
        return most

    def blocks(self):
        if self.threads == 0:
            return None
        threads, shared, reserved = SM[self.architecture]
        warps = (self.threads + 31) // 32
        per_warp = (self.registers * 32 + 255) // 256 * 256
        return min(threads // (warps * 32), REGISTERS // per_warp // warps,
                   shared * 1024 // max(self.shared + reserved * 1024, 1))

    def figures(self):
        """{figure: number}. A figure that the kernel does not have is left out."""
        main = self.main_loop()
        tensor = sum(TENSOR.match(t) is not None for t in main)
        math = tensor + sum(MATH.match(t) is not None for t in main)
        found = {
            "stack": self.stack,
            "local": sum(re.match(r"(?:@!?U?P\w+ +)?(LDL|STL)\b", t) is not None for _, t in self.instructions),
            "registers": self.registers,
            "blocks": self.blocks(),
            "hmma": tensor,
            "others": round((len(main) - tensor) / tensor, 2) if tensor else None,
            "burst": self.burst(main) if tensor else None,
            "math": round(100 * math / len(main)) if main else None,
            "conversions": sum(CONVERSION.match(PREDICATE.sub("", t)) is not None for at, t in self.instructions
                               if any(begin <= at <= end for begin, end in self.ranges)),
            "wide": sum(WIDE.match(PREDICATE.sub("", t)) is not None for _, t in self.instructions),
            "flight": self.flight(),
        }
        return {name: number for name, number in found.items() if number is not None}


def elf_sections(data):
    """Yields the name, the info word and the bytes of each section of a 64-bit ELF file."""
    at, = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(count)]
    text = data[headers[names][4]:][:headers[names][5]]
    for name, kind, _, _, offset, length, _, _, _, _ in headers:
        content = b"" if kind == 8 else data[offset:offset + length]  # 8: no bytes in the file
        yield text[name:text.index(b"\0", name)].decode(), length, content


def attributes(content):
    """Yields (attribute, words) of a section .nv.info."""
    at = 0
    while at + 4 <= len(content):
        form, attribute, value = struct.unpack_from("<BBH", content, at)
        at += 4
        if form == 4:  # `value` is the size of the words that follow
            yield attribute, struct.unpack_from(f"<{value // 4}I", content, at)
            at += value


def resources_of(data, architecture):
    """{symbol: Code} without instructions, from the sections that the driver reads."""
    sections = [*elf_sections(data)]
    parts = {name: content for name, _, content in sections}
    symbols, texts = parts[".symtab"], parts[".strtab"]

    def symbol(index):
        name, = struct.unpack_from("<I", symbols, 24 * index)
        return texts[name:texts.index(b"\0", name)].decode()

    codes = {}
    for name, content in parts.items():
        if name.startswith(".nv.info."):
            code = codes.setdefault(name[len(".nv.info."):], Code(name[len(".nv.info."):], architecture))
            for attribute, words in attributes(content):
                if attribute == 0x05:  # MAX_THREADS
                    code.threads = words[0] * words[1] * words[2]
    for attribute, words in attributes(parts.get(".nv.info", b"")):
        code = codes.get(symbol(words[0]))
        if code and attribute == 0x2F:  # REGCOUNT
            code.registers = words[1]
        elif code and attribute == 0x11:  # FRAME_SIZE
            code.stack = words[1]
    for name, length, _ in sections:
        code = codes.get(name[len(".nv.shared."):]) if name.startswith(".nv.shared.") else None
        if code:
            code.shared = length
    return codes


def add_instructions(listing, codes):
    code = None
    for line in listing.splitlines():
        if section := TEXT.match(line):
            code, labels, at = codes.get(section[1]), [], 0
        elif code is None:
            continue
        elif label := LABEL.match(line):
            labels.append(label[1])
        elif found := LINE.match(line):
            at = int(found[1], 16)
            code.labels.update((name, at) for name in labels)
            labels = []
            code.instructions.append((at, found[2].strip("{} ")))


def codes_of(cubin, architecture, nvdisasm):
    """Reads a cubin. Returns the Code of each kernel."""
    codes = resources_of(cubin.read_bytes(), architecture)
    listing = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True).stdout
    add_instructions(listing, codes)
    return [*codes.values()]


def short_names(symbols):
    """{symbol: "matmul.product_kernel<128,8,1,true>"}: file, kernel and template arguments."""
    symbols = [*symbols]
    plain = subprocess.run(["c++filt", "-p"], input="\n".join(symbols), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return {symbol: short_name(text) for symbol, text in zip(symbols, plain)}


def short_name(text):
    text = text.replace("(anonymous namespace)::", "").replace("bowline::detail::", "").replace("cuda::", "")
    text = re.sub(r"\((?:unsigned )?\w+\)(?=\d)", "", text).removeprefix("void ").replace(" ", "")
    head, _, arguments = text.partition("<")
    return re.sub(r"^(\w+)_kernels::", r"\1.", head) + (_ + arguments if _ else "")
