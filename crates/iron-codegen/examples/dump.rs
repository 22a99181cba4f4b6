use iron_codegen::compile::*;
use iron_codegen::*;
use iron_core::ir::ActivationKind;
use iron_core::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let functions = iron_std::functions();
    let library = functions.iter().map(|f| (f.name, *f)).collect();
    let function = functions.iter().find(|f| f.name == args[1]).unwrap();
    let mut bindings = vec![];
    let mut constants = std::collections::BTreeMap::new();
    let mut options = Options::default();
    let mut ir = false;
    for arg in &args[2..] {
        if let Some((k, v)) = arg.split_once('=') {
            if k == "pass" {
                options.until = Pass::parse(v);
                ir = true;
                continue;
            }
            if k == "without" {
                options.without.push(Pass::parse(v).unwrap());
                continue;
            }
            constants.insert(k.to_string(), v.parse().unwrap());
        } else if let Some(name) = arg.strip_prefix("w:") {
            bindings.push(Binding::Format(Format::parse(name).unwrap()));
        } else if arg == "int8" {
            bindings.push(Binding::Activation(ActivationKind::Int8));
        } else if let Some(name) = arg.strip_prefix("a:") {
            bindings.push(Binding::Activation(ActivationKind::Plain(DType::parse(name).unwrap())));
        } else {
            bindings.push(Binding::DType(DType::parse(arg).unwrap()));
        }
    }
    let instance = Instance {
        function,
        bindings,
        constants,
        schedule: "test".into(),
        threads: None,
        stages: None,
    };
    match compile_cpu(&instance, &library, &options) {
        Ok(k) => {
            if ir {
                println!("{k}")
            } else {
                match target::cpu::emit(&k, "kernel") {
                    Ok(t) => println!("{t}"),
                    Err(d) => println!("{d}"),
                }
            }
        }
        Err(d) => println!("{d}"),
    }
}
