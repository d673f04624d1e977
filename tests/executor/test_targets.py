from __future__ import annotations

import pytest

from kernel_skills.executor.errors import NotFound
from kernel_skills.executor.targets import Target, find_target, load_targets, target_of_device

GPUS = [target for target in load_targets().values() if target.backend != "cpu"]
every_gpu = pytest.mark.parametrize("target", GPUS, ids=lambda target: target.name)


def test_the_chips_are_named_with_their_architectures() -> None:
    assert {name: target.arch for name, target in load_targets().items()} == {
        "a100": "sm_80",
        "l40s": "sm_89",
        "h100": "sm_90",
        "h200": "sm_90",
        "b200": "sm_100",
        "rtx4090": "sm_89",
        "mi300x": "gfx942",
        "mi355x": "gfx950",
        "cpu": "cpu",
    }


@pytest.mark.parametrize(
    ("device", "arch", "name"),
    [
        ("NVIDIA H200", "sm_90", "h200"),
        ("NVIDIA H100 80GB HBM3", "sm_90", "h100"),
        ("NVIDIA A100-SXM4-80GB", "sm_80", "a100"),
        ("NVIDIA L40S", "sm_89", "l40s"),
        ("NVIDIA GeForce RTX 4090", "sm_89", "rtx4090"),
        ("NVIDIA B200", "sm_100", "b200"),
        ("AMD Instinct MI300X", "gfx942", "mi300x"),
    ],
)
def test_a_device_is_known_by_its_name(device: str, arch: str, name: str) -> None:
    target = target_of_device(device, arch)
    assert target is not None
    assert target.name == name


@pytest.mark.parametrize(
    ("device", "arch"),
    [
        ("NVIDIA H100 PCIe", "sm_90"),
        ("NVIDIA H100 NVL", "sm_90"),
        ("NVIDIA GH200 480GB", "sm_90"),
        ("NVIDIA GB200", "sm_100"),
        ("NVIDIA A100-PCIE-40GB", "sm_80"),
        ("NVIDIA L40", "sm_89"),
        ("NVIDIA H200 NVL", "sm_90"),
        ("NVIDIA H200 MIG 1g.18gb", "sm_90"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "sm_90"),
        ("NVIDIA H200", "sm_100"),
    ],
)
def test_a_relative_of_a_chip_is_not_taken_for_it(device: str, arch: str) -> None:
    assert target_of_device(device, arch) is None


def test_an_unknown_target_offers_close_names() -> None:
    with pytest.raises(NotFound, match="h100"):
        find_target("h1000")


@every_gpu
def test_a_narrower_dtype_is_not_slower(target: Target) -> None:
    rates = [target.peak_tflops[name].value for name in ("bfloat16", "float8_e4m3fn", "int8")
             if name in target.peak_tflops]  # fmt: skip
    assert rates == sorted(rates)
    assert target.peak_tflops["float64"].value <= target.peak_tflops["vector-float32"].value
    assert target.peak_tflops["vector-float32"].value <= target.peak_tflops["bfloat16"].value


@every_gpu
def test_8_bit_rates_are_twice_the_16_bit_rates(target: Target) -> None:
    half = target.peak_tflops["float16"].value
    assert target.peak_tflops["int8"].value == pytest.approx(2 * half, rel=0.03)


@every_gpu
def test_a_large_matmul_is_bound_by_compute_and_a_copy_by_memory(target: Target) -> None:
    # FLOPs per byte at which the bounds meet: a copy has 0, a matmul of n^3 in bfloat16 has n / 3
    balance = 1000 * target.peak_tflops["bfloat16"].value / target.peak_gbps.value
    assert 100 < balance < 8192 / 3


@every_gpu
def test_a_block_fits_its_multiprocessor(target: Target) -> None:
    assert target.shared_bytes_per_block <= target.shared_bytes_per_multiprocessor
    threads = target.max_warps_per_multiprocessor * target.warp_size
    assert threads in (1536, 2048)
    # at full occupancy a thread still has registers to work with
    assert target.registers_per_multiprocessor / threads >= 32


@pytest.mark.parametrize("target", load_targets().values(), ids=lambda target: target.name)
def test_what_was_measured_is_within_the_data_sheet(target: Target) -> None:
    for dtype, rate in target.measured_tflops.items():
        assert rate.value <= target.peak_tflops[dtype].value
        assert "measured" in rate.source
    assert target.gbps.value <= target.peak_gbps.value
    assert target.peak_tflops
