//! [`KernelText`] -> [`Program`]: operands become rows of registers, names become functions, labels become numbers.

use super::Parameter;
use super::error::Error;
use super::memory::{atomic, commit_copies, load_matrices, start_copy, transfer, wait_for_all_copies, wait_for_copies};
use super::operations::{self, Shuffle};
use super::program::{AccessKind, Members, Op, Place, Program, Reach, SharedLayout, Special, Step};
use super::registers::{LANES, Registers};
use super::syntax::{Instruction, Item, KernelText, Operand, Width};
use std::collections::HashMap;

/// Bytes between two variables of shared memory that no access may touch.
const GAP: u32 = 64;

/// # Errors
/// `Unsupported` for an instruction that is not emulated, `Undeclared` for a name.
pub(super) fn decode(kernel: &KernelText, target: u32) -> Result<Program, Error> {
    let mut decoder = Decoder::new(kernel, target);
    for item in &kernel.body {
        match item {
            Item::Label(name) => {
                decoder.labels.insert(name, decoder.ops.len());
            }
            Item::Instruction(instruction) => decoder.instruction(instruction)?,
        }
    }
    // A label may stand behind the last instruction, and a kernel that ends returns.
    let end = Op { step: Step::Return, text: "the end of the kernel".into(), ..decoder.blank() };
    decoder.ops.push(end);
    for (at, label, line) in std::mem::take(&mut decoder.branches) {
        let to = *decoder.labels.get(label).ok_or_else(|| Error::Undeclared { line, name: label.to_owned() })?;
        decoder.ops[at].step = Step::Branch(to);
        decoder.ops[to].label = true;
    }
    let granule = decoder.ops.iter().filter(|op| op.access.bytes > 0);
    let granule = granule.filter(|op| matches!(op.access.place, Place::Shared | Place::Generic));
    decoder.shared.granule = granule.map(|op| op.access.bytes).min().unwrap_or(16);
    Ok(Program {
        name: kernel.name.clone(),
        target,
        parameters: decoder.parameters,
        parameter_bytes: decoder.parameter_bytes,
        max_threads: kernel.max_threads,
        shared: decoder.shared,
        ops: decoder.ops,
        registers: decoder.registers,
        specials: decoder.specials,
        accesses: decoder.accesses,
    })
}

struct Decoder<'a> {
    kernel: &'a KernelText,
    target: u32,
    parameters: Vec<Parameter>,
    parameter_bytes: usize,
    shared: SharedLayout,
    /// Values of names: offsets of parameters and addresses of shared memory.
    symbols: HashMap<&'a str, (Place, u64)>,
    labels: HashMap<&'a str, usize>,
    /// Branches, the labels that they name, and their lines.
    branches: Vec<(usize, &'a str, usize)>,
    registers: Registers,
    /// The row of each register.
    rows: Vec<u32>,
    constants: HashMap<(u8, u64), u32>,
    specials: Vec<(u32, Special)>,
    ops: Vec<Op>,
    accesses: usize,
}

