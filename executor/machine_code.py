"""What the machine code of a kernel says: registers, spills, instruction mix, assembler warnings.

CUDA: ptxas' own log and the SASS of the cubin, with the tools inside the Triton wheel. AMD: the assembly text with
its metadata. Nothing here needs a GPU or imports torch.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from kernel_skills.executor.errors import WorkerError
from kernel_skills.executor.models import Record

# ptxas takes 30 ms for a small kernel, and minutes where it fights for registers
_TOOL_TIMEOUT_SECONDS = 120.0


class MachineCode(Record):
    """Resources and instructions of one kernel."""

    registers: int
    """Per thread; on AMD vector and accumulation registers together."""
    spill_bytes: int
    """Stores plus loads of spilled registers, per thread."""
    static_shared_bytes: int = 0
    threads: int | None = None
    """Per block as the code demands, producers of a warp-specialised kernel included."""
    instructions: Mapping[str, int]
    warnings: tuple[str, ...] = ()


class AssemblerLog(Record):
    """What ptxas said about one kernel."""

    registers: int
    spill_bytes: int
    warnings: tuple[str, ...] = ()


# --- CUDA -------------------------------------------------------------------------------------

SASS_CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "wgmma": ("HGMMA", "QGMMA", "IGMMA", "BGMMA"),
    "tcgen05": ("UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA", "UTCMXQMMA"),
    "mma": ("HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "BMMA"),
    "tma_load": ("UBLKCP", "UTMALDG"),
    "tma_store": ("UTMASTG", "UTMAREDG", "UBLKRED"),
    "async_copy": ("LDGSTS",),
    "global_load": ("LDG", "LD"),
    "global_store": ("STG", "ST"),
    "shared": ("LDS", "STS", "LDSM", "STSM", "LDSMT"),
    "tensor_memory": ("LDTM", "STTM"),
    "local_memory": ("LDL", "STL"),
    "special_function": ("MUFU",),
    "fma": ("FFMA", "FFMA2", "HFMA2", "DFMA"),
    "atomics": ("ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDS"),
    "shuffle": ("SHFL",),
    "barrier": ("BAR", "SYNCS", "WARPSYNC"),
}
"""Category -> SASS mnemonics, up to the first dot."""

_SASS_OF = {mnemonic: name for name, group in SASS_CATEGORIES.items() for mnemonic in group}
_BULK_STORE = "UBLKCP.G"
"""The bulk copy has one mnemonic for both directions: its first suffix is where the bytes go."""
_SASS_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9.]*)", re.MULTILINE)

# wgmma serialised (C7510, C7511, C7514), setmaxnreg ignored (C7508), and what later versions add of the kind
_COSTLY = re.compile(r"\((C7508|C751[014]|C\d{4}(?=\) Potential Performance Loss))\)\s*(.*)")


def cuda_machine_code(ptx: str, cubin: bytes, assembler_log: str = "") -> MachineCode:
    """Read a kernel's PTX and cubin.

    Args:
        assembler_log: what `ptxas -v` printed when it made the cubin; ptxas is run again where it is empty.

    Raises:
        WorkerError: a tool of the Triton wheel is missing, fails or takes longer than two minutes.
    """
    log = parse_assembler_log(assembler_log or run_assembler(ptx))
    threads = re.search(r"\.(?:reqntid|maxntid)\s+(\d+)", ptx)
    static_shared = sum(int(size) for size in _STATIC_SHARED.findall(ptx))
    return MachineCode(
        registers=log.registers,
        spill_bytes=log.spill_bytes,
        static_shared_bytes=static_shared,
        threads=int(threads[1]) if threads else None,
        instructions=sass_instructions(_disassembly(cubin)),
        warnings=log.warnings,
    )


_STATIC_SHARED = re.compile(r"^\s*\.shared\s+\.align\s+\d+\s+\.b8\s+\w+\[(\d+)\]", re.MULTILINE)


def parse_assembler_log(text: str) -> AssemblerLog:
    """Return registers, spills and the warnings that cost speed from the log of `ptxas -v`."""
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", text)]
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
    return AssemblerLog(
        registers=max(registers, default=0),
        spill_bytes=sum(int(stores) + int(loads) for stores, loads in spills),
        warnings=_assembler_warnings(text),
    )


def _assembler_warnings(text: str) -> tuple[str, ...]:
    found = {code: reason.strip() for code, reason in _COSTLY.findall(text)}
    return tuple(f"{code}: {reason}" for code, reason in found.items())


def sass_instructions(sass: str) -> dict[str, int]:
    """Count the instructions of a disassembly by category, with `total`; categories that are absent are left out."""
    counts: Counter[str] = Counter()
    for predicate, mnemonic in _SASS_LINE.findall(sass):
        # `@!PT` never executes: ptxas pads with it before the first asynchronous copy
        if predicate.strip() == "@!PT":
            continue
        counts["total"] += 1
        if mnemonic.startswith(_BULK_STORE):
            counts["tma_store"] += 1
        elif category := _SASS_OF.get(mnemonic.split(".")[0]):
            counts[category] += 1
    return dict(counts)


def run_assembler(ptx: str) -> str:
    """Return the log of `ptxas -v` over a kernel's PTX, with the options that Triton gives it."""
    target = re.search(r"^\.target\s+(\w+)", ptx, re.MULTILINE)
    assert target is not None
    number = int(re.sub(r"\D", "", target[1]))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx, encoding="utf-8")
        command = [_tool("ptxas-blackwell" if number >= 100 else "ptxas"), "-lineinfo", "-v"]
        command += [*_assembler_options(), f"--gpu-name={target[1]}"]
        done = _run([*command, str(source), "-o", f"{folder}/kernel.o"])
    return done.stderr


