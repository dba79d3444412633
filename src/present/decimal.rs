//! Shortest decimal digits of a binary floating-point number of any layout.
//!
//! The free-format algorithm of Steele and White ("How to Print Floating-Point Numbers Accurately",
//! 1990): of all decimal numbers that round to the value in its own type, the shortest, and of
//! these the nearest. Exact integers of unlimited width; the caller bounds the exponent.

use std::cmp::Ordering;

/// Largest power of two that is worked with: beyond IEEE quadruple precision.
pub const EXPONENT_MAX: i64 = 20_000;

/// An unsigned integer, lowest limb first, without leading zero limbs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Big(Vec<u32>);

impl Big {
    /// The integer `n`.
    pub fn new(mut n: u128) -> Self {
        let mut limbs = Vec::new();
        while n != 0 {
            limbs.push(n as u32);
            n >>= 32;
        }
        Big(limbs)
    }

    /// The integer with these decimal digits (values 0 to 9, highest first).
    pub fn from_digits(digits: &[u8]) -> Self {
        let mut n = Big(Vec::new());
        for group in digits.chunks(9) {
            let value = group.iter().fold(0u32, |n, &d| n * 10 + u32::from(d));
            n.mul_small(10u32.pow(group.len() as u32));
            n = n.plus(&Big::new(value.into()));
        }
        n
    }

