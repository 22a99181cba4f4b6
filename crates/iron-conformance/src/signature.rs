//! Reads the signature of a kernel from its text and writes the function that calls it.

use crate::{Error, Target};

/// What a parameter of a Metal kernel receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Buffer,
    Shared,
    Program,
    Thread,
}

/// A kernel's entry as the emulator calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    /// Arguments that the caller supplies.
    pub(crate) arguments: usize,
    /// Whether shared memory is passed as the last argument (Metal).
    pub(crate) takes_shared: bool,
    /// C or C++ source of `iron_launch`, which calls the entry with pointers to arguments.
    pub(crate) trampoline: String,
}

/// Reads `text`, which must define `entry`.
pub(crate) fn read(target: Target, text: &str, entry: &str) -> Result<Signature, Error> {
    let fail = |reason: &str| Error::Signature { entry: entry.into(), reason: reason.into() };
    let head = match target {
        Target::Metal => format!("kernel void {entry}("),
        Target::Cuda => format!(" {entry}("),
    };
    let start = text.find(&head).ok_or_else(|| fail("the text does not define it"))? + head.len();
    let parameters =
        split(&text[start..]).ok_or_else(|| fail("its parameter list does not end"))?;
    match target {
        Target::Cuda => {
            let calls: Vec<String> = (0..parameters.len())
                .map(|i| format!("iron_argument<{i}>({entry}, arguments)"))
                .collect();
            let trampoline = format!(
                "template <int I, class R, class... A> __attribute__((no_sanitize(\"thread\"))) auto iron_argument(R (*)(A...), void** arguments) -> \
                 __type_pack_element<I, A...>& {{\n    return *(__type_pack_element<I, A...>*)arguments[I];\n}}\n\
                 extern \"C\" __attribute__((no_sanitize(\"thread\"))) void iron_launch(void** arguments) {{\n    {entry}({});\n}}\n",
                calls.join(", ")
            );
            Ok(Signature { arguments: parameters.len(), takes_shared: false, trampoline })
        }
        Target::Metal => {
            let slots = parameters
                .iter()
                .map(|p| metal_slot(p))
                .collect::<Result<Vec<_>, _>>()
                .map_err(|e| fail(&e))?;
            let buffers = slots.iter().filter(|slot| **slot == Slot::Buffer).count();
            let mut declared = Vec::new();
            let mut passed = Vec::new();
            let mut next = 0;
            for slot in &slots {
                let (ty, value) = match slot {
                    Slot::Buffer => {
                        next += 1;
                        ("void*", format!("arguments[{}]", next - 1))
                    }
                    Slot::Shared => ("void*", format!("arguments[{buffers}]")),
                    Slot::Program => (
                        "uint3",
                        "(uint3){iron_rt->block[0], iron_rt->block[1], iron_rt->block[2]}"
                            .to_owned(),
                    ),
                    Slot::Thread => ("unsigned", "iron_rt->thread".to_owned()),
                };
                declared.push(ty);
                passed.push(value);
            }
            let trampoline = format!(
                "#include \"iron_emulator.h\"\ntypedef unsigned uint3 __attribute__((ext_vector_type(3)));\n\
                 extern struct iron_emulator* iron_rt;\nvoid {entry}({});\n\
                 void iron_launch(void** arguments) {{\n    {entry}({});\n}}\n",
                declared.join(", "),
                passed.join(", ")
            );
            Ok(Signature {
                arguments: buffers,
                takes_shared: slots.contains(&Slot::Shared),
                trampoline,
            })
        }
    }
}

/// Splits a parameter list at its top-level commas.
fn split(text: &str) -> Option<Vec<&str>> {
    let mut depth = 0;
    let mut from = 0;
    let mut parts = Vec::new();
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' | '<' => depth += 1,
            ')' if depth == 0 => {
                if !text[from..i].trim().is_empty() {
                    parts.push(text[from..i].trim());
                }
                return Some(parts);
            }
            ')' | ']' | '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[from..i].trim());
                from = i + 1;
            }
            _ => {}
        }
    }
    None
}

/// clang knows no Metal attribute, so a misspelt one is caught here.
fn metal_slot(parameter: &str) -> Result<Slot, String> {
    let attribute = parameter
        .split_once("[[")
        .and_then(|(_, rest)| rest.split_once("]]"))
        .map(|(attribute, _)| attribute)
        .ok_or_else(|| format!("`{parameter}` has no attribute"))?;
    let name = attribute.split('(').next().unwrap_or_default();
    match name {
        "buffer" => Ok(Slot::Buffer),
        "threadgroup" => Ok(Slot::Shared),
        "threadgroup_position_in_grid" if parameter.starts_with("uint3 ") => Ok(Slot::Program),
        "thread_index_in_threadgroup" if parameter.starts_with("uint ") => Ok(Slot::Thread),
        _ => Err(format!("`{parameter}`: unknown attribute or type for it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metal_parameters_are_classified() {
        let text = "kernel void f(device const float* x [[buffer(0)]], constant f_args& args [[buffer(1)]],\n\
                    threadgroup uchar* s [[threadgroup(0)]], uint3 p [[threadgroup_position_in_grid]],\n\
                    uint t [[thread_index_in_threadgroup]]) {}";
        let signature = read(Target::Metal, text, "f").unwrap();
        assert_eq!(signature.arguments, 2);
        assert!(signature.takes_shared);
    }

    #[test]
    fn a_misspelt_attribute_is_an_error() {
        let text = "kernel void f(device const float* x [[bufer(0)]]) {}";
        assert!(matches!(read(Target::Metal, text, "f"), Err(Error::Signature { .. })));
    }
}
