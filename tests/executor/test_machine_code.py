from __future__ import annotations

from kernel_skills.executor.machine_code import (
    amd_machine_code,
    parse_assembler_log,
    sass_instructions,
)

LOG = """
ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to a call
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
ptxas info    : (C7517) warpgroup.wait is injected in around line 13 by compiler to allow use of registers
ptxas info    : Function properties for attention
    96 bytes stack frame, 40 bytes spill stores, 56 bytes spill loads
ptxas info    : Used 168 registers, used 9 barriers, 96 bytes cumulative stack size
"""

SASS = """
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!PT LDS RZ, [RZ] ;
        /*0020*/                   LDGSTS.E.BYPASS.128 [R41], desc[UR14][R20.64], P1 ;
        /*0030*/               @P0 LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0040*/                   UTMALDG.2D [UR8], [UR4], desc[UR16] ;
        /*0050*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;
        /*0060*/             @!UP1 UTMASTG.2D [UR8], [UR4] ;
        /*0070*/                   MUFU.EX2 R5, R5 ;
        /*0080*/                   STL.64 [R1+0x8], R6 ;
        /*0084*/                   UBLKCP.S.G [UR4], [UR6], UR8 ;
        /*0088*/                   UBLKCP.G.S [UR6], [UR4], UR5 ;
.L_x_1:
        /*0090*/                   REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5 ;
"""

GCN = """
kernel:
	s_load_dwordx4 s[0:3], s[4:5], 0x0
	buffer_load_dwordx4 v[0:3], v4, s[0:3], 0 offen
	buffer_load_dword v5, s[0:3], 0 offen lds
	v_mfma_f32_32x32x8_bf16_1k a[0:15], v[0:1], v[2:3], a[0:15]
	ds_read_b128 v[8:11], v12
	ds_bpermute_b32 v1, v2, v3
	scratch_store_dwordx4 off, v[0:3], off offset:16
	scratch_load_dword v9, off, off
	v_exp_f32_e32 v1, v1
	global_atomic_add_f32 v[0:1], v2, off
	global_store_dwordx2 v[0:1], v[2:3], off
	.amdgpu_metadata
amdhsa.kernels:
  - .agpr_count:     16
    .group_segment_fixed_size: 1024
    .max_flat_workgroup_size: 256
    .private_segment_fixed_size: 32
    .vgpr_count:     132
    .vgpr_spill_count: 4
    .wavefront_size: 64
"""


def test_the_assemblers_log_gives_registers_spills_and_what_costs_speed() -> None:
    log = parse_assembler_log(LOG)
    assert (log.registers, log.spill_bytes) == (168, 96)
    assert [text.split(":")[0] for text in log.warnings] == ["C7511", "C7508"]
    assert "serialized" in log.warnings[0]


def test_machine_instructions_are_counted_by_what_they_do() -> None:
    assert sass_instructions(SASS) == {
        "total": 11,
        "async_copy": 1,
        "global_load": 1,
        "tma_load": 2,
        "wgmma": 1,
        "tma_store": 2,
        "special_function": 1,
        "local_memory": 1,
        "atomics": 1,
    }


def test_amd_assembly_gives_the_same_report() -> None:
    code = amd_machine_code(GCN)
    assert (code.registers, code.spill_bytes, code.threads) == (132, 20, 256)
    assert code.static_shared_bytes == 1024
    assert code.instructions == {
        "total": 11,
        "global_load": 1,
        "async_copy": 1,
        "mfma": 1,
        "shared": 1,
        "shuffle": 1,
        "local_memory": 2,
        "special_function": 1,
        "atomics": 1,
        "global_store": 1,
    }
