//! Statements and expressions, from Rust's syntax tree to `iron_core::syntax` constants.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{
    BinOp, Block, Expr, ExprBinary, ExprForLoop, ExprIf, ExprLit, GenericArgument, Ident, Lit,
    LitInt, Local, Pat, Result, Stmt, Type, UnOp,
};

use crate::faults::{self, collect};

/// Whether a name is spelled as a compile-time constant.
pub(crate) fn is_constant(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// The `Span` constant of a position.
pub(crate) fn at(span: Span) -> TokenStream {
    let start = span.start();
    let (line, column) = (start.line as u32, start.column as u32 + 1);
    quote! { ::iron_core::Span { file: __FILE, line: #line, column: #column } }
}

fn make(kind: &TokenStream, span: Span) -> TokenStream {
    let span = at(span);
    quote! { __s::Expr { kind: __s::ExprKind::#kind, span: #span } }
}

/// The body of a function. A kernel has no value, so its last expression is a statement.
pub(crate) fn kernel_block(source: &Block, is_kernel: bool) -> Result<TokenStream> {
    lower_block(source, !is_kernel)
}

fn block(source: &Block) -> Result<TokenStream> {
    lower_block(source, true)
}

fn lower_block(source: &Block, has_value: bool) -> Result<TokenStream> {
    let (last, stmts) = match source.stmts.as_slice() {
        // `for` has no value, and neither has `if` without `else`.
        [rest @ .., Stmt::Expr(last, None)] if has_value && !is_statement(last) => {
            (Some(last), rest)
        }
        all => (None, all),
    };
    let mut faults = faults::Faults::default();
    let stmts = faults.take(collect(stmts.iter().map(stmt)));
    let tail = faults.take(last.map(expr).transpose());
    let (stmts, tail) = faults.finish((stmts, tail))?;
    let tail = if let Some(tail) = tail {
        quote! { ::core::option::Option::Some(&#tail) }
    } else {
        quote! { ::core::option::Option::None }
    };
    Ok(quote! { __s::Block { stmts: &[#(#stmts),*], tail: #tail } })
}

fn is_statement(source: &Expr) -> bool {
    match source {
        Expr::ForLoop(_) | Expr::Assign(_) => true,
        Expr::If(branch) => branch.else_branch.is_none(),
        Expr::Binary(binary) => compound(&binary.op).is_some(),
        _ => false,
    }
}

fn stmt(source: &Stmt) -> Result<TokenStream> {
    let (kind, span) = match source {
        Stmt::Local(local) => (let_stmt(local)?, local.let_token.span),
        Stmt::Expr(Expr::ForLoop(source), _) => (for_stmt(source)?, source.for_token.span),
        Stmt::Expr(Expr::Assign(source), _) => {
            let name = variable(&source.left)?;
            let value = expr(&source.right)?;
            let none = quote! { ::core::option::Option::None };
            (assign(name, &none, &value), name.span())
        }
        Stmt::Expr(Expr::Binary(source), _) if compound(&source.op).is_some() => {
            (compound_assign(source)?, source.left.span())
        }
        Stmt::Expr(source, _) => {
            let value = expr(source)?;
            (quote! { Expr(&#value) }, source.span())
        }
        Stmt::Item(item) => {
            let write = "declare it beside the kernel; helpers are `#[kernel]` functions";
            return Err(faults::over(item, "an item", "a statement", write));
        }
        Stmt::Macro(source) => return Err(found_macro(&source.mac)),
    };
    let span = at(span);
    Ok(quote! { __s::Stmt { kind: __s::StmtKind::#kind, span: #span } })
}

// ---- statements -----------------------------------------------------------------------------------------------

fn let_stmt(local: &Local) -> Result<TokenStream> {
    let write = "write `let x = ..;` or `let (a, b) = ..;`";
    if let Some(attribute) = local.attrs.first() {
        return Err(faults::over(attribute, "an attribute", "a statement", "remove it"));
    }
    let (names, tuple) = match &local.pat {
        Pat::Tuple(tuple) => (tuple.elems.iter().collect(), true),
        Pat::Type(typed) => {
            let write = "remove the type; convert with `.f32()` or `.cast::<T>()`";
            return Err(faults::over(&typed.ty, "a type", "`=`: types are inferred", write));
        }
        pattern => (vec![pattern], false),
    };
    let names = collect(names.into_iter().map(|pattern| bound_name(pattern, write)))?;
    if names.is_empty() {
        return Err(faults::over(&local.pat, "an empty tuple", "at least one name", write));
    }
    let Some(init) = &local.init else {
        return Err(faults::over(local, "no value", "`= value`", write));
    };
    if let Some((token, _)) = &init.diverge {
        let write = "a tuple pattern always matches; use `if` for choices";
        return Err(faults::at(token.span, "`else`", "`;`", write));
    }
    let value = expr(&init.expr)?;
    let mutable = names.iter().any(|(_, mutable)| *mutable);
    let names = names.iter().map(|(name, _)| name);
    Ok(quote! {
        Let { names: &[#(#names),*], tuple: #tuple, mutable: #mutable, value: &#value }
    })
}

/// The name that a pattern binds, and whether it is `mut`.
fn bound_name(pattern: &Pat, write: &str) -> Result<(String, bool)> {
    match pattern {
        Pat::Wild(_) => Ok(("_".to_owned(), false)),
        Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => {
            let name = ident.ident.to_string();
            if is_constant(&name) {
                let found = format!("the variable `{name}`");
                let write = "capitals are compile-time constants; write it in lower case";
                return Err(faults::over(ident, &found, "a name in lower case", write));
            }
            Ok((name, ident.mutability.is_some()))
        }
        other => Err(faults::over(other, "this pattern", "a name", write)),
    }
}

fn for_stmt(source: &ExprForLoop) -> Result<TokenStream> {
    if let Some(label) = &source.label {
        let write = "remove it: there is no `break` or `continue`";
        return Err(faults::over(label, "a label", "`for`", write));
    }
    let write = "write `for x in tiles(n, B)`, `for i in range(a, b)` or `for i in a..b`";
    let mut faults = faults::Faults::default();
    let name = faults.take(bound_name(&source.pat, write));
    if let Some((_, true)) = name {
        let message =
            faults::over(&source.pat, "`mut`", "a plain name", "copy it: `let mut i = i;`");
        faults.push(message);
    }
    let counted = match unwrap(&source.expr) {
        Expr::Range(_) => true,
        Expr::Call(call) => {
            matches!(&*call.func, Expr::Path(path) if path.path.is_ident("tiles") || path.path.is_ident("range"))
        }
        _ => false,
    };
    if !counted {
        faults.push(faults::over(&source.expr, "this", "`tiles`, `range` or `a..b`", write));
    }
    let iterator = faults.take(expr(&source.expr));
    let body = faults.take(lower_block(&source.body, false));
    let (name, iterator, body) = faults.finish((name, iterator, body))?;
    let name = name.0;
    Ok(quote! { For { name: #name, iterator: &#iterator, body: #body } })
}

fn variable(place: &Expr) -> Result<&Ident> {
    match unwrap(place) {
        Expr::Index(index) => {
            let found = "an assignment to a place in a tensor";
            let write = "write `store(out[(i, j)], value);`";
            Err(faults::over(index, found, "a variable", write))
        }
        Expr::Tuple(tuple) => {
            let write = "assign to each variable by itself";
            Err(faults::over(tuple, "an assignment to a tuple", "a variable", write))
        }
        Expr::Path(path)
            if path.path.get_ident().is_some_and(|name| is_constant(&name.to_string())) =>
        {
            let write = "compile-time constants do not change; use a variable in lower case";
            Err(faults::over(path, "an assignment to a constant", "a variable", write))
        }
        place @ Expr::Path(_) => simple_name(place),
        other => Err(faults::over(
            other,
            "an assignment to this",
            "a variable",
            "assign to a name declared with `let mut`",
        )),
    }
}

fn assign(name: &Ident, op: &TokenStream, value: &TokenStream) -> TokenStream {
    let name = name.to_string();
    quote! { Assign { name: #name, op: #op, value: &#value } }
}

fn compound_assign(source: &ExprBinary) -> Result<TokenStream> {
    let name = variable(&source.left)?;
    let value = expr(&source.right)?;
    let op = compound(&source.op).map(|op| format_ident!("{op}"));
    let op = quote! { ::core::option::Option::Some(__s::BinaryOp::#op) };
    Ok(assign(name, &op, &value))
}

fn compound(op: &BinOp) -> Option<&'static str> {
    Some(match op {
        BinOp::AddAssign(_) => "Add",
        BinOp::SubAssign(_) => "Sub",
        BinOp::MulAssign(_) => "Mul",
        BinOp::DivAssign(_) => "Div",
        BinOp::RemAssign(_) => "Rem",
        BinOp::BitAndAssign(_) => "And",
        BinOp::BitOrAssign(_) => "Or",
        BinOp::BitXorAssign(_) => "Xor",
        BinOp::ShlAssign(_) => "Shl",
        BinOp::ShrAssign(_) => "Shr",
        _ => return None,
    })
}

// ---- expressions ----------------------------------------------------------------------------------------------

/// Parentheses carry no meaning once parsed.
fn unwrap(source: &Expr) -> &Expr {
    match source {
        Expr::Paren(paren) => unwrap(&paren.expr),
        Expr::Group(group) => unwrap(&group.expr),
        other => other,
    }
}

/// An expression as an `iron_core::syntax::Expr`.
pub(crate) fn expr(source: &Expr) -> Result<TokenStream> {
    let source = unwrap(source);
    let kind = match source {
        Expr::Lit(source) => literal(source)?,
        Expr::Path(_) => {
            let name = simple_name(source)?.to_string();
            quote! { Name(#name) }
        }
        Expr::Unary(unary) => {
            let op = match unary.op {
                UnOp::Neg(_) => format_ident!("Neg"),
                UnOp::Not(_) => format_ident!("Not"),
                _ => {
                    let write = "remove the `*`; `load(x[i])` reads a tensor";
                    return Err(faults::over(&unary.op, "`*`", "an expression", write));
                }
            };
            let operand = expr(&unary.expr)?;
            quote! { Unary(__s::UnaryOp::#op, &#operand) }
        }
        Expr::Binary(source) => binary(source)?,
        Expr::Call(call) => {
            let function = simple_path(&call.func, true)?;
            let (function, generics) =
                (function.ident.to_string(), turbofish(&function.arguments)?);
            let args = collect(call.args.iter().map(expr))?;
            quote! {
                Call { function: #function, generics: &[#(#generics),*], args: &[#(#args),*] }
            }
        }
        Expr::MethodCall(call) => {
            let mut faults = faults::Faults::default();
            let receiver = faults.take(expr(&call.receiver));
            let args = faults.take(collect(call.args.iter().map(expr)));
            let generics = faults.take(match &call.turbofish {
                Some(arguments) => type_names(arguments),
                None => Ok(Vec::new()),
            });
            let (receiver, args, generics) = faults.finish((receiver, args, generics))?;
            let name = call.method.to_string();
            let kind = quote! {
                Method {
                    receiver: &#receiver,
                    name: #name,
                    generics: &[#(#generics),*],
                    args: &[#(#args),*],
                }
            };
            // The method's own name, so that a fault in a long chain points at its link.
            return Ok(make(&kind, call.method.span()));
        }
        Expr::Index(index) => {
            let tensor = match unwrap(&index.expr) {
                base @ Expr::Path(_) => simple_name(base)?.to_string(),
                other => {
                    let write = "write `load(x[(i, j)])` with all axes in one index";
                    return Err(faults::over(
                        other,
                        "this",
                        "the name of a tensor parameter",
                        write,
                    ));
                }
            };
            let entries = match &*index.index {
                Expr::Tuple(tuple) => collect(tuple.elems.iter().map(expr))?,
                single => vec![expr(single)?],
            };
            if entries.is_empty() {
                return Err(faults::over(
                    &index.index,
                    "no index",
                    "one entry per axis",
                    "write `x[(i, j)]`",
                ));
            }
            quote! { Index { tensor: #tensor, index: &[#(#entries),*] } }
        }
        Expr::Tuple(tuple) if tuple.elems.is_empty() => {
            return Err(faults::over(tuple, "an empty tuple", "an expression", "remove it"));
        }
        Expr::Tuple(tuple) => {
            let items = collect(tuple.elems.iter().map(expr))?;
            quote! { Tuple(&[#(#items),*]) }
        }
        Expr::Range(range) => {
            let write = "write `a..b`; for all positions of an axis `tiles(n, B)`";
            if let syn::RangeLimits::Closed(token) = &range.limits {
                return Err(faults::over(token, "`..=`", "`..`", "write `a..b + 1`"));
            }
            let (Some(start), Some(end)) = (&range.start, &range.end) else {
                return Err(faults::over(range, "an open range", "two ends", write));
            };
            let (start, end) = (expr(start)?, expr(end)?);
            quote! { Range(&#start, &#end) }
        }
        Expr::If(source) => if_expr(source)?,
        Expr::Block(source) if source.label.is_none() => {
            let block = block(&source.block)?;
            quote! { Block(#block) }
        }
        other => return Err(unsupported(other)),
    };
    Ok(make(&kind, source.span()))
}

fn if_expr(source: &ExprIf) -> Result<TokenStream> {
    let mut faults = faults::Faults::default();
    let condition = faults.take(expr(&source.cond));
    let then = faults.take(block(&source.then_branch));
    let otherwise = faults.take(match &source.else_branch {
        None => Ok(quote! { ::core::option::Option::None }),
        Some((_, branch)) => otherwise(branch),
    });
    let (condition, then, otherwise) = faults.finish((condition, then, otherwise))?;
    Ok(quote! { If { condition: &#condition, then: #then, otherwise: #otherwise } })
}

fn otherwise(branch: &Expr) -> Result<TokenStream> {
    let block = match branch {
        Expr::Block(source) => block(&source.block)?,
        // `else if` is a block that holds an `if`; without a final `else` it has no value.
        Expr::If(inner) => {
            let value = expr(branch)?;
            if inner.else_branch.is_some() {
                quote! { __s::Block { stmts: &[], tail: ::core::option::Option::Some(&#value) } }
            } else {
                let span = at(inner.if_token.span);
                quote! {
                    __s::Block {
                        stmts: &[__s::Stmt { kind: __s::StmtKind::Expr(&#value), span: #span }],
                        tail: ::core::option::Option::None,
                    }
                }
            }
        }
        other => return Err(unsupported(other)),
    };
    Ok(quote! { ::core::option::Option::Some(#block) })
}

fn literal(source: &ExprLit) -> Result<TokenStream> {
    match &source.lit {
        Lit::Int(literal) => int_literal(literal),
        Lit::Float(literal) => {
            if !matches!(literal.suffix(), "" | "f32") {
                return Err(suffix(literal, literal.suffix(), "f32"));
            }
            let number: f64 = literal.base10_parse()?;
            if number.is_finite() {
                return Ok(quote! { Float(#number) });
            }
            let write = "write `INFINITY` or `NEG_INFINITY`";
            Err(faults::over(literal, "a number past the largest float", "a smaller one", write))
        }
        Lit::Bool(literal) => {
            let truth = literal.value;
            Ok(quote! { Bool(#truth) })
        }
        other => Err(faults::over(
            other,
            "this literal",
            "a number, `true` or `false`",
            "kernels have no text; write a number",
        )),
    }
}

fn int_literal(literal: &LitInt) -> Result<TokenStream> {
    match literal.suffix() {
        "" | "i32" | "u32" => {
            let number: i64 =
                literal.base10_parse().ok().filter(|n| *n <= i64::from(u32::MAX)).ok_or_else(
                    || {
                        let write = "kernel integers have 32 bits";
                        faults::over(literal, "a large integer", "one below 4294967296", write)
                    },
                )?;
            if literal.suffix() == "u32" {
                let value = make(&quote! { Int(#number) }, literal.span());
                return Ok(quote! {
                    Method { receiver: &#value, name: "u32", generics: &[], args: &[] }
                });
            }
            Ok(quote! { Int(#number) })
        }
        "f32" => {
            let number: f64 = literal.base10_parse()?;
            Ok(quote! { Float(#number) })
        }
        other => Err(suffix(literal, other, "i32, u32 or f32")),
    }
}

fn suffix(literal: &impl quote::ToTokens, found: &str, expected: &str) -> syn::Error {
    let write = "remove it; storage types are converted to by `store`";
    faults::over(literal, &format!("the suffix `{found}`"), expected, write)
}

fn binary(source: &ExprBinary) -> Result<TokenStream> {
    let mut faults = faults::Faults::default();
    let left = faults.take(expr(&source.left));
    let right = faults.take(expr(&source.right));
    let (left, right) = faults.finish((left, right))?;
    let (kind, op) = match source.op {
        BinOp::Add(_) => ("Binary", "Add"),
        BinOp::Sub(_) => ("Binary", "Sub"),
        BinOp::Mul(_) => ("Binary", "Mul"),
        BinOp::Div(_) => ("Binary", "Div"),
        BinOp::Rem(_) => ("Binary", "Rem"),
        BinOp::And(_) | BinOp::BitAnd(_) => ("Binary", "And"),
        BinOp::Or(_) | BinOp::BitOr(_) => ("Binary", "Or"),
        BinOp::BitXor(_) => ("Binary", "Xor"),
        BinOp::Shl(_) => ("Binary", "Shl"),
        BinOp::Shr(_) => ("Binary", "Shr"),
        BinOp::Eq(_) => ("Compare", "Eq"),
        BinOp::Ne(_) => ("Compare", "Ne"),
        BinOp::Lt(_) => ("Compare", "Lt"),
        BinOp::Le(_) => ("Compare", "Le"),
        BinOp::Gt(_) => ("Compare", "Gt"),
        BinOp::Ge(_) => ("Compare", "Ge"),
        _ => {
            let write = "an assignment is a statement of its own";
            return Err(faults::over(&source.op, "an assignment", "an expression", write));
        }
    };
    let (kind, op) = (format_ident!("{kind}"), format_ident!("{op}"));
    let ops = format_ident!("{kind}Op");
    Ok(quote! { #kind(__s::#ops::#op, &#left, &#right) })
}

// ---- names ----------------------------------------------------------------------------------------------------

/// The only segment of a path without type arguments.
pub(crate) fn simple_name(source: &Expr) -> Result<&Ident> {
    simple_path(source, false).map(|segment| &segment.ident)
}

fn simple_path(source: &Expr, called: bool) -> Result<&syn::PathSegment> {
    let Expr::Path(path) = unwrap(source) else {
        let write = "call functions by their plain name";
        return Err(faults::over(source, "this", "a name", write));
    };
    let segments = &path.path.segments;
    if path.qself.is_some() || path.path.leading_colon.is_some() || segments.len() != 1 {
        let last = segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
        let write = format!("write `{last}`: functions and constants of the library need no path");
        return Err(faults::over(path, "a path", "a plain name", &write));
    }
    let segment = &segments[0];
    if segment.ident == "self" || segment.ident == "Self" || segment.ident == "crate" {
        let write = "name a parameter, a variable or a dimension";
        let found = format!("`{}`", segment.ident);
        return Err(faults::over(path, &found, "a name", write));
    }
    if !called && !segment.arguments.is_none() {
        let write = "type arguments go on calls: `zeros::<f32>((BM,))`";
        return Err(faults::over(&segment.arguments, "type arguments", "a plain name", write));
    }
    Ok(segment)
}

fn turbofish(arguments: &syn::PathArguments) -> Result<Vec<String>> {
    match arguments {
        syn::PathArguments::AngleBracketed(arguments) => type_names(arguments),
        _ => Ok(Vec::new()),
    }
}

fn type_names(arguments: &syn::AngleBracketedGenericArguments) -> Result<Vec<String>> {
    collect(arguments.args.iter().map(|argument| match argument {
        GenericArgument::Type(Type::Path(path)) if path.path.get_ident().is_some() => {
            Ok(path.path.get_ident().map(ToString::to_string).unwrap_or_default())
        }
        other => {
            let write = "name a generic or f32, i32, u32, f16, bf16";
            Err(faults::over(other, "this", "the name of a type", write))
        }
    }))
}

// ---- what is not in the language ------------------------------------------------------------------------------

fn found_macro(source: &syn::Macro) -> syn::Error {
    let name = source.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
    let write = "kernels run no Rust code; a helper is a `#[kernel]` function";
    faults::at(source.path.span(), &format!("the macro `{name}!`"), "an expression", write)
}

fn unsupported(source: &Expr) -> syn::Error {
    let counted = "write `for x in tiles(n, B)` or `for i in a..b`";
    let value = "an expression";
    match source {
        Expr::While(s) => faults::at(s.while_token.span, "`while`", "a counted loop", counted),
        Expr::Loop(s) => faults::at(s.loop_token.span, "`loop`", "a counted loop", counted),
        Expr::ForLoop(s) => {
            faults::at(s.for_token.span, "`for` in an expression", value, "a loop is a statement")
        }
        Expr::Break(s) => faults::at(
            s.break_token.span,
            "`break`",
            "a loop that runs to its end",
            "bound the loop: `for i in range(a, b.min(end))`",
        ),
        Expr::Continue(s) => faults::at(
            s.continue_token.span,
            "`continue`",
            "a loop body that runs to its end",
            "put the rest of the body in an `if`",
        ),
        Expr::Return(s) => faults::at(
            s.return_token.span,
            "`return`",
            "a body that runs to its end",
            "put the rest in an `if`; a helper's result is its last expression",
        ),
        Expr::Match(s) => faults::at(
            s.match_token.span,
            "`match`",
            value,
            "write `if` and `else`, or `select(condition, a, b)` for tiles",
        ),
        Expr::Try(s) => {
            faults::over(&s.question_token, "`?`", value, "kernels have no errors; remove it")
        }
        Expr::Closure(s) => faults::at(
            s.or1_token.span,
            "a closure",
            value,
            "write a `#[kernel]` function and call it by its name",
        ),
        Expr::Reference(s) => {
            faults::at(s.and_token.span, "`&`", value, "remove it; tiles are values")
        }
        Expr::Cast(s) => faults::over(&s.as_token, "`as`", "a method", "write .cast() or .f32()"),
        Expr::Field(s) => faults::over(
            &s.member,
            "a field",
            "a method call",
            "take tuples apart with `let (a, b) = ..;`",
        ),
        Expr::Let(s) => {
            faults::at(s.let_token.span, "`let` in a condition", value, "compare numbers")
        }
        Expr::Assign(s) => faults::over(
            &s.eq_token,
            "an assignment",
            value,
            "an assignment is a statement of its own; `==` compares",
        ),
        Expr::Array(s) => {
            faults::over(s, "an array", value, "write a tuple, or a tile: `zeros::<f32>((N,))`")
        }
        Expr::Repeat(s) => faults::over(s, "an array", value, "write `full::<f32>((N,), value)`"),
        Expr::Macro(s) => found_macro(&s.mac),
        Expr::Unsafe(s) => {
            faults::at(s.unsafe_token.span, "`unsafe`", value, "remove it; kernels are safe")
        }
        Expr::Block(s) => faults::over(
            &s.label,
            "a label",
            "a block",
            "remove it: there is no `break` or `continue`",
        ),
        other => faults::over(other, "this", value, "see the grammar in the docs of `#[kernel]`"),
    }
}
