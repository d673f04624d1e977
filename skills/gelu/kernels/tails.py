"""The two forms of GELU and their derivatives, right to a few units in the last place over the whole line.

Both forms are x times the chance q(x) that a random number lies below x, and q(x) = 1 - q(-x), so

    gelu(x) = max(x, 0) - a q(-a)         gelu'(x) = d(a) for x < 0, 1 - d(a) for x > 0        a = |x|

Nothing cancels: for x < 0 the result is the product itself. The textbook form, x (1 + erf(x / sqrt 2)) / 2, subtracts from
1 a number that is 1 in float32 from x = -5.5 on. a stops at 15, where a q(-a) is below the least float32, so that no
infinity meets a 0 and no exponential of a cube overflows into a NaN.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
# log2(e) / 2 as a float32 and what is missing from it
HALF_LOG2E = tl.constexpr(0.7213475108146667)
HALF_LOG2E_REST = tl.constexpr(9.62979589418e-09)
# 1 / sqrt(2 pi), sqrt(2 / pi), and the cubic term of the tanh form
DENSITY = tl.constexpr(0.3989422804014327)
SLOPE = tl.constexpr(0.7978845608028654)
CUBIC = tl.constexpr(0.044715)
FARTHEST = tl.constexpr(15.0)


@triton.jit
def gelu(x, TANH: tl.constexpr):
    """Return gelu(x) of float32 values."""
    a = tl.minimum(tl.abs(x), FARTHEST)
    if TANH:
        tail = a / (1 + tl.exp2(_angle(a)))
    else:
        power, ratio = _tail(a)
        tail = a * power * ratio
    y = tl.where(x > 0, x, 0.0) - tail
    # minimum and where have dropped a NaN
    return tl.where(x == x, y, x)


@triton.jit
def gelu_slope(x, TANH: tl.constexpr):
    """Return the derivative of gelu at float32 values."""
    a = tl.minimum(tl.abs(x), FARTHEST)
    if TANH:
        q = 1 / (1 + tl.exp2(_angle(a)))
        slope = q - a * (q * (1 - q)) * (2 * SLOPE + 6 * SLOPE * CUBIC * a * a)
    else:
        power, ratio = _tail(a)
        slope = power * (ratio - DENSITY * a)
    slope = tl.where(x > 0, 1 - slope, slope)
    return tl.where(x == x, slope, x)


@triton.jit
def _angle(a):
    """Return log2(exp(2 sqrt(2 / pi) (a + 0.044715 a^3)))."""
    return a * (2 * SLOPE * LOG2E + 2 * SLOPE * CUBIC * LOG2E * a * a)


@triton.jit
def _tail(a):
    """Return two factors of the normal distribution's tail beyond a: exp(-a^2 / 2), and what is left, a slow function.

    The second is t times a polynomial in t = 1 / (1 + 0.34 a), fitted for 0 <= a <= 14 (beyond, the first is 0): 3e-8 off at most, relatively. In the
    first the rounding of a^2 and of its product with log2(e) would cost 60 units in the last place at a = 13; both
    are kept and multiplied in at the end.
    """
    square = a * a
    exponent = square * HALF_LOG2E
    rest = tl.fma(a, a, -square) * HALF_LOG2E + tl.fma(square, HALF_LOG2E, -exponent)
    rest += square * HALF_LOG2E_REST
    power = tl.exp2(-exponent) * (1 - rest * LN2)
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
