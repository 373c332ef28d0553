//! The same mutations of the same files each time, without libFuzzer and its counters.

use crate::common::Target;
use crate::common::random::Random;
use std::process::ExitCode;
use std::sync::Mutex;
use std::{env, fs, panic, process};

const USAGE: &str = "usage: fuzz TARGET RUNS [FILE..]";

/// What lengths and counts of binary files are wrong by.
const NUMBERS: [u64; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// What is run, for the file that a panic leaves.
static INPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

pub fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let target = arguments.next().and_then(|name| crate::named(&name));
    let runs = arguments.next().and_then(|runs| runs.parse::<u32>().ok());
    let (Some(target), Some(runs)) = (target, runs) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut seeds = Vec::new();
    for path in arguments {
        match fs::read(&path) {
            Ok(mut seed) => {
                seed.truncate(target.longest);
                seeds.push(seed);
            }
            Err(error) => {
                eprintln!("{path}: {error}");
                return ExitCode::from(2);
            }
        }
    }
    if seeds.is_empty() {
        seeds.push(Vec::new());
    }
    end_on_panic(target);
    seeds.iter().for_each(|seed| run(target, seed.clone()));
    for number in 0..runs {
        let mut random = Random::new(number);
        let mut input = random.pick(&seeds).clone();
        for _ in 0..=random.below(3) {
            let mut bytes = Random::new(number ^ u32::MAX);
            let mut change = |input: &mut Vec<u8>, longest: usize| change(&mut bytes, input, longest);
            input = (target.mutate)(&input, target.longest, &mut random, &mut change);
        }
        run(target, input);
    }
    println!("{}: {} files and {runs} mutations", target.name, seeds.len());
    ExitCode::SUCCESS
}

fn run(target: &Target, input: Vec<u8>) {
    INPUT.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone_from(&input);
    (target.run)(&input);
}

/// Changes `bytes` in one to four places, to at most `longest` of them.
fn change(random: &mut Random, bytes: &mut Vec<u8>, longest: usize) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let longest_part = *random.pick(&[4, 64]);
        let count = 1 + random.below(longest_part);
        let end = bytes.len().min(at + count);
        let byte = random.below(256) as u8;
        match random.below(6) {
            0 => bytes[at..end].iter_mut().take(1).for_each(|changed| *changed ^= 1 << (byte % 8)),
            1 => bytes[at..end].iter_mut().take(1).for_each(|changed| *changed = byte),
            2 => {
                let number = *random.pick(&NUMBERS);
                let width = *random.pick(&[1, 2, 4, 8]);
                bytes[at..].iter_mut().zip(&number.to_le_bytes()[..width]).for_each(|(changed, byte)| *changed = *byte);
            }
            3 => drop(bytes.drain(at..end)),
            4 => {
                let part = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                drop(bytes.splice(to..to, part));
            }
            _ if random.once_in(8) => bytes.truncate(at),
            _ => drop(bytes.splice(at..at, std::iter::repeat_n(byte, count))),
        }
    }
    bytes.truncate(longest);
}

/// Also on one that is caught: the input goes to a file of its own.
fn end_on_panic(target: &'static Target) {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        print(info);
        let input = INPUT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let path = env::temp_dir().join(format!("fuzz-{}-{:08x}", target.name, crc32fast::hash(&input)));
        match fs::write(&path, &*input) {
            Ok(()) => eprintln!("{}: the input is in {}", target.name, path.display()),
            Err(error) => eprintln!("{}: {error}", path.display()),
        }
        process::abort();
    }));
}
