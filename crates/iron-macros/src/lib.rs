//! `#[kernel]`: records a Rust function as kernel syntax.
//!
//! The attribute parses a restricted Rust, reports what is outside of it at the exact place, and replaces the function
//! by constant data (`iron_core::syntax::Function`). It gives no meaning to names: that is the type checker's work.

mod attribute;
mod body;
mod faults;
mod signature;
#[cfg(test)]
mod tests;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ItemFn;

/// Records a function as a kernel: `fn rms_norm` becomes `pub static RMS_NORM: iron_core::syntax::Function`.
///
/// rustc parses the function but never compiles its body, so kernel names need no imports.
///
/// # Arguments
///
/// ```text
/// #[kernel(grid = (rows, n.div_ceil(BN)), variants(HEAD_DIM = (64, 128, 256)), native(cuda = "a.cu", cpu = "a.rs"))]
/// ```
///
/// * `grid`: programs per axis, one to three expressions over the dimensions in the parameters' shapes. A function
///   without a grid is a helper, which other kernels call by its name and which is inlined.
/// * `variants`: compile-time parameters in capitals with the values they are compiled for, ascending; the last one is
///   the generic fallback.
/// * `native`: targets (`cpu`, `cuda`, `metal`) whose text is a hand-written file.
///
/// # Grammar
///
/// ```text
/// kernel     = "fn" name [ "<" generic, ".." ">" ] "(" param, ".." ")" [ "->" result ] block
/// generic    = Name ":" ( "Float" | "Int" | "Format" | "Activation" )
/// param      = name ":" type
/// type       = ( "Tensor" | "TensorMut" ) "<" Element "," shape ">"
///            | "Quantized" "<" Format "," shape ">"
///            | ( "Activations" | "ActivationsMut" ) "<" Kind "," shape ">"
///            | "f32" | "i32" | "u32"
///            | "Value"                                   helpers only: any scalar, tile or range
/// shape      = "(" name, ".." ")"                        names of dimensions and constants in capitals
///            | "{" "(" extent, ".." ")" "}"              braces when an extent is not a plain name
/// extent     = int | name | CAPITALS | extent ( "+" | "-" | "*" | "/" ) extent
///            | extent "." ( "div_ceil" | "min" | "max" ) "(" extent ")" | "(" extent ")"
/// result     = "Value" | "(" "Value", ".." ")"           helpers only
///
/// block      = "{" statement* [ expr ] "}"
/// statement  = "let" [ "mut" ] name "=" expr ";"  |  "let" "(" [ "mut" ] name, ".." ")" "=" expr ";"
///            | name ( "=" | "+=" | "-=" | "*=" | "/=" | "%=" | "&=" | "|=" | "^=" | "<<=" | ">>=" ) expr ";"
///            | "for" name "in" ( "tiles" "(" .. ")" | "range" "(" a "," b ")" | a ".." b ) block
///            | if
///            | expr ";"
/// if         = "if" expr block [ "else" ( block | if ) ]
/// expr       = int | float | "true" | "false" | name | CAPITALS
///            | ( "-" | "!" ) expr
///            | expr ( "+" | "-" | "*" | "/" | "%" | "&" | "|" | "^" | "<<" | ">>" | "&&" | "||" ) expr
///            | expr ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) expr
///            | name [ "::<" type, ".." ">" ] "(" expr, ".." ")"
///            | expr "." name [ "::<" type, ".." ">" ] "(" expr, ".." ")"
///            | name "[" expr "]"  |  name "[" "(" expr, ".." ")" "]"      a place in a tensor
///            | "(" expr, ".." ")"  |  expr ".." expr  |  if  |  block
/// ```
///
/// Integer literals take a suffix `i32`, `u32` or `f32` (`1u32` means `1.u32()`), float literals `f32`. `&&` and `||`
/// evaluate both sides. `_` may stand for a name that is not used. Shadowing is as in Rust.
///
/// What is not here is an error that says what to write: `while`, `loop`, `break`, `return`, `match`, `?`, closures,
/// references, macros, `as`, `..=`, field access, paths, types on `let`.
#[proc_macro_attribute]
pub fn kernel(
    arguments: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    let function = match syn::parse::<syn::Item>(item) {
        Ok(syn::Item::Fn(function)) => function,
        Ok(other) => {
            let write = "put it on a `fn`";
            return faults::over(&other, "another item", "a function", write)
                .into_compile_error()
                .into();
        }
        Err(error) => return error.into_compile_error().into(),
    };
    expand(arguments.into(), &function).unwrap_or_else(|error| failed(&function, &error)).into()
}

/// The static that replaces `function`.
fn expand(arguments: TokenStream, function: &ItemFn) -> syn::Result<TokenStream> {
    let mut faults = faults::Faults::default();
    let arguments = faults.take(attribute::parse(arguments));
    let signature = faults.take(signature::parse(function, arguments.as_ref()));
    let body = faults.take(body::kernel_block(
        &function.block,
        arguments.as_ref().is_some_and(|arguments| !arguments.grid.is_empty()),
    ));
    let (arguments, signature, body) = faults.finish((arguments, signature, body))?;

    let attribute::Arguments { grid, variants, native } = arguments;
    let signature::Signature { docs, attributes, generics, params } = signature;
    let grid = grid.iter().map(body::expr).collect::<syn::Result<Vec<_>>>()?;
    let name = function.sig.ident.to_string();
    let span = body::at(function.sig.ident.span());
    Ok(declaration(
        function,
        &attributes,
        &quote! {
            __s::Function {
                name: #name,
                docs: #docs,
                span: #span,
                generics: &[#(#generics),*],
                params: &[#(#params),*],
                grid: &[#(#grid),*],
                variants: &[#(#variants),*],
                native: &[#(#native),*],
                body: #body,
            }
        },
    ))
}

/// The errors, and an empty static so that nothing else complains of a missing name.
fn failed(function: &ItemFn, error: &syn::Error) -> TokenStream {
    let errors = error.to_compile_error();
    let span = body::at(function.sig.ident.span());
    let empty = declaration(
        function,
        &[],
        &quote! {
            __s::Function {
                name: "",
                docs: "",
                span: #span,
                generics: &[],
                params: &[],
                grid: &[],
                variants: &[],
                native: &[],
                body: __s::Block { stmts: &[], tail: ::core::option::Option::None },
            }
        },
    );
    quote! { #errors #[allow(missing_docs)] #empty }
}

fn declaration(
    function: &ItemFn,
    attributes: &[&syn::Attribute],
    value: &TokenStream,
) -> TokenStream {
    let ident = &function.sig.ident;
    let name = format_ident!("{}", ident.to_string().to_uppercase(), span = ident.span());
    quote! {
        #(#attributes)*
        // Literals are the kernel's, which has no `std::f64::consts`.
        #[allow(dead_code, unreachable_pub, clippy::approx_constant)]
        pub static #name: ::iron_core::syntax::Function = {
            use ::iron_core::syntax as __s;
            const __FILE: &str = ::core::file!();
            #value
        };
    }
}
