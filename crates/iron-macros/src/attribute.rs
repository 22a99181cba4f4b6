//! The arguments of the attribute: `grid`, `variants`, `native`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Ident, Lit, LitStr, Result, Token};

use crate::body::{at, is_constant};
use crate::faults::{self, collect};

/// Targets that a native file can replace.
const TARGETS: [&str; 3] = ["cpu", "cuda", "metal"];

/// What the attribute says.
#[derive(Default)]
pub(crate) struct Arguments {
    /// Grid axes; empty for a helper.
    pub(crate) grid: Vec<Expr>,
    /// `syntax::Variant` values.
    pub(crate) variants: Vec<TokenStream>,
    /// `(target, path)` pairs.
    pub(crate) native: Vec<TokenStream>,
}

/// Reads what stands between the parentheses of `#[kernel(..)]`.
pub(crate) fn parse(tokens: TokenStream) -> Result<Arguments> {
    parse_arguments.parse2(tokens)
}

fn parse_arguments(input: ParseStream<'_>) -> Result<Arguments> {
    let mut arguments = Arguments::default();
    let mut seen: Vec<Ident> = Vec::new();
    while !input.is_empty() {
        let name: Ident = input.parse().map_err(|error| unknown(error.span(), "no name"))?;
        if seen.contains(&name) {
            let found = format!("`{name}` a second time");
            return Err(faults::at(name.span(), &found, "it once", "join the two"));
        }
        match name.to_string().as_str() {
            "grid" => arguments.grid = grid(input)?,
            "variants" => arguments.variants = entries(input, variant)?,
            "native" => arguments.native = entries(input, native)?,
            other => return Err(unknown(name.span(), &format!("`{other}`"))),
        }
        seen.push(name);
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(arguments)
}

fn unknown(span: proc_macro2::Span, found: &str) -> syn::Error {
    faults::at(
        span,
        found,
        "`grid`, `variants` or `native`",
        "write `#[kernel(grid = (rows,))]`, or `#[kernel]` for a helper",
    )
}

fn grid(input: ParseStream<'_>) -> Result<Vec<Expr>> {
    input.parse::<Token![=]>()?;
    let expr: Expr = input.parse()?;
    let axes = match expr {
        Expr::Tuple(tuple) => tuple.elems.into_iter().collect(),
        other => {
            return Err(faults::over(
                &other,
                "a single expression",
                "a tuple with one to three axes",
                "write `grid = (rows,)`, with the comma",
            ));
        }
    };
    let axes: Vec<Expr> = axes;
    if !(1..=3).contains(&axes.len()) {
        let span = axes.get(3).map_or_else(|| input.span(), Spanned::span);
        let found = format!("a grid of {} axes", axes.len());
        return Err(faults::at(span, &found, "one to three", "fold axes into one another"));
    }
    Ok(axes)
}

/// `(name = .., name = ..)`
fn entries(
    input: ParseStream<'_>,
    entry: fn(&Ident, ParseStream<'_>) -> Result<TokenStream>,
) -> Result<Vec<TokenStream>> {
    let content;
    syn::parenthesized!(content in input);
    let mut names: Vec<Ident> = Vec::new();
    let mut tokens = Vec::new();
    while !content.is_empty() {
        let name: Ident = content.parse()?;
        if names.contains(&name) {
            let found = format!("`{name}` a second time");
            return Err(faults::at(name.span(), &found, "each name once", "remove one of them"));
        }
        content.parse::<Token![=]>()?;
        tokens.push(entry(&name, &content)?);
        names.push(name);
        if !content.is_empty() {
            content.parse::<Token![,]>()?;
        }
    }
    Ok(tokens)
}

fn variant(name: &Ident, input: ParseStream<'_>) -> Result<TokenStream> {
    if !is_constant(&name.to_string()) {
        let found = format!("`{name}`");
        return Err(faults::at(
            name.span(),
            &found,
            "a name in capitals",
            "write `variants(HEAD_DIM = (64, 128))`",
        ));
    }
    let expr: Expr = input.parse()?;
    let values: Vec<Expr> = match expr {
        Expr::Tuple(tuple) => tuple.elems.into_iter().collect(),
        Expr::Paren(paren) => vec![*paren.expr],
        other => vec![other],
    };
    if values.is_empty() {
        let found = format!("no value for `{name}`");
        return Err(faults::at(
            name.span(),
            &found,
            "at least one",
            "write `HEAD_DIM = (64, 128)`",
        ));
    }
    let numbers = collect(values.iter().map(variant_value))?;
    if let Some(position) = numbers.windows(2).position(|pair| pair[0] >= pair[1]) {
        let found = format!("{} after {}", numbers[position + 1], numbers[position]);
        return Err(faults::over(
            &values[position + 1],
            &found,
            "ascending values",
            "sort them; the largest is the generic fallback",
        ));
    }
    let text = name.to_string();
    let span = at(name.span());
    Ok(quote! { __s::Variant { name: #text, values: &[#(#numbers),*], span: #span } })
}

fn variant_value(value: &Expr) -> Result<u32> {
    if let Expr::Lit(ExprLit { lit: Lit::Int(literal), .. }) = value
        && let Ok(number @ 1..) = literal.base10_parse::<u32>()
    {
        return Ok(number);
    }
    Err(faults::over(value, "this", "a positive integer literal", "write `HEAD_DIM = (64, 128)`"))
}

fn native(name: &Ident, input: ParseStream<'_>) -> Result<TokenStream> {
    let target = name.to_string();
    if !TARGETS.contains(&target.as_str()) {
        let found = format!("the target `{target}`");
        return Err(faults::at(
            name.span(),
            &found,
            "cpu, cuda or metal",
            "write `native(cuda = \"matmul.cu\")`",
        ));
    }
    let path: LitStr = input.parse().map_err(|error| {
        faults::at(
            error.span(),
            "no string",
            "the path of a file",
            "write `native(cuda = \"matmul.cu\")`",
        )
    })?;
    Ok(quote! { (#target, #path) })
}
