"""Spark's state files, written by nothing that the reader uses; and damage to them."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
import zlib
from base64 import b85decode
from collections.abc import Iterable, Sequence

from sluicegate.checkpoint.format.state_data import StateKind

Record = tuple[int, bytes, bytes | None]
"""Type byte, key, and value (None if deleted); plain records have only puts and deletes."""
PUT, DELETE, MERGE, DELETE_RANGE = 0x01, 0x10, 0x11, 0x20
UID = "62df9533-dcc4-427c-a928-2d880d4558ff"

# Files that Spark 3.5.9 and 4.3.0 wrote, by kind and version of the format, in base 85.
REAL = {
    (StateKind.CHANGELOG, 1): b85decode(
        "Oj<NTY;R+0B~$<a0G9v&06a0@4paaD0672w023Gl08{}0001x*00062upty4Bnk!q08T|82mlZ?6aWGO01^=g00T"
        "7u0|EdKQUDMz$FUnq06+lr;v5J76EivhfdBvh|NsC0|4dpmLTqniYZU+h0000000000000"
    ),
    (StateKind.CHANGELOG, 2): b85decode(
        "Oj<NTY;R+0B@_Vw0KozP0E{0M2(<tLb}|qE000{U0096MBnkim0suh&|Ns9a03s6t5C8xI00ble1RMYeKmZUWApi"
        "#g00ble2tWV?Bme{)00=+;7biRb00IC6Bmf9N00ble02}}t0l)wdC^Y~I0ss{$4*&!m00amCfB^L393%<`07U=*0"
        "ssK%00@l$1SkLmAOHk$00@l$1S9}K0000H1^@s800c1r0Z{-D1rh)P0ssU$0R#d708sz{Bmg861QGxSBme{)00=+"
        ";1Udl(0ssUg00=+;1S9|i8~_MF00cS#1OfmABmf9N00ble02}}S$N&gH00->=1OfmLUI82j%>V>V003nG00IC6aR"
        "3O700ble4PF6I0000008CmmLTqniYZU+h0000000000000"
    ),
    (StateKind.CHANGELOG, 3): b85decode(
        "Oj<NTY;R+0C4~S00LuUX09iST1@lP&0(LV1Oj~;*c4cyNX>V>KIx#XVB4cP}V{344X>N2?ZfS9KWl3ZrIwE8;HDo"
        "m~FflD-VrDQcG-hUFEjVI1V=XW@G&Ey1GdVLeH8moAT>t<85dZ)J023q#07?J<|Nj{PA0-(81s^9F00k2$82|}K0"
        "KfqN0000000960|Nl%{G(v1|V`~)v00000000000000"
    ),
    (StateKind.CHANGELOG, 4): b85decode(
        "Oj<NTY;R+0C656B0MP{i09dUr3-(L^0(LY2OIv#)c4cyNX>V>KIy5XIV`yb#YjAIAZgf>{X>oOBNn|2AA~-l<H#R"
        "U~IW06XG+`|?H)LWhI5lNAEjchTV`XJEIAUQpG$MUn0RR91Py+xd00062RTuyO01yrUGXMYq5C9M`4FCuN001Qb0"
        "0aO80ss^g2>>tv01*WM0RjLKeFgvmMgR|L05%XAQUC%101s*a10ov&9smFW01v<b01q_)11~@X2>~Qf$QS0%i)R1"
        ";S^xqF00sg801yC1Pz3-X5&$y*00~n8kO2Sy0gKP(7swR=2m$~PgaHr_Y5)WeV*wNxGHw6>0ssKX0RRL51OfmQ76"
        "||VY5)KR000625Ih9{0=NJVV*vsORsat*00R$W0Tl;H00II44`TsW2YUbxV*vmn0T0FkHUuyOPyhe_|5*S!1Rnzg"
        "SpW}q0Tm7612L${<=FxRNdOPX0t+(b$*8RX1_A&N$N~)oSpW~W0zCv-01x{B6$kbK0s;UJ`v67+Y5-9G|Ns90Oj<"
        "NTY;R+06#xJL000000000000"
    ),
    (StateKind.DELTA, 1): b85decode(
        "Oj<NTY;R+0B|88B0E7Sl0R2oT2vYz602lxP022)e0B`_pPZ=Z%1`Yrq5CH}N3IYHHFaQ(}7yu7202BoR05Cuv7+?"
        "T^|NsC0|NsC0Oj<NTY;R+06#xJL000000000000"
    ),
    (StateKind.SNAPSHOT, 1): b85decode(
        "Oj<NTY;R+0B_sd<05kvq0N|#+2~z+702lxP024b10C0e}tR5r^1`Yrq5CH}N1_A(30RR90|4dpmLTqniYZU+h000"
        "0000000000"
    ),
}

_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_M = 0xFFFFFFFF


def _rotate(x: int, bits: int) -> int:
    return (x << bits | x >> (32 - bits)) & _M


def xxh32(data: bytes, seed: int) -> int:
    if len(data) >= 16:
        lanes = [(seed + _P1 + _P2) & _M, (seed + _P2) & _M, seed, (seed - _P1) & _M]
        for at in range(0, len(data) - 15, 16):
            words = struct.unpack_from("<4I", data, at)
            lanes = [
                _rotate((lane + word * _P2) & _M, 13) * _P1 & _M
                for lane, word in zip(lanes, words, strict=True)
            ]
        total = sum(map(_rotate, lanes, (1, 7, 12, 18)))
    else:
        total = seed + _P5
    total = (total + len(data)) & _M
    for at in range(len(data) // 16 * 16, len(data) - 3, 4):
        (word,) = struct.unpack_from("<I", data, at)
        total = _rotate((total + word * _P3) & _M, 17) * _P4 & _M
    for byte in data[len(data) - len(data) % 4 :]:
        total = _rotate((total + byte * _P5) & _M, 11) * _P1 & _M
    for shift, prime in ((15, _P2), (13, _P3)):
        total = (total ^ total >> shift) * prime & _M
    return total ^ total >> 16


hasher = xxh32


def literals(raw: bytes) -> bytes:
    """An LZ4 block that is one run of literals."""
    if len(raw) < 15:
        return bytes([len(raw) << 4]) + raw
    full, rest = divmod(len(raw) - 15, 255)
    return b"\xf0" + b"\xff" * full + bytes([rest]) + raw


def repeats(byte: int, count: int) -> bytes:
    """An LZ4 block of one byte `count` times: a literal, a match of distance 1, five literals."""
    full, rest = divmod(count - 6 - 4 - 15, 255)
    match = b"\xff" * full + bytes([rest])
    return bytes([0x1F, byte, 1, 0]) + match + b"\x50" + bytes([byte]) * 5


def block(raw: bytes, packed: bytes | None = None, level: int = 5) -> bytes:
    """One block, stored unless its packed form is given."""
    method = 0x10 if packed is None else 0x20
    data = raw if packed is None else packed
    checksum = hasher(raw, 0x9747B28C) & 0x0FFFFFFF
    return b"LZ4Block" + struct.pack("<BiiI", method | level, len(data), len(raw), checksum) + data


END = b"LZ4Block" + struct.pack("<BiiI", 0x15, 0, 0, 0)


def lz4(payload: bytes, block_size: int = 1 << 15, *, pack: bool = True) -> bytes:
    cut = [payload[i : i + block_size] for i in range(0, len(payload), block_size)]
    return b"".join(block(raw, literals(raw) if pack else None) for raw in cut) + END


def counted(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def text(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def plain(records: Iterable[Record]) -> bytes:
    none = struct.pack(">i", -1)
    body = (counted(key) + (none if v is None else counted(v)) for _, key, v in records)
    return b"".join(body) + none


def typed(records: Iterable[Record]) -> bytes:
    none = struct.pack(">i", -1)
    body = (
        bytes([tag]) + counted(key) + (none if v is None else counted(v)) for tag, key, v in records
    )
    return b"".join(body) + b"\0"


def changelog(
    version: int, records: Iterable[Record], lineage: Sequence[tuple[int, str]] = ()
) -> bytes:
    head = b"" if version == 1 else text(b"v%d" % version)
    if version >= 3:
        items = [{"version": v, "checkpointUniqueId": uid} for v, uid in lineage]
        head += text(json.dumps(items, separators=(",", ":")).encode())
    return head + (plain if version % 2 else typed)(records)


def payload(kind: StateKind, version: int, records: Iterable[Record]) -> bytes:
    if kind is StateKind.CHANGELOG:
        return changelog(version, records, [(4, UID)])
    return plain(records)


def metadata(names: Sequence[tuple[str, int]] = (), **more: object) -> bytes:
    """The metadata of a RocksDB zip that refers to SST files of these names and sizes."""
    files = [
        {"localFileName": name[:6] + ".sst", "dfsSstFileName": name, "sizeBytes": size}
        for name, size in names
    ]
    return b"v1\n" + json.dumps({"sstFiles": files, "numKeys": len(files)} | more).encode()


def rocks_zip(entries: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return out.getvalue()


def hadoop_crc(data: bytes, size: int = 512) -> bytes:
    sums = (zlib.crc32(data[i : i + size]) for i in range(0, len(data), size))
    return b"crc\0" + struct.pack(">i", size) + b"".join(struct.pack(">I", s) for s in sums)


def damage(rng: random.Random, data: bytes) -> bytes:
    """The data with one to three injuries: flipped, cut, inserted, duplicated, absurd numbers."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                del out[at:]
            case 2:
                out[at:at] = rng.randbytes(rng.randrange(1, 40))
            case 3:
                del out[at : at + rng.randrange(1, 40)]
            case 4:
                out[at:at] = out[at : at + rng.randrange(1, 200)]
            case _:
                number = rng.choice((-1, -2, 0, 1, 2**31 - 1, -(2**31), 1 << 24, 65535))
                out[at : at + 4] = struct.pack(rng.choice("<>") + "i", number)
    return bytes(out)
