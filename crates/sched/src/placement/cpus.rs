//! Lists of processors in the format of `/sys` and of command lines.

use std::fmt;

/// Bound on processor numbers, far above the kernel's largest.
const MOST: usize = 65_536;

/// Error: a list that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCpuList {
    /// The invalid part.
    pub part: String,
}

impl fmt::Display for BadCpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no processor or range of processors: write a list like `0-3,8`, with numbers below \
                {MOST}",
            self.part
        )
    }
}

impl std::error::Error for BadCpuList {}

/// Parses a list of processors such as `0-3,8`: ascending, each once. An empty list is allowed.
///
/// # Errors
/// [`BadCpuList`] with the first invalid part.
///
/// ```
/// use manylane_sched::parse_cpus;
/// assert_eq!(parse_cpus("8,0-2\n")?, [0, 1, 2, 8]);
/// let error = parse_cpus("0,7-3").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "`7-3` is no processor or range of processors: write a list like `0-3,8`, with numbers below 65536"
/// );
/// # Ok::<_, manylane_sched::BadCpuList>(())
/// ```
pub fn parse_cpus(list: &str) -> Result<Vec<usize>, BadCpuList> {
    let mut cpus = Vec::new();
    let list = list.trim();
    if list.is_empty() {
        return Ok(cpus);
    }
    for part in list.split(',') {
        let bad = || BadCpuList { part: part.to_owned() };
        let number = |word: &str| word.trim().parse::<usize>().ok().filter(|cpu| *cpu < MOST).ok_or_else(bad);
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last {
            return Err(bad());
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_what_is_wrong_is_named() {
        let accepted: [(&str, &[usize]); 6] = [
            ("", &[]),
            ("5", &[5]),
            ("0-3", &[0, 1, 2, 3]),
            (" 1 , 3-4\n", &[1, 3, 4]),
            ("2,2,1-2", &[1, 2]),
            ("65535", &[65_535]),
        ];
        for (list, cpus) in accepted {
            assert_eq!(parse_cpus(list).as_deref(), Ok(cpus), "{list:?}");
        }
        for (list, part) in
            [("x", "x"), ("1,,2", ""), ("3-1", "3-1"), ("0,1-", "1-"), ("65536", "65536"), ("-1", "-1")]
        {
            assert_eq!(parse_cpus(list), Err(BadCpuList { part: part.to_owned() }), "{list:?}");
        }
    }
}