    /// Number of bits up to the highest that is 1.
    pub fn bits(&self) -> u64 {
        let low = (self.0.len().saturating_sub(1) as u64).saturating_mul(32);
        self.0.last().map_or(0, |l| low.saturating_add(u64::from(32 - l.leading_zeros())))
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// `self *= by`.
    pub fn mul_small(&mut self, by: u32) {
        let mut carry = 0u64;
        for limb in &mut self.0 {
            // At most (2^32-1)^2 + 2^32-1 < 2^64.
            let n = u64::from(*limb) * u64::from(by) + carry;
            *limb = n as u32;
            carry = n >> 32;
        }
        if carry != 0 {
            self.0.push(carry as u32);
        }
    }

    /// `self *= 10^n`.
    pub fn mul_pow10(&mut self, mut n: u64) {
        while n >= 9 {
            self.mul_small(1_000_000_000);
            n -= 9;
        }
        for _ in 0..n {
            self.mul_small(10);
        }
    }

    /// `self << n`.
    pub fn shl(mut self, n: u64) -> Self {
        let bits = (n % 32) as u32;
        self.mul_small(1u32 << bits);
        if !self.0.is_empty() {
            let zeros = usize::try_from(n / 32).unwrap_or(0);
            self.0.splice(0..0, std::iter::repeat_n(0, zeros));
        }
        self
    }

    fn plus(&self, other: &Big) -> Big {
        let mut sum = Vec::with_capacity(self.0.len().max(other.0.len()).saturating_add(1));
        let mut carry = 0u64;
        for i in 0..self.0.len().max(other.0.len()) {
            let a = self.0.get(i).copied().unwrap_or(0);
            let b = other.0.get(i).copied().unwrap_or(0);
            let n = u64::from(a) + u64::from(b) + carry;
            sum.push(n as u32);
            carry = n >> 32;
        }
        sum.push(carry as u32);
        let mut sum = Big(sum);
        sum.trim();
        sum
    }

    /// `self -= other`, which must not be larger.
    pub fn minus(&mut self, other: &Big) {
        let mut borrow = 0u64;
        for (i, limb) in self.0.iter_mut().enumerate() {
            let b = u64::from(other.0.get(i).copied().unwrap_or(0)) + borrow;
            let a = u64::from(*limb);
            borrow = u64::from(a < b);
            *limb = (a + (borrow << 32) - b) as u32;
        }
        self.trim();
    }

    /// Order of the integers.
    pub fn compare(&self, other: &Big) -> Ordering {
        let by_len = self.0.len().cmp(&other.0.len());
        by_len.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

/// A positive number `fraction * 2^exponent` and how far its neighbours in its type are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binary {
    /// Mantissa as an integer; not 0, below 2^126.
    pub fraction: u128,
    /// Power of two; within [`EXPONENT_MAX`] either way.
    pub exponent: i64,
    /// The next smaller number is half as far away as the next larger.
    pub closer_below: bool,
}

/// `value = r / s * 10^k`, and how far from it the number ends where another one is nearer.
struct Interval {
    r: Big,
    s: Big,
    /// Half a gap up, in units of `1 / s`.
    above: Big,
    /// Half a gap down.
    below: Big,
    /// A tie rounds to the even mantissa, so the borders belong to an even one.
    even: bool,
    k: i64,
}

impl Interval {
    /// Of `v`, scaled so that it and all above it that reads as it lie below 1.
    fn new(v: &Binary) -> Self {
        let up = v.exponent.clamp(0, EXPONENT_MAX).unsigned_abs();
        let down = (-v.exponent).clamp(0, EXPONENT_MAX).unsigned_abs();
        let extra = u64::from(v.closer_below);
        let bits = 128 - i64::from(v.fraction.leading_zeros()) + v.exponent;
        let mut it = Interval {
            r: Big::new(v.fraction).shl(up + 1 + extra),
            s: Big::new(1).shl(down + 1 + extra),
            above: Big::new(1).shl(up + extra),
            below: Big::new(1).shl(up),
            even: v.fraction.is_multiple_of(2),
            // 10^k may be one too small, never too large: floor((bits - 1) * log10(2)) is at most
            // floor(log10(v)).
            k: ((bits - 1) as f64 * std::f64::consts::LOG10_2 - 1e-9).floor() as i64,
        };
        if it.k >= 0 {
            it.s.mul_pow10(it.k.unsigned_abs());
        } else {
            for n in [&mut it.r, &mut it.above, &mut it.below] {
                n.mul_pow10(it.k.unsigned_abs());
            }
        }
        while it.one_is_near() {
            it.s.mul_small(10);
            it.k += 1;
        }
        it
    }

    fn next_digit(&mut self) -> u8 {
        for n in [&mut self.r, &mut self.above, &mut self.below] {
            n.mul_small(10);
        }
        let mut digit = 0u8;
        while self.r.compare(&self.s) != Ordering::Less {
            self.r.minus(&self.s);
            digit += 1;
        }
        digit
    }

    /// What is left is so small that it need not be written.
    fn zero_is_near(&self) -> bool {
        self.within(self.r.compare(&self.below))
    }

    /// What is left is so near to one unit that the last digit may be one more.
    fn one_is_near(&self) -> bool {
        self.within(self.s.compare(&self.r.plus(&self.above)))
    }

    fn within(&self, order: Ordering) -> bool {
        order == Ordering::Less || (order == Ordering::Equal && self.even)
    }
}

/// Shortest digits (values 0 to 9, the first not 0) and `k` in `0.d1d2d3... * 10^k`.
pub fn shortest(v: Binary) -> (Vec<u8>, i64) {
    let mut left = Interval::new(&v);
    let k = left.k;
    let mut digits = Vec::new();
    // Set when 10^(k-1) is near enough though the value is smaller, so that the first digit is 0.
    let mut power = false;
    loop {
        let mut digit = left.next_digit();
        let (low, high) = (left.zero_is_near(), left.one_is_near());
        if digit == 0 && digits.is_empty() && !power {
            // Perhaps a digit at the next place is near enough too, and nearer.
            power = true;
            continue;
        }
        if low || high {
            let nearer_up = match left.r.plus(&left.r).compare(&left.s) {
                Ordering::Less => false,
                // Two are nearest: the even one, as IEEE rounds.
                Ordering::Equal => digit % 2 == 1,
                Ordering::Greater => true,
            };
            digit += u8::from(high && (!low || nearer_up));
        }
        return match (power, low || high) {
            (true, true) if digit < 10 => (vec![digit], k - 1),
            (true, _) => (vec![1], k),
            (false, true) => {
                digits.push(digit);
                (digits, k)
            }
            (false, false) => {
                digits.push(digit);
                continue;
            }
        };
    }
}

/// The number `0.d1d2d3... * 10^k` as text: positional from 1e-4 up to 1e16, else with an exponent.
/// Integers end in `.0`, so that the text reads as floating-point.
pub fn format(negative: bool, digits: &[u8], k: i64) -> String {
    let digit = |d: &u8| char::from(b'0'.saturating_add(*d));
    let mut out = String::with_capacity(digits.len().saturating_add(8));
    if negative {
        out.push('-');
    }
    match k {
        1..=16 => {
            let k = k.unsigned_abs() as usize;
            out.extend((0..k).map(|i| digits.get(i).map_or('0', digit)));
            out.push('.');
            out.extend(digits.iter().skip(k).map(digit));
            if digits.len() <= k {
                out.push('0');
            }
        }
        -3..=0 => {
            out.push_str("0.");
            out.extend((0..k.unsigned_abs()).map(|_| '0'));
            out.extend(digits.iter().map(digit));
        }
        _ => {
            out.extend(digits.iter().take(1).map(digit));
            if digits.len() > 1 {
                out.push('.');
                out.extend(digits.iter().skip(1).map(digit));
            }
            out.push_str(&format!("e{}", k.saturating_sub(1)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digits by Rust's own printer.
    fn std_digits(x: f64) -> (Vec<u8>, i64) {
        let s = format!("{x:e}");
        let (mantissa, exponent) = s.split_once('e').unwrap();
        (mantissa.bytes().filter(u8::is_ascii_digit).map(|b| b - b'0').collect(), exponent.parse::<i64>().unwrap() + 1)
    }

    fn of_f64(x: f64) -> Binary {
        let (e, m) = ((x.to_bits() >> 52 & 0x7ff) as i64, x.to_bits() & ((1 << 52) - 1));
        if e == 0 {
            Binary { fraction: m.into(), exponent: -1074, closer_below: false }
        } else {
            Binary { fraction: u128::from(m | 1 << 52), exponent: e - 1075, closer_below: m == 0 && e > 1 }
        }
    }

    #[test]
    fn agrees_with_rusts_printer_for_doubles() {
        let known = [1.0, 0.1, 1e300, 5e-324, f64::MAX, f64::MIN_POSITIVE, 9007199254740993.0, 2.0f64.powi(-1000), 1e23, 123456.789];
        let mut state = 88172645463325252u64;
        let random = (0..3000).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            f64::from_bits(state & !(1 << 63))
        });
        for x in known.into_iter().chain(random).filter(|x| x.is_finite() && *x > 0.0) {
            assert_eq!(shortest(of_f64(x)), std_digits(x), "{x:e}");
        }
    }

    #[test]
    fn positional_and_exponent_forms() {
        let cases = [
            ((false, &[1][..], 1), "1.0"),
            ((true, &[1, 5], 1), "-1.5"),
            ((false, &[1], 16), "1000000000000000.0"),
            ((false, &[1], 17), "1e16"),
            ((false, &[1, 2], -3), "0.00012"),
            ((false, &[1, 2], -4), "1.2e-5"),
            ((false, &[1], 0), "0.1"),
        ];
        for ((negative, digits, k), want) in cases {
            assert_eq!(format(negative, digits, k), want);
            assert_eq!(want.parse::<f64>().unwrap().to_string(), want.parse::<f64>().unwrap().to_string());
        }
    }
}
