"""The activations and their derivatives on float32 values, without an overflow that turns to NaN.

The two forms of GELU are x times the chance q(x) that a random number lies below x, and q(x) = 1 - q(-x), so

    gelu(x) = max(x, 0) - a q(-a)         gelu'(x) = d(a) for x < 0, 1 - d(a) for x > 0        a = |x|

a stops at 15, where a q(-a) is below the least float32: no exponential of a cube then overflows.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
# 1 / sqrt(2 pi), sqrt(2 / pi), and the cubic term of the tanh form
DENSITY = tl.constexpr(0.3989422804014327)
SLOPE = tl.constexpr(0.7978845608028654)
CUBIC = tl.constexpr(0.044715)
FARTHEST = tl.constexpr(15.0)


@triton.jit
def activate(x, NAME: tl.constexpr):
    """Return silu, gelu or gelu_tanh of x."""
    if NAME == "silu":
        # exp(-x) overflows to inf below -88, and x / inf is the right -0
        return x / (1 + tl.exp2(-x * LOG2E))
    a = tl.minimum(tl.abs(x), FARTHEST)
    if NAME == "gelu":
        power, ratio = _tail(a)
        tail = a * power * ratio
    else:
        tail = a / (1 + tl.exp2(_angle(a)))
    y = tl.where(x > 0, x, 0.0) - tail
    # minimum and where have dropped a NaN
    return tl.where(x == x, y, x)


@triton.jit
def activate_both(x, NAME: tl.constexpr):
    """Return the activation of x and its derivative."""
    if NAME == "silu":
        # both chances from one exponential that cannot overflow: 1 - q would lose q's digits near 1
        power = tl.exp2(-tl.abs(x) * LOG2E)
        near = 1 / (1 + power)
        q = tl.where(x > 0, near, power * near)
        rest = tl.where(x > 0, power * near, near)
        return x * q, q * (1 + x * rest)
    a = tl.minimum(tl.abs(x), FARTHEST)
    if NAME == "gelu":
        power, ratio = _tail(a)
        tail = a * power * ratio
        slope = power * (ratio - DENSITY * a)
    else:
        q = 1 / (1 + tl.exp2(_angle(a)))
        tail = a * q
        slope = q - tail * (1 - q) * (2 * SLOPE + 6 * SLOPE * CUBIC * a * a)
    y = tl.where(x > 0, x, 0.0) - tail
    slope = tl.where(x > 0, 1 - slope, slope)
    return tl.where(x == x, y, x), tl.where(x == x, slope, x)


@triton.jit
def _angle(a):
    """Return log2(exp(2 sqrt(2 / pi) (a + 0.044715 a^3)))."""
    return a * (2 * SLOPE * LOG2E + 2 * SLOPE * CUBIC * LOG2E * a * a)


@triton.jit
def _tail(a):
    """Return two factors of the normal distribution's tail beyond a: exp(-a^2 / 2), and what is left, a slow function.

    The second is t times a polynomial in t = 1 / (1 + 0.34 a), fitted for 0 <= a <= 14 (beyond, the first is 0): 3e-8 off
    at most, relatively.
    """
    power = tl.exp2(a * a * (-0.5 * LOG2E))
    t = 1 / (1 + 0.34 * a)
    p = -0.026120591908693314 * t + 0.1394999772310257
    p = p * t - 0.27313360571861267
    p = p * t + 0.20218351483345032
    p = p * t - 0.044718943536281586
    p = p * t + 0.1153593361377716
    p = p * t + 0.11519762128591537
    p = p * t + 0.13611219823360443
    p = p * t + 0.13562050461769104
    return power, p * t