impl<'a> Decoder<'a> {
    fn new(kernel: &'a KernelText, target: u32) -> Decoder<'a> {
        let mut decoder = Decoder {
            kernel,
            target,
            parameters: Vec::new(),
            parameter_bytes: 0,
            shared: SharedLayout::default(),
            symbols: HashMap::new(),
            labels: HashMap::new(),
            branches: Vec::new(),
            registers: Registers::default(),
            rows: Vec::new(),
            constants: HashMap::new(),
            specials: Vec::new(),
            ops: Vec::new(),
            accesses: 0,
        };
        // The guard of instructions without one.
        decoder.constant(Width::Predicate, 1);
        for width in &kernel.registers {
            let row = decoder.new_row(*width, 0);
            decoder.rows.push(row);
        }
        for parameter in &kernel.parameters {
            let offset = decoder.parameter_bytes.next_multiple_of(parameter.align.max(1) as usize);
            decoder.parameters.push(Parameter { offset, bytes: parameter.bytes as usize });
            decoder.parameter_bytes = offset + parameter.bytes as usize;
            decoder.symbols.insert(&parameter.name, (Place::Parameters, offset as u64));
        }
        let mut end = 0u32;
        for variable in &kernel.shared {
            let (align, bytes) = (variable.align.max(1) as u32, variable.bytes as u32);
            decoder.shared.declared = decoder.shared.declared.next_multiple_of(align) + bytes;
            let start = end.next_multiple_of(align);
            decoder.symbols.insert(&variable.name, (Place::Shared, start.into()));
            end = (start + bytes + GAP).next_multiple_of(GAP);
            decoder.shared.gaps.push(start + bytes..end);
        }
        decoder.shared.dynamic = end;
        for name in &kernel.dynamic_shared {
            decoder.symbols.insert(name, (Place::Shared, end.into()));
        }
        decoder
    }

    /// A row whose lanes all have these bits.
    fn new_row(&mut self, width: Width, bits: u64) -> u32 {
        let registers = &mut self.registers;
        let len = match width {
            Width::Predicate => {
                registers.predicates.push(if bits == 0 { 0 } else { !0 });
                registers.predicates.len()
            }
            Width::B16 => {
                registers.b16.push([bits as u16; LANES]);
                registers.b16.len()
            }
            Width::B32 => {
                registers.b32.push([bits as u32; LANES]);
                registers.b32.len()
            }
            Width::B64 => {
                registers.b64.push([bits; LANES]);
                registers.b64.len()
            }
        };
        len as u32 - 1
    }

    fn constant(&mut self, width: Width, bits: u64) -> u32 {
        let (kind, bits) = match width {
            Width::Predicate => (1, u64::from(bits != 0)),
            Width::B16 => (16, bits & 0xffff),
            Width::B32 => (32, bits & 0xffff_ffff),
            Width::B64 => (64, bits),
        };
        if let Some(row) = self.constants.get(&(kind, bits)) {
            return *row;
        }
        let row = self.new_row(width, bits);
        self.constants.insert((kind, bits), row);
        row
    }

    fn blank(&self) -> Op {
        Op {
            step: Step::Return,
            guard: 0,
            negated: false,
            label: false,
            d: 0,
            a: 0,
            b: 0,
            c: 0,
            rows: Box::default(),
            access: AccessKind::default(),
            from: AccessKind::default(),
            line: 0,
            text: Box::default(),
        }
    }

    /// The row of a source.
    fn source(&mut self, of: &Instruction, operand: &Operand, width: Width) -> Result<u32, Error> {
        match operand {
            Operand::Register(register) if self.kernel.registers[*register] == width => Ok(self.rows[*register]),
            Operand::Integer(value) => Ok(self.constant(width, *value as u64)),
            Operand::Single(bits) if width == Width::B32 => Ok(self.constant(width, (*bits).into())),
            Operand::Double(bits) if width == Width::B64 => Ok(self.constant(width, *bits)),
            Operand::Special(name) if width == Width::B32 => self.special(of, name),
            Operand::Symbol(name) if matches!(width, Width::B32 | Width::B64) => {
                let (_, value) = self.symbol(of, name)?;
                Ok(self.constant(width, value))
            }
            _ => Err(unsupported(of)),
        }
    }

    /// The row of a destination.
    fn destination(&mut self, of: &Instruction, operand: &Operand, width: Width) -> Result<u32, Error> {
        match operand {
            Operand::Register(register) if self.kernel.registers[*register] == width => Ok(self.rows[*register]),
            Operand::Nothing => Ok(self.new_row(width, 0)),
            _ => Err(unsupported(of)),
        }
    }

    fn symbol(&self, of: &Instruction, name: &str) -> Result<(Place, u64), Error> {
        let found = self.symbols.get(name).copied();
        found.ok_or_else(|| Error::Undeclared { line: of.line, name: name.to_owned() })
    }

    fn special(&mut self, of: &Instruction, name: &str) -> Result<u32, Error> {
        let axis = match name.rsplit('.').next() {
            Some("x") => 0,
            Some("y") => 1,
            _ => 2,
        };
        let special = match name {
            "%tid.x" | "%tid.y" | "%tid.z" => Special::Thread(axis),
            "%ntid.x" | "%ntid.y" | "%ntid.z" => Special::Threads(axis),
            "%ctaid.x" | "%ctaid.y" | "%ctaid.z" => Special::Block(axis),
            "%nctaid.x" | "%nctaid.y" | "%nctaid.z" => Special::Blocks(axis),
            "%laneid" => Special::Lane,
            _ => return Err(unsupported(of)),
        };
        if let Some((row, _)) = self.specials.iter().find(|known| known.1 == special) {
            return Ok(*row);
        }
        let row = self.new_row(Width::B32, 0);
        self.specials.push((row, special));
        Ok(row)
    }

    fn width(&self, operand: &Operand) -> Option<Width> {
        match operand {
            Operand::Register(register) => Some(self.kernel.registers[*register]),
            _ => None,
        }
    }

    fn instruction(&mut self, of: &'a Instruction) -> Result<(), Error> {
        let mut op = Op { line: of.line, text: of.text.as_str().into(), ..self.blank() };
        if let Some(guard) = of.guard {
            if self.kernel.registers[guard.register] != Width::Predicate {
                return Err(unsupported(of));
            }
            (op.guard, op.negated) = (self.rows[guard.register], guard.negated);
        }
        let name: Vec<&str> = of.name.split('.').collect();
        match (name.as_slice(), of.operands.as_slice()) {
            (["bra"] | ["bra", "uni"], [Operand::Symbol(label)]) => {
                self.branches.push((self.ops.len(), label, of.line));
            }
            (["ret"] | ["exit"], []) => op.step = Step::Return,
            (["bar", "sync"] | ["barrier", "sync", "aligned"], [Operand::Integer(0)]) => op.step = Step::Barrier,
            // Blocks run one after the other, and what they write is there at once.
            (["membar", "gl"] | ["fence", "sc" | "acq_rel", "gpu"], []) => return Ok(()),
            (["bar", "warp", "sync"], [members]) => {
                op.step = Step::WarpBarrier(Members::Named(self.source(of, members, Width::B32)?));
            }
            (["shfl", "sync", kind, "b32"], [d, a, b, c, members]) => {
                let (d, found) = match d {
                    Operand::Pair(d, found) => (&**d, &**found),
                    d => (d, &Operand::Nothing),
                };
                op.d = self.destination(of, d, Width::B32)?;
                op.rows = Box::new([self.destination(of, found, Width::Predicate)?]);
                (op.a, op.b) = (self.source(of, a, Width::B32)?, self.source(of, b, Width::B32)?);
                op.c = self.source(of, c, Width::B32)?;
                let kind = match *kind {
                    "up" => Shuffle::Up,
                    "down" => Shuffle::Down,
                    "bfly" => Shuffle::Butterfly,
                    "idx" => Shuffle::Index,
                    _ => return Err(unsupported(of)),
                };
                let members = Members::Named(self.source(of, members, Width::B32)?);
                op.step = Step::Together(operations::shuffle(kind), members);
            }
            (["vote", "sync", kind, "pred" | "b32"], [d, a, members]) => {
                let exchange = operations::vote(kind).ok_or_else(|| unsupported(of))?;
                let width = if *kind == "ballot" { Width::B32 } else { Width::Predicate };
                (op.d, op.a) = (self.destination(of, d, width)?, self.source(of, a, Width::Predicate)?);
                op.step = Step::Together(exchange, Members::Named(self.source(of, members, Width::B32)?));
            }
            (["mma", ..], [d, a, b, c]) => self.product(of, &mut op, &name, [d, a, b, c])?,
            (["ldmatrix", ..], [to, address]) if self.target >= 75 => self.matrices(of, &mut op, &name, to, address)?,
            (["cp", "async", rest @ ..], operands) if self.target >= 80 => self.copy(of, &mut op, rest, operands)?,
            (["ld" | "st", modifiers @ .., kind], [first, second]) => {
                let write = name[0] == "st";
                let (values, address) = if write { (second, first) } else { (first, second) };
                self.transfer(of, &mut op, modifiers, kind, values, address, write)?;
            }
            (["atom", "global", rest @ ..], [d, address, value]) => {
                self.replace(of, &mut op, rest, d, address, value)?;
            }
            (["red", "global", rest @ ..], [address, value]) => {
                self.replace(of, &mut op, rest, &Operand::Nothing, address, value)?;
            }
            (["mov", _], [Operand::Vector(parts), from]) => return self.unpack(of, op, parts, from),
            (["mov", _], [to, Operand::Vector(parts)]) => return self.pack(of, op, parts, to),
            (_, [d, sources @ ..]) => {
                let widths: Vec<_> = of.operands.iter().map(|operand| self.width(operand)).collect();
                let operation = operations::find(&name, &widths).ok_or_else(|| unsupported(of))?;
                if operation.from.len() != sources.len() {
                    return Err(unsupported(of));
                }
                op.d = self.destination(of, d, operation.to)?;
                let mut rows = Vec::new();
                for (source, width) in sources.iter().zip(&operation.from) {
                    rows.push(self.source(of, source, *width)?);
                }
                let at = |index: usize| rows.get(index).copied().unwrap_or(0);
                (op.a, op.b, op.c) = (at(0), at(1), at(2));
                op.rows = rows.get(3..).unwrap_or_default().into();
                op.step = Step::Compute(operation.compute);
            }
            _ => return Err(unsupported(of)),
        }
        self.ops.push(op);
        Ok(())
    }

    fn product(&mut self, of: &Instruction, op: &mut Op, name: &[&str], operands: [&Operand; 4]) -> Result<(), Error> {
        let (exchange, fragments) = operations::multiply(name).ok_or_else(|| unsupported(of))?;
        let lengths = [fragments.d, fragments.a, fragments.b, fragments.d];
        let mut rows = Vec::new();
        for (index, (operand, length)) in operands.into_iter().zip(lengths).enumerate() {
            let Operand::Vector(parts) = operand else { return Err(unsupported(of)) };
            if parts.len() != length {
                return Err(unsupported(of));
            }
            for part in parts {
                let destination = index == 0;
                rows.push(if destination {
                    self.destination(of, part, Width::B32)?
                } else {
                    self.source(of, part, Width::B32)?
                });
            }
        }
        op.rows = rows.into();
        op.step = Step::Together(exchange, Members::All);
        Ok(())
    }

    fn matrices(
        &mut self,
        of: &Instruction,
        op: &mut Op,
        name: &[&str],
        to: &Operand,
        address: &Operand,
    ) -> Result<(), Error> {
        let ["ldmatrix", "sync", "aligned", "m8n8", count, rest @ ..] = name else { return Err(unsupported(of)) };
        let step: Reach = match rest {
            ["shared" | "shared::cta", "b16"] => load_matrices::<false>,
            ["trans", "shared" | "shared::cta", "b16"] => load_matrices::<true>,
            _ => return Err(unsupported(of)),
        };
        let Operand::Vector(parts) = to else { return Err(unsupported(of)) };
        if !matches!((*count, parts.len()), ("x1", 1) | ("x2", 2) | ("x4", 4)) {
            return Err(unsupported(of));
        }
        let rows: Result<Vec<u32>, Error> = parts.iter().map(|part| self.destination(of, part, Width::B32)).collect();
        op.rows = rows?.into();
        op.step = Step::Together(step, Members::All);
        self.access(of, op, address, Place::Shared, 16, false)
    }

    /// `cp.async`, without these words.
    fn copy(&mut self, of: &Instruction, op: &mut Op, name: &[&str], operands: &[Operand]) -> Result<(), Error> {
        match (name, operands) {
            (["commit_group"], []) => op.step = Step::Reach(commit_copies),
            (["wait_group"], [left @ Operand::Integer(_)]) => {
                op.rows = Box::new([self.source(of, left, Width::B32)?]);
                op.step = Step::Reach(wait_for_copies);
                self.wait(op);
            }
            (["wait_all"], []) => {
                op.rows = Box::new([self.constant(Width::B32, 0)]);
                op.step = Step::Reach(wait_for_all_copies);
                self.wait(op);
            }
            (
                [cache, "shared" | "shared::cta", "global", rest @ ..],
                [to, from, bytes @ Operand::Integer(count), read @ ..],
            ) if rest.iter().all(|word| word.starts_with("L2::")) && read.len() <= 1 => {
                if !matches!((*cache, *count), ("ca", 4 | 8 | 16) | ("cg", 16)) {
                    return Err(unsupported(of));
                }
                // The source first: `access` puts what it finds into the place of the destination.
                self.access(of, op, from, Place::Global, *count as u32, false)?;
                (op.b, op.from) = (op.a, op.access);
                op.rows = Box::new([self.source(of, read.first().unwrap_or(bytes), Width::B32)?]);
                op.step = Step::Reach(start_copy);
                self.access(of, op, to, Place::Shared, *count as u32, true)?;
            }
            _ => return Err(unsupported(of)),
        }
        Ok(())
    }

    /// The instruction looks at what was copied once more.
    fn wait(&mut self, op: &mut Op) {
        op.access = AccessKind { number: self.accesses, place: Place::Global, ..AccessKind::default() };
        self.accesses += 1;
    }

    #[allow(clippy::too_many_arguments)] // an instruction's parts
    fn transfer(
        &mut self,
        of: &Instruction,
        op: &mut Op,
        modifiers: &[&str],
        kind: &str,
        values: &Operand,
        address: &Operand,
        write: bool,
    ) -> Result<(), Error> {
        let (mut place, mut count) = (Place::Generic, 1);
        for modifier in modifiers {
            match *modifier {
                "global" => place = Place::Global,
                "shared" | "shared::cta" => place = Place::Shared,
                "param" => place = Place::Parameters,
                "v2" => count = 2,
                "v4" => count = 4,
                // Caches change no result.
                "nc" | "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "weak" => {}
                _ if modifier.starts_with("L1::") || modifier.starts_with("L2::") => {}
                _ => return Err(unsupported(of)),
            }
        }
        let values = match values {
            Operand::Vector(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        let width = values.iter().find_map(|value| self.width(value)).or_else(|| Width::of_type(kind));
        let (step, element) = width.and_then(|width| transfer(kind, width, write)).ok_or_else(|| unsupported(of))?;
        if values.len() != count {
            return Err(unsupported(of));
        }
        let mut rows = Vec::new();
        for value in values {
            let width = width.ok_or_else(|| unsupported(of))?;
            rows.push(if write { self.source(of, value, width)? } else { self.destination(of, value, width)? });
        }
        op.rows = rows.into();
        op.step = Step::Reach(step);
        self.access(of, op, address, place, element * count as u32, write)
    }

    /// `d` = what is at an address, where a result takes its place.
    fn replace(
        &mut self,
        of: &Instruction,
        op: &mut Op,
        name: &[&str],
        d: &Operand,
        address: &Operand,
        value: &Operand,
    ) -> Result<(), Error> {
        let (step, width, bytes) = atomic(name).ok_or_else(|| unsupported(of))?;
        op.d = self.destination(of, d, width)?;
        op.rows = Box::new([self.source(of, value, width)?]);
        op.step = Step::Reach(step);
        self.access(of, op, address, Place::Global, bytes, true)
    }

    /// The instruction's way to `bytes` bytes.
    fn access(
        &mut self,
        of: &Instruction,
        op: &mut Op,
        address: &Operand,
        place: Place,
        bytes: u32,
        write: bool,
    ) -> Result<(), Error> {
        let Operand::Address(base, offset) = address else { return Err(unsupported(of)) };
        // A name stands for an address in its own space.
        if let Operand::Symbol(name) = &**base
            && self.symbol(of, name)?.0 != place
        {
            return Err(unsupported(of));
        }
        let wide = self.width(base) != Some(Width::B32);
        op.a = self.source(of, base, if wide { Width::B64 } else { Width::B32 })?;
        op.access = AccessKind { write, number: self.accesses, offset: *offset, wide, bytes, place };
        self.accesses += 1;
        Ok(())
    }

    /// `mov {a, b}, d`: the lowest bits first.
    fn unpack(&mut self, of: &'a Instruction, op: Op, parts: &[Operand], from: &Operand) -> Result<(), Error> {
        let (whole, part) = self.parts(of, parts, from)?;
        let a = self.source(of, from, whole)?;
        let mut rows = Vec::new();
        for operand in parts {
            rows.push(self.destination(of, operand, part)?);
        }
        let step = operations::unpack(whole, part).ok_or_else(|| unsupported(of))?;
        self.ops.push(Op { a, rows: rows.into(), step: Step::Compute(step), ..op });
        Ok(())
    }

    /// `mov d, {a, b}`
    fn pack(&mut self, of: &'a Instruction, op: Op, parts: &[Operand], to: &Operand) -> Result<(), Error> {
        let (whole, part) = self.parts(of, parts, to)?;
        let d = self.destination(of, to, whole)?;
        let mut rows = Vec::new();
        for operand in parts {
            rows.push(self.source(of, operand, part)?);
        }
        let step = operations::pack(whole, part).ok_or_else(|| unsupported(of))?;
        self.ops.push(Op { d, rows: rows.into(), step: Step::Compute(step), ..op });
        Ok(())
    }

    /// The widths of a register and of its parts.
    fn parts(&self, of: &Instruction, parts: &[Operand], whole: &Operand) -> Result<(Width, Width), Error> {
        match (self.width(whole), parts.len()) {
            (Some(Width::B32), 2) => Ok((Width::B32, Width::B16)),
            (Some(Width::B64), 2) => Ok((Width::B64, Width::B32)),
            (Some(Width::B64), 4) => Ok((Width::B64, Width::B16)),
            _ => Err(unsupported(of)),
        }
    }
}

fn unsupported(of: &Instruction) -> Error {
    Error::Unsupported { line: of.line, text: of.text.clone() }
}
