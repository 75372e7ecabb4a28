"""Translates SPIR-V from SPV_NV_cooperative_matrix to SPV_KHR_cooperative_matrix.

The glslang of Debian 12 compiles only the older of the two extensions, and drivers of AMD and Intel
have only the newer one. Three things differ: the numbers of the instructions, the type, which also
names the use of the matrix (A, B or accumulator), and the layout, which is an integer before the
stride instead of a boolean after it. The script finds the use of a type from the multiplications
that take it. So each type must have one use: A is [M, K], B is [K, N], and the accumulator is
[M, N], with three different specialization constants.

Sources: the specifications of both extensions and of SPV_KHR_bfloat16 in the SPIR-V registry.
"""

import struct

CAPABILITY, EXTENSION, TYPE_INT, TYPE_FLOAT, TRUE, FALSE, CONSTANT = 17, 10, 21, 22, 41, 42, 43
FLOAT16 = 9
NV_CAPABILITY, KHR_CAPABILITY = 5357, 6022
NV_TYPE, NV_LOAD, NV_STORE, NV_MULTIPLY = 5358, 5359, 5360, 5361
KHR_TYPE, KHR_LOAD, KHR_STORE, KHR_MULTIPLY = 4456, 4457, 4458, 4459
BFLOAT16, BFLOAT16_MATRIX, BFLOAT16_ENCODING = 5116, 5118, 0


def instructions(words):
    at = 5
    while at < len(words):
        yield words[at] & 0xFFFF, words[at + 1:at + (words[at] >> 16)]
        at += words[at] >> 16


def is_translated(words):
    return (CAPABILITY, [KHR_CAPABILITY]) in instructions(words)


def extension(name):
    text = name.encode() + b"\0"
    text += b"\0" * (-len(text) % 4)
    return (EXTENSION, list(struct.unpack(f"<{len(text) // 4}I", text)))


def uses(words):
    """{id of a matrix type: 0 for A, 1 for B, 2 for an accumulator}."""
    type_of, found = {}, {}
    types = {operands[0] for code, operands in instructions(words) if code == NV_TYPE}
    for code, operands in instructions(words):
        if len(operands) > 1 and operands[0] in types and code != NV_TYPE:
            type_of[operands[1]] = operands[0]
        if code == NV_MULTIPLY:
            for use, matrix in enumerate(operands[2:5]):
                if found.setdefault(type_of[matrix], use) != use:
                    raise ValueError("A type of cooperative matrices has two uses.")
    return found


def translated(words, bfloat16):
    """The words of a module for SPV_KHR_cooperative_matrix. With bfloat16, its floats of 16 bits
    become bfloat16. A module without cooperative matrices stays as it is.
    """
    if (CAPABILITY, [NV_CAPABILITY]) not in instructions(words):
        return words
    use_of = uses(words)
    number = [words[3], words[3] + 1, words[3] + 2]  # new ids: the constants 0, 1 and 2
    rows, columns = number[:2]
    layout, out = {}, [*words[:3], words[3] + len(number), words[4]]
    for code, operands in instructions(words):
        new = [(code, operands)]
        if code == CAPABILITY and operands == [NV_CAPABILITY]:
            new = [(CAPABILITY, [KHR_CAPABILITY])]
            new += [(CAPABILITY, [BFLOAT16]), (CAPABILITY, [BFLOAT16_MATRIX])] if bfloat16 else []
        elif code == CAPABILITY and operands == [FLOAT16] and bfloat16:
            new = []
        elif (code, operands) == extension("SPV_NV_cooperative_matrix"):
            new = [extension("SPV_KHR_cooperative_matrix")]
            new += [extension("SPV_KHR_bfloat16")] if bfloat16 else []
        elif code == TYPE_INT and operands[1:] == [32, 0]:
            new += [(CONSTANT, [operands[0], constant, value]) for value, constant in enumerate(number)]
        elif code == TYPE_FLOAT and operands[1] == 16 and bfloat16:
            new = [(TYPE_FLOAT, [*operands, BFLOAT16_ENCODING])]
        elif code in (TRUE, FALSE):
            layout[operands[1]] = columns if code == TRUE else rows
        elif code == NV_TYPE:
            new = [(KHR_TYPE, [*operands, number[use_of[operands[0]]]])]
        elif code == NV_LOAD:
            new = [(KHR_LOAD, [*operands[:3], layout[operands[4]], operands[3], *operands[5:]])]
        elif code == NV_STORE:
            new = [(KHR_STORE, [*operands[:2], layout[operands[3]], operands[2], *operands[4:]])]
        elif code == NV_MULTIPLY:
            new = [(KHR_MULTIPLY, operands)]
        for new_code, new_operands in new:
            out += [len(new_operands) + 1 << 16 | new_code, *new_operands]
    return out
