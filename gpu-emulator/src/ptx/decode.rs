//! Instructions -> [`Program`]: operands become rows of registers, names become functions, labels become numbers.

use super::Parameter;
use super::error::Error;
use super::fault::Space;
use super::memory::{atomic, commit_copies, load_matrices, start_copy, transfer, wait_for_all_copies, wait_for_copies};
use super::operations;
use super::program::{AccessKind, Effect, Members, Op, Program, Special, Step};
use super::syntax::{Instruction, Operand, Register, Variable, Width};
use super::warp::wait_for_members;
use std::collections::HashMap;
use std::slice::from_ref;

/// Bytes between two variables of shared memory that no access may touch.
const GAP: u32 = 64;

/// A kernel that is decoded in part.
#[derive(Default)]
pub(super) struct Decoder<'a> {
    pub(super) program: Program,
    /// Values of names: offsets of parameters and addresses of shared memory.
    symbols: HashMap<&'a str, (Space, u64)>,
    /// Names of the shared memory that a launch adds.
    dynamic_shared: Vec<&'a str>,
    pub(super) uses_dynamic_shared: bool,
    labels: HashMap<&'a str, usize>,
    /// Branches, the labels that they name, and their lines.
    branches: Vec<(usize, &'a str, usize)>,
    constants: HashMap<(Width, u64), u32>,
    /// A variable of the instruction that nothing declares.
    undeclared: Option<String>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(name: &str, target: u32, dynamic_shared: &[&'a str]) -> Decoder<'a> {
        let mut decoder = Decoder {
            program: Program { name: name.to_owned(), target, ..Program::default() },
            dynamic_shared: dynamic_shared.to_owned(),
            ..Decoder::default()
        };
        // This is the guard of instructions without one.
        decoder.constant(Width::Predicate, 1);
        decoder
    }

    pub(super) fn register(&mut self, width: Width) -> Register {
        Register { width, row: self.program.registers.add(width, 0) }
    }

    pub(super) fn parameter(&mut self, variable: &Variable<'a>) {
        let offset = self.program.parameter_bytes.next_multiple_of(variable.align as usize);
        self.program.parameters.push(Parameter { offset, bytes: variable.bytes as usize });
        self.program.parameter_bytes = offset + variable.bytes as usize;
        self.symbols.insert(variable.name, (Space::Parameters, offset as u64));
    }

    pub(super) fn shared(&mut self, variable: &Variable<'a>) {
        let (align, bytes) = (variable.align as u32, variable.bytes as u32);
        let shared = &mut self.program.shared;
        shared.declared = shared.declared.next_multiple_of(align) + bytes;
        let start = shared.dynamic.next_multiple_of(align);
        shared.dynamic = (start + bytes + GAP).next_multiple_of(GAP);
        shared.gaps.push(start + bytes..shared.dynamic);
        self.symbols.insert(variable.name, (Space::Shared, start.into()));
    }

    pub(super) fn label(&mut self, name: &'a str) {
        self.labels.insert(name, self.program.ops.len());
    }

    pub(super) fn finish(self) -> Result<Program, Error> {
        let Decoder { mut program, labels, branches, .. } = self;
        // A label may stand after the last instruction, and a kernel that ends returns.
        program.ops.push(Op { text: "the end of the kernel".into(), ..Op::default() });
        for (at, label, line) in branches {
            let to = *labels.get(label).ok_or_else(|| Error::Undeclared { line, name: label.to_owned() })?;
            program.ops[at].step = Step::Branch(to);
            program.ops[to].label = true;
        }
        let accesses = program.ops.iter().map(|op| op.access).filter(|access| access.bytes > 0);
        let shared = accesses.filter(|access| matches!(access.place, Space::Shared | Space::Generic));
        program.shared.granule = shared.map(|access| access.bytes).min().unwrap_or(16);
        Ok(program)
    }

    fn constant(&mut self, width: Width, bits: u64) -> u32 {
        let registers = &mut self.program.registers;
        *self.constants.entry((width, bits)).or_insert_with(|| registers.add(width, bits))
    }

    fn source(&mut self, operand: &Operand<'_>, width: Width) -> Option<u32> {
        match operand {
            Operand::Register(register) if register.width == width => Some(register.row),
            Operand::Integer(value) => Some(self.constant(width, *value as u64)),
            Operand::Single(bits) if width == Width::B32 => Some(self.constant(width, (*bits).into())),
            Operand::Double(bits) if width == Width::B64 => Some(self.constant(width, *bits)),
            Operand::Special(name) if width == Width::B32 => self.special(name),
            Operand::Symbol(name) if matches!(width, Width::B32 | Width::B64) => {
                let (_, value) = self.symbol(name)?;
                Some(self.constant(width, value))
            }
            _ => None,
        }
    }

    fn destination(&mut self, operand: &Operand<'_>, width: Width) -> Option<u32> {
        match operand {
            Operand::Register(register) if register.width == width => Some(register.row),
            Operand::Nothing => Some(self.program.registers.add(width, 0)),
            _ => None,
        }
    }

    /// The rows of the parts of a vector, or of the operand itself.
    fn rows(&mut self, operand: &Operand<'_>, width: Width, write: bool) -> Option<Box<[u32]>> {
        let row = |part| if write { self.destination(part, width) } else { self.source(part, width) };
        parts(operand).iter().map(row).collect()
    }

    fn symbol(&mut self, name: &str) -> Option<(Space, u64)> {
        if let Some(known) = self.symbols.get(name) {
            return Some(*known);
        }
        if !self.dynamic_shared.contains(&name) {
            self.undeclared = Some(name.to_owned());
            return None;
        }
        self.uses_dynamic_shared = true;
        Some((Space::Shared, self.program.shared.dynamic.into()))
    }

    fn special(&mut self, name: &str) -> Option<u32> {
        let (what, axis) = name.split_once('.').unwrap_or((name, ""));
        let special = match (what, ["x", "y", "z"].iter().position(|known| *known == axis)) {
            ("%tid", Some(axis)) => Special::Thread(axis),
            ("%ntid", Some(axis)) => Special::Threads(axis),
            ("%ctaid", Some(axis)) => Special::Block(axis),
            ("%nctaid", Some(axis)) => Special::Blocks(axis),
            ("%laneid", None) => Special::Lane,
            _ => return None,
        };
        let known = self.program.specials.iter().find(|known| known.1 == special);
        Some(known.map(|known| known.0).unwrap_or_else(|| {
            let row = self.program.registers.add(Width::B32, 0);
            self.program.specials.push((row, special));
            row
        }))
    }

    pub(super) fn instruction(&mut self, instruction: Instruction<'a>) -> Result<(), Error> {
        let line = instruction.line;
        self.decode(&instruction).ok_or_else(|| match self.undeclared.take() {
            Some(name) => Error::Undeclared { line, name },
            None => Error::Unsupported { line, text: instruction.text },
        })
    }

    /// Returns `None` for what is not emulated, or for a variable that is [`undeclared`](Self::undeclared).
    fn decode(&mut self, instruction: &Instruction<'a>) -> Option<()> {
        let mut op = Op { line: instruction.line, text: instruction.text.as_str().into(), ..Op::default() };
        if let Some((guard, negated)) = instruction.guard {
            (op.guard, op.negated) = (guard.row, negated);
        }
        let name: Vec<&str> = instruction.name.split('.').collect();
        match (name.as_slice(), instruction.operands.as_slice()) {
            (["bra"] | ["bra", "uni"], [Operand::Symbol(label)]) => {
                self.branches.push((self.program.ops.len(), label, instruction.line));
            }
            (["ret"] | ["exit"], []) => op.step = Step::Return,
            (["bar", "sync"] | ["barrier", "sync", "aligned"], [Operand::Integer(0)]) => op.step = Step::Barrier,
            // Blocks run one after the other, and their writes are visible at once.
            (["membar", "gl"] | ["fence", "sc" | "acq_rel", "gpu"], []) => return Some(()),
            (["bar", "warp", "sync"], [members]) => {
                op.step = Step::Collective(wait_for_members, Members::Named(self.source(members, Width::B32)?));
            }
            (["shfl", "sync", kind, "b32"], [d, a, b, c, members]) => {
                let (d, found) = match d {
                    Operand::Pair(d, found) => (&**d, &**found),
                    d => (d, &Operand::Nothing),
                };
                op.d = self.destination(d, Width::B32)?;
                op.rows = Box::new([self.destination(found, Width::Predicate)?]);
                (op.a, op.b) = (self.source(a, Width::B32)?, self.source(b, Width::B32)?);
                op.c = self.source(c, Width::B32)?;
                let exchange = operations::shuffle(kind)?;
                op.step = Step::Collective(exchange, Members::Named(self.source(members, Width::B32)?));
            }
            (["vote", "sync", kind, "pred" | "b32"], [d, a, members]) => {
                let exchange = operations::vote(kind)?;
                let width = if *kind == "ballot" { Width::B32 } else { Width::Predicate };
                (op.d, op.a) = (self.destination(d, width)?, self.source(a, Width::Predicate)?);
                op.step = Step::Collective(exchange, Members::Named(self.source(members, Width::B32)?));
            }
            (["mma", ..], operands @ [_, _, _, _]) => {
                let (exchange, lengths) = operations::multiply(&name)?;
                let mut rows = Vec::new();
                for (index, (operand, length)) in operands.iter().zip(lengths).enumerate() {
                    let vector =
                        matches!(operand, Operand::Vector(parts) if parts.len() == length).then_some(operand)?;
                    rows.extend(self.rows(vector, Width::B32, index == 0)?);
                }
                op.rows = rows.into();
                op.step = Step::Collective(exchange, Members::All);
            }
            (["ldmatrix", rest @ ..], [to, address]) if self.program.target >= 75 => {
                self.matrices(&mut op, rest, to, address)?;
            }
            (["cp", "async", rest @ ..], operands) if self.program.target >= 80 => {
                self.copy(&mut op, rest, operands)?
            }
            (["ld", rest @ ..], [values, address]) => self.transfer(&mut op, rest, values, address, false)?,
            (["st", rest @ ..], [address, values]) => self.transfer(&mut op, rest, values, address, true)?,
            // `red` has no destination.
            (["atom" | "red", "global", rest @ ..], [d @ .., address, value]) if d.len() <= 1 => {
                let (step, width, bytes) = atomic(rest)?;
                op.d = self.destination(d.first().unwrap_or(&Operand::Nothing), width)?;
                op.rows = Box::new([self.source(value, width)?]);
                op.step = Step::Effect(step);
                self.access(&mut op, address, Space::Global, bytes, true)?;
            }
            (["mov", _], [vector @ Operand::Vector(parts), from]) => {
                let whole = width(from)?;
                let (_, unpack, part) = operations::pack_and_unpack(whole, parts.len())?;
                (op.a, op.rows) = (self.source(from, whole)?, self.rows(vector, part, true)?);
                op.step = Step::Compute(unpack);
            }
            (["mov", _], [to, vector @ Operand::Vector(parts)]) => {
                let whole = width(to)?;
                let (pack, _, part) = operations::pack_and_unpack(whole, parts.len())?;
                (op.d, op.rows) = (self.destination(to, whole)?, self.rows(vector, part, false)?);
                op.step = Step::Compute(pack);
            }
            (_, [d, sources @ ..]) => {
                let widths: Vec<_> = instruction.operands.iter().map(width).collect();
                let operation = operations::find(&name, &widths)?;
                if operation.from.len() != sources.len() {
                    return None;
                }
                op.d = self.destination(d, operation.to)?;
                let mut rows = Vec::new();
                for (source, width) in sources.iter().zip(&operation.from) {
                    rows.push(self.source(source, *width)?);
                }
                let at = |index: usize| rows.get(index).copied().unwrap_or(0);
                (op.a, op.b, op.c) = (at(0), at(1), at(2));
                op.rows = rows.get(3..).unwrap_or_default().into();
                op.step = Step::Compute(operation.compute);
            }
            _ => return None,
        }
        self.program.ops.push(op);
        Some(())
    }

    fn matrices(&mut self, op: &mut Op, name: &[&str], to: &Operand<'_>, address: &Operand<'_>) -> Option<()> {
        let ["sync", "aligned", "m8n8", count, trans @ .., "shared" | "shared::cta", "b16"] = name else { return None };
        let step: Effect = match trans {
            [] => load_matrices::<false>,
            ["trans"] => load_matrices::<true>,
            _ => return None,
        };
        let Operand::Vector(parts) = to else { return None };
        if !matches!((*count, parts.len()), ("x1", 1) | ("x2", 2) | ("x4", 4)) {
            return None;
        }
        op.rows = self.rows(to, Width::B32, true)?;
        op.step = Step::Collective(step, Members::All);
        self.access(op, address, Space::Shared, 16, false)
    }

    fn copy(&mut self, op: &mut Op, name: &[&str], operands: &[Operand<'_>]) -> Option<()> {
        match (name, operands) {
            (["commit_group"], []) => op.step = Step::Effect(commit_copies),
            (["wait_group"], [Operand::Integer(left)]) => self.wait(op, wait_for_copies, *left),
            (["wait_all"], []) => self.wait(op, wait_for_all_copies, 0),
            (
                [cache, "shared" | "shared::cta", "global", rest @ ..],
                [to, from, bytes @ Operand::Integer(count), read @ ..],
            ) if rest.iter().all(|word| word.starts_with("L2::")) && read.len() <= 1 => {
                if !matches!((*cache, *count), ("ca", 4 | 8 | 16) | ("cg", 16)) {
                    return None;
                }
                // The source comes first: `access` puts its access into the place of the destination.
                self.access(op, from, Space::Global, *count as u32, false)?;
                (op.b, op.from) = (op.a, op.access);
                op.rows = self.rows(read.first().unwrap_or(bytes), Width::B32, false)?;
                op.step = Step::Effect(start_copy);
                self.access(op, to, Space::Shared, *count as u32, true)?;
            }
            _ => return None,
        }
        Some(())
    }

    /// Waits for all groups but the last `left`, and checks the sources of the copies again.
    fn wait(&mut self, op: &mut Op, step: Effect, left: i64) {
        op.rows = Box::new([self.constant(Width::B32, left as u64)]);
        op.step = Step::Effect(step);
        op.access = AccessKind { number: self.program.accesses, place: Space::Global, ..AccessKind::default() };
        self.program.accesses += 1;
    }

    fn transfer(
        &mut self,
        op: &mut Op,
        name: &[&str],
        values: &Operand<'_>,
        address: &Operand<'_>,
        write: bool,
    ) -> Option<()> {
        let (kind, modifiers) = name.split_last()?;
        let (mut place, mut count) = (Space::Generic, 1);
        for modifier in modifiers {
            match *modifier {
                "global" => place = Space::Global,
                "shared" | "shared::cta" => place = Space::Shared,
                "param" => place = Space::Parameters,
                "v2" => count = 2,
                "v4" => count = 4,
                // Caches change no result.
                "nc" | "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "weak" => {}
                _ if modifier.starts_with("L1::") || modifier.starts_with("L2::") => {}
                _ => return None,
            }
        }
        if parts(values).len() != count {
            return None;
        }
        let width = parts(values).iter().find_map(width).or_else(|| Width::of_type(kind))?;
        let (step, element) = transfer(kind, width, write)?;
        op.rows = self.rows(values, width, !write)?;
        op.step = Step::Effect(step);
        self.access(op, address, place, element * count as u32, write)
    }

    /// Describes the instruction's access to `bytes` bytes.
    fn access(&mut self, op: &mut Op, address: &Operand<'_>, place: Space, bytes: u32, write: bool) -> Option<()> {
        let Operand::Address(base, offset) = address else { return None };
        // A name stands for an address in its own space.
        if let Operand::Symbol(name) = &**base
            && self.symbol(name)?.0 != place
        {
            return None;
        }
        let wide = width(base) != Some(Width::B32);
        op.a = self.source(base, if wide { Width::B64 } else { Width::B32 })?;
        op.access = AccessKind { write, number: self.program.accesses, offset: *offset, wide, bytes, place };
        self.program.accesses += 1;
        Some(())
    }
}

/// The width of a register; `None` for other operands.
fn width(operand: &Operand<'_>) -> Option<Width> {
    if let Operand::Register(register) = operand { Some(register.width) } else { None }
}

/// The parts of a vector; any other operand is its only part.
fn parts<'a, 'b>(operand: &'b Operand<'a>) -> &'b [Operand<'a>] {
    match operand {
        Operand::Vector(parts) => parts,
        operand => from_ref(operand),
    }
}
