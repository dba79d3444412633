//! Numbers that are times: `units` of the CF conventions, and numpy's `datetime64`.

use crate::base::Result;
use crate::base::datatype::{Class, Datatype};
use crate::connector::{Connector, ObjectId};
use crate::present::number;
use crate::present::numpy::{NumpyDtype, numpy_dtype};
use crate::present::values::attribute_text;
use chrono::{DateTime, Datelike, NaiveDate, NaiveTime};

/// Seconds from 1970 to 1582-10-15: from then on calendars of the conventions that are like ours
/// agree.
const GREGORIAN_FROM: i64 = -12_219_292_800;
const NANOS_PER_SECOND: i128 = 1_000_000_000;
const NANOS_PER_DAY: i128 = 86_400 * NANOS_PER_SECOND;

/// How numbers are times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::present) struct Times {
    /// Nanoseconds of a unit.
    unit: i128,
    /// Nanoseconds from 1970-01-01 to the first moment.
    origin: i128,
    /// Times before the Gregorian calendar are shown as numbers.
    gregorian: bool,
    /// Lowest byte first: numpy's number in an opaque element.
    opaque: bool,
}

impl Times {
    /// How the elements of the dataset `id` are times, by its attributes `units` and `calendar`.
    pub(super) fn of(connector: &dyn Connector, id: ObjectId, t: &Datatype) -> Result<Option<Times>> {
        if !matches!(t.class, Class::FixedPoint(_) | Class::FloatingPoint(_)) {
            return Ok(None);
        }
        // An attribute that cannot be shown names no unit.
        let text = |name: &[u8]| attribute_text(connector, id, name).ok().flatten().and_then(|text| String::from_utf8(text).ok());
        let Some(units) = text(b"units") else { return Ok(None) };
        let gregorian = match text(b"calendar").as_deref().map(str::to_ascii_lowercase).as_deref() {
            None | Some("standard" | "gregorian") => true,
            Some("proleptic_gregorian") => false,
            Some(_) => return Ok(None),
        };
        Ok(Times::parse(&units).map(|times| Times { gregorian, ..times }))
    }

    /// How opaque elements are times, by the tag that h5py gives them.
    pub(in crate::present) fn of_type(t: &Datatype) -> Option<Times> {
        let Some(NumpyDtype::Plain(notation)) = numpy_dtype(t).filter(|_| matches!(t.class, Class::Opaque(_))) else { return None };
        let unit = notation.strip_prefix("<M8[")?.strip_suffix(']').filter(|_| t.size == 8)?;
        Some(Times { unit: numpy_unit(unit)?, origin: 0, gregorian: false, opaque: true })
    }

    /// From `UNIT since DATE`.
    fn parse(units: &str) -> Option<Times> {
        let (unit, date) = units.split_once(" since ")?;
        Some(Times { unit: unit_nanos(unit.trim())?, origin: moment(date.trim())?, gregorian: true, opaque: false })
    }

    /// The time of an element of type `t` by ISO 8601; `NaT` for numpy's nothing and for NaN.
    /// `None`: it is shown as a number.
    pub(super) fn text(&self, t: &Datatype, bytes: &[u8]) -> Option<String> {
        match self.moment(t, bytes)? {
            None => Some("NaT".into()),
            Some(nanos) => self.shown(nanos),
        }
    }

    /// Nanoseconds of a unit.
    #[cfg(feature = "arrow")]
    pub(in crate::present) fn unit(&self) -> i128 {
        self.unit
    }

    /// True if all times are whole units from 1970 on.
    #[cfg(feature = "arrow")]
    pub(in crate::present) fn is_whole(&self) -> bool {
        self.opaque
    }

    /// Nanoseconds from 1970 to the time of an element of type `t`; `None`: it is no time, or one
    /// of a calendar that is not ours; inner `None`: numpy's nothing, or NaN.
    #[cfg(feature = "arrow")]
    pub(in crate::present) fn nanos(&self, t: &Datatype, bytes: &[u8]) -> Option<Option<i128>> {
        let moment = self.moment(t, bytes)?;
        let before = |nanos: i128| nanos < i128::from(GREGORIAN_FROM).saturating_mul(NANOS_PER_SECOND);
        Some(moment).filter(|moment| !(self.gregorian && moment.is_some_and(before)))
    }

    fn moment(&self, t: &Datatype, bytes: &[u8]) -> Option<Option<i128>> {
        let nanos = if self.opaque {
            let raw = i64::from_le_bytes(bytes.try_into().ok()?);
            if raw == i64::MIN {
                return Some(None);
            }
            i128::from(raw).checked_mul(self.unit)?
        } else {
            let text = match &t.class {
                Class::FixedPoint(f) => number::integer(bytes, f.order, f.offset.into(), f.precision.into(), f.signed)?,
                Class::FloatingPoint(f) => number::float_text(f, bytes)?,
                _ => return None,
            };
            match text.parse::<i128>() {
                Ok(n) => n.checked_mul(self.unit)?,
                Err(_) => {
                    let value: f64 = text.parse().ok()?;
                    if value.is_nan() {
                        return Some(None);
                    }
                    scaled(value, self.unit)?
                }
            }
        };
        self.origin.checked_add(nanos).map(Some)
    }