def _assembler_options() -> list[str]:
    import triton

    # Triton 3.7 began to pass this against an error of ptxas 13; it changes the registers
    major, minor = (int(part) for part in triton.__version__.split(".")[:2])
    return ["--regAllocOptLevel=2"] if (major, minor) >= (3, 7) else []


def _disassembly(cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return _run([_tool("nvdisasm"), "-c", file.name]).stdout


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    name = Path(command[0]).name
    try:
        # An environment of its own: with none the child reads the process's by pointer, which Triton
        # moves in another thread when it sets a variable, and execve then fails with EFAULT
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_TOOL_TIMEOUT_SECONDS,
            env={"PATH": os.environ.get("PATH", os.defpath), "TMPDIR": tempfile.gettempdir()},
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise WorkerError(f"{name} failed: {error.stderr.strip()[-400:]}") from error
    except subprocess.TimeoutExpired as error:
        raise WorkerError(f"{name} took more than {_TOOL_TIMEOUT_SECONDS:.0f} s") from error


@lru_cache
def _tool(name: str) -> str:
    """Return the path of a tool that Triton itself would use, else the one in its wheel."""
    import triton
    from triton import knobs

    if name.startswith("ptxas"):
        return str(getattr(knobs.nvidia, name.replace("-", "_")).path)
    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    if not path.is_file():
        raise WorkerError(f"{name} is not in this Triton wheel ({path.parent})")
    return str(path)


# --- AMD --------------------------------------------------------------------------------------

_AMD_CATEGORIES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("mfma", re.compile(r"v_s?mfmac?_")),
    ("atomics", re.compile(r"(buffer|global|flat|ds)_(atomic|add|sub|cmpst|min|max)_")),
    ("global_load", re.compile(r"(buffer|global|flat)_load_")),
    ("global_store", re.compile(r"(buffer|global|flat)_store_")),
    ("shared", re.compile(r"ds_(read|write|load|store)")),
    ("local_memory", re.compile(r"scratch_(load|store)_")),
    ("special_function", re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")),
    ("shuffle", re.compile(r"ds_(b?permute|swizzle)|v_(permlane|readlane)")),
    ("barrier", re.compile(r"s_barrier")),
)
_AMD_LINE = re.compile(r"^\s+((?:v|s|ds|buffer|global|flat|scratch)_\w+)(.*)$", re.MULTILINE)


def amd_machine_code(assembly: str) -> MachineCode:
    """Read a kernel's AMD assembly text and the metadata at its end."""
    # scratch memory without a spill is an array that the kernel indexes, not a spill
    spilled = _metadata(assembly, "vgpr_spill_count") > 0
    return MachineCode(
        registers=_metadata(assembly, "vgpr_count"),
        spill_bytes=_scratch_bytes(assembly) if spilled else 0,
        static_shared_bytes=_metadata(assembly, "group_segment_fixed_size"),
        threads=_metadata(assembly, "max_flat_workgroup_size") or None,
        instructions=amd_instructions(assembly),
    )


def _scratch_bytes(assembly: str) -> int:
    widths = re.findall(r"^\s+scratch_(?:load|store)_dword(?:x(\d))?\b", assembly, re.MULTILINE)
    return sum(4 * int(width or 1) for width in widths)


def amd_instructions(assembly: str) -> dict[str, int]:
    """Count the instructions of AMD assembly by category, with `total`; absent categories are left out."""
    counts: Counter[str] = Counter()
    for mnemonic, operands in _AMD_LINE.findall(assembly):
        counts["total"] += 1
        if re.search(r"\blds\b", operands) and "_load_" in mnemonic:
            counts["async_copy"] += 1
            continue
        for category, pattern in _AMD_CATEGORIES:
            if pattern.match(mnemonic):
                counts[category] += 1
                break
    return dict(counts)


def _metadata(assembly: str, field: str) -> int:
    match = re.search(rf"^\s*(?:- )?\.{field}:\s+(\d+)", assembly, re.MULTILINE)
    return int(match[1]) if match else 0