    fn shown(&self, nanos: i128) -> Option<String> {
        let seconds = i64::try_from(nanos.div_euclid(NANOS_PER_SECOND)).ok()?;
        let nanos = u32::try_from(nanos.rem_euclid(NANOS_PER_SECOND)).ok()?;
        let time = DateTime::from_timestamp(seconds, nanos).filter(|time| (1..=9999).contains(&time.year()))?;
        if self.gregorian && seconds < GREGORIAN_FROM {
            return None;
        }
        let mut text = time.format("%Y-%m-%dT%H:%M:%S").to_string();
        if nanos > 0 {
            text.push_str(format!(".{nanos:09}").trim_end_matches('0'));
        }
        Some(text)
    }
}

/// `value` units of `unit` nanoseconds, rounded to microseconds: doubles have no more digits of
/// times of our days.
fn scaled(value: f64, unit: i128) -> Option<i128> {
    let whole = value.trunc();
    if whole.abs() >= 1e15 {
        return None;
    }
    let part = ((value - whole) * (unit as f64 / 1000.0)).round() as i128;
    (whole as i128).checked_mul(unit)?.checked_add(part * 1000)
}

fn unit_nanos(unit: &str) -> Option<i128> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "day" | "days" | "d" => NANOS_PER_DAY,
        "hour" | "hours" | "hr" | "hrs" | "h" => 3_600_000_000_000,
        "minute" | "minutes" | "min" | "mins" => 60_000_000_000,
        "second" | "seconds" | "sec" | "secs" | "s" => 1_000_000_000,
        "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => 1_000_000,
        "microsecond" | "microseconds" | "us" => 1_000,
        "nanosecond" | "nanoseconds" | "ns" => 1,
        _ => return None,
    })
}

fn numpy_unit(unit: &str) -> Option<i128> {
    Some(match unit {
        "W" => 7 * NANOS_PER_DAY,
        "D" | "h" | "s" | "ms" | "us" | "ns" => unit_nanos(unit)?,
        "m" => 60_000_000_000,
        _ => return None,
    })
}

/// Nanoseconds from 1970 to `YYYY-MM-DD`, perhaps with a time of the day and a zone.
fn moment(date: &str) -> Option<i128> {
    let (day, time) = date.split_once([' ', 'T']).unwrap_or((date, ""));
    let mut parts = day.splitn(3, '-').map(|n| n.parse::<u32>().ok());
    let (year, month, date) = (parts.next()??, parts.next()??, parts.next()??);
    let day = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, date)?;
    let mut nanos = i128::from(day.and_time(NaiveTime::MIN).and_utc().timestamp()) * NANOS_PER_SECOND;
    let time = time.trim().trim_end_matches("UTC").trim_end_matches('Z').trim();
    let (time, zone) = match time.find(['+', '-']) {
        Some(at) => (time.get(..at)?.trim(), time.get(at..)?),
        None => (time, ""),
    };
    for (i, part) in time.split(':').enumerate().filter(|(_, part)| !part.is_empty()) {
        let unit = [3600e9, 60e9, 1e9].get(i)?;
        let n: f64 = part.parse().ok().filter(|n: &f64| (0.0..=60.0).contains(n))?;
        nanos += (n * unit).round() as i128;
    }
    if let Some((sign, zone)) = zone.split_at_checked(1) {
        let (hours, minutes) = zone.split_once(':').unwrap_or((zone.get(..2).unwrap_or(zone), zone.get(2..).unwrap_or("")));
        let minutes = if minutes.is_empty() { 0 } else { minutes.parse::<u8>().ok()?.into() };
        let offset = (i128::from(hours.parse::<u8>().ok()?) * 60 + minutes) * 60_000_000_000;
        nanos += if sign == "+" { -offset } else { offset };
    }
    Some(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(units: &str, n: i128) -> Option<String> {
        let times = Times::parse(units)?;
        times.shown(times.origin + n * times.unit)
    }

    #[test]
    fn units_of_the_conventions() {
        let is = |units: &str, n: i128, text: &str| assert_eq!(shown(units, n).as_deref(), Some(text), "{n} {units}");
        is("days since 1970-01-01", 19_000, "2022-01-08T00:00:00");
        is("hours since 1900-01-01 00:00:00.0", 1_000_000, "2014-01-29T16:00:00");
        is("seconds since 2000-02-29T12:30:15Z", 1, "2000-02-29T12:30:16");
        is("minutes since 2024-01-01 00:00 +02:00", 0, "2023-12-31T22:00:00");
        is("milliseconds since 1970-01-01", 1, "1970-01-01T00:00:00.001");
        for none in ["days", "months since 2000-01-01", "days since then", "days since 2000-13-01", "m since x since 2000-01-01"] {
            assert_eq!(shown(none, 0), None, "{none}");
        }
        assert_eq!(shown("days since 1500-01-01", 0), None, "another calendar");
        assert_eq!(shown("days since 2000-01-01", i128::MAX / NANOS_PER_DAY / 2), None);
    }

    #[test]
    fn fractions_are_rounded_to_microseconds() {
        assert_eq!(scaled(0.5, NANOS_PER_DAY), Some(NANOS_PER_DAY / 2));
        assert_eq!(scaled(19_000.25, NANOS_PER_DAY), Some(19_000 * NANOS_PER_DAY + NANOS_PER_DAY / 4));
        assert_eq!(scaled(1.0e9 + 0.1, 1_000_000_000).map(|n| n % 1_000_000_000), Some(100_000_000));
        assert_eq!(scaled(-0.1, NANOS_PER_DAY), Some(-NANOS_PER_DAY / 10));
        assert_eq!(scaled(f64::INFINITY, 1), None);
    }
}
