//! The head of a kernel: documentation, generics, parameters, result.

use std::collections::BTreeMap;

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::spanned::Spanned;
use syn::{
    Attribute, BinOp, Expr, ExprLit, FnArg, GenericArgument, GenericParam, Generics, ItemFn, Lit,
    Meta, Pat, PathArguments, PathSegment, Result, ReturnType, Type, TypeParamBound, TypePath,
};

use crate::attribute::Arguments;
use crate::body::{at, expr, is_constant, simple_name};
use crate::faults::{self, Faults, collect};

/// Types that a tensor element can name without a generic.
const ELEMENTS: [&str; 7] = ["f32", "f16", "bf16", "i32", "u32", "i8", "u8"];
const SCALARS: [&str; 3] = ["f32", "i32", "u32"];
const BOUNDS: [&str; 4] = ["Float", "Int", "Format", "Activation"];
const TYPES: &str = "Tensor, TensorMut, Quantized, Activations, ActivationsMut, f32, i32 or u32";

/// The head of a kernel as tokens.
pub(crate) struct Signature<'a> {
    /// The doc comment as one paragraph.
    pub(crate) docs: String,
    /// Attributes that go on the static.
    pub(crate) attributes: Vec<&'a Attribute>,
    /// `syntax::Generic` values.
    pub(crate) generics: Vec<TokenStream>,
    /// `syntax::Param` values.
    pub(crate) params: Vec<TokenStream>,
}

/// Reads the head of `function`. `arguments` is `None` when the attribute was faulty.
pub(crate) fn parse<'a>(
    function: &'a ItemFn,
    arguments: Option<&Arguments>,
) -> Result<Signature<'a>> {
    let mut faults = Faults::default();
    faults.take(modifiers(function));
    let attributes = faults.take(collect(function.attrs.iter().map(attribute)));
    let bounds = faults.take(bounds(&function.sig.generics)).unwrap_or_default();
    let mut head = Head {
        bounds: &bounds,
        helper: arguments.is_none_or(|arguments| arguments.grid.is_empty()),
        dims: BTreeMap::new(),
    };
    let params = faults.take(collect(function.sig.inputs.iter().map(|input| head.param(input))));
    faults.take(head.names_are_distinct(function));
    faults.take(head.result(&function.sig.output, arguments.is_none()));
    for axis in arguments.map_or(&[][..], |arguments| &arguments.grid) {
        faults.take(head.extent(axis, Place::Grid));
    }
    let (attributes, params) = faults.finish((attributes, params))?;
    let generics = bounds.iter().map(|(name, (bound, span))| {
        let bound = quote::format_ident!("{bound}");
        let span = at(*span);
        quote! { __s::Generic { name: #name, bound: __s::Bound::#bound, span: #span } }
    });
    // In declaration order: the instance list binds by position.
    let mut generics: Vec<_> =
        bounds.values().map(|(_, span)| position(*span)).zip(generics).collect();
    generics.sort_by_key(|(position, _)| *position);
    Ok(Signature {
        docs: docs(&function.attrs),
        attributes,
        generics: generics.into_iter().map(|(_, tokens)| tokens).collect(),
        params,
    })
}

fn position(span: Span) -> (usize, usize) {
    (span.start().line, span.start().column)
}

fn modifiers(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    let found = [
        signature.constness.map(|token| ("`const`", token.span)),
        signature.asyncness.map(|token| ("`async`", token.span)),
        signature.unsafety.map(|token| ("`unsafe`", token.span)),
        signature.abi.as_ref().map(|abi| ("`extern`", abi.extern_token.span)),
        signature.variadic.as_ref().map(|dots| ("`...`", dots.dots.span())),
        signature.generics.where_clause.as_ref().map(|clause| ("`where`", clause.where_token.span)),
    ];
    if let Some((token, span)) = found.into_iter().flatten().next() {
        return Err(faults::at(
            span,
            token,
            "a plain `fn`",
            "remove it; bounds go in `<T: Float>`",
        ));
    }
    let name = signature.ident.to_string();
    if is_constant(&name) {
        return Err(faults::at(
            signature.ident.span(),
            &format!("the name `{name}`"),
            "a name in lower case",
            "the static gets the capitals",
        ));
    }
    Ok(())
}

fn attribute(attribute: &Attribute) -> Result<&Attribute> {
    let path = attribute.path();
    if ["doc", "cfg", "allow", "deprecated"].iter().any(|known| path.is_ident(known)) {
        return Ok(attribute);
    }
    Err(faults::over(
        attribute,
        "an attribute that has no meaning on a kernel",
        "doc, cfg, allow or deprecated",
        "remove it",
    ))
}

fn docs(attributes: &[Attribute]) -> String {
    let mut words = Vec::new();
    for attribute in attributes {
        if let Meta::NameValue(pair) = &attribute.meta
            && let (true, Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) =
                (pair.path.is_ident("doc"), &pair.value)
        {
            words.extend(text.value().split_whitespace().map(str::to_owned));
        }
    }
    words.join(" ")
}

type Bounds = BTreeMap<String, (String, Span)>;

fn bounds(generics: &Generics) -> Result<Bounds> {
    let write = "write `<T: Float, I: Int, W: Format, A: Activation>`";
    let mut bounds = Bounds::new();
    for param in &generics.params {
        let GenericParam::Type(param) = param else {
            return Err(faults::over(param, "this", "a type with a bound", write));
        };
        let name = param.ident.to_string();
        let bound = match param.bounds.iter().collect::<Vec<_>>().as_slice() {
            [TypeParamBound::Trait(bound)] => bound.path.get_ident().map(ToString::to_string),
            _ => None,
        };
        match bound {
            Some(bound) if BOUNDS.contains(&bound.as_str()) => {
                bounds.insert(name, (bound, param.ident.span()));
            }
            _ => {
                let found = format!("the bound of `{name}`");
                let expected = "one of Float, Int, Format, Activation";
                return Err(faults::over(param, &found, expected, write));
            }
        }
    }
    Ok(bounds)
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Shape,
    Grid,
}

struct Head<'a> {
    bounds: &'a Bounds,
    helper: bool,
    /// Dimensions that shapes name, and where first.
    dims: BTreeMap<String, Span>,
}

impl Head<'_> {
    fn param(&mut self, input: &FnArg) -> Result<TokenStream> {
        let write = "write `name: type`";
        let param = match input {
            FnArg::Typed(param) => param,
            FnArg::Receiver(receiver) => {
                return Err(faults::over(receiver, "`self`", "a parameter", write));
            }
        };
        if let Some(attribute) = param.attrs.first() {
            return Err(faults::over(attribute, "an attribute", "a parameter", "remove it"));
        }
        let name = match &*param.pat {
            Pat::Ident(pattern)
                if pattern.by_ref.is_none()
                    && pattern.mutability.is_none()
                    && pattern.subpat.is_none() =>
            {
                &pattern.ident
            }
            Pat::Ident(pattern) if pattern.mutability.is_some() => {
                return Err(faults::over(
                    pattern,
                    "a `mut` parameter",
                    "a plain name",
                    "copy it into a variable: `let mut x = x;`",
                ));
            }
            pattern => return Err(faults::over(pattern, "a pattern", "a plain name", write)),
        };
        let ty = self.param_type(&param.ty)?;
        let text = name.to_string();
        let span = at(name.span());
        Ok(quote! { __s::Param { name: #text, ty: #ty, span: #span } })
    }

    fn param_type(&mut self, ty: &Type) -> Result<TokenStream> {
        let segment = match ty {
            Type::Path(TypePath { qself: None, path }) if path.segments.len() == 1 => {
                &path.segments[0]
            }
            Type::Reference(reference) => {
                let write = "remove the `&`; what is written to is a `TensorMut`";
                return Err(faults::at(reference.and_token.span, "a reference", TYPES, write));
            }
            other => return Err(faults::over(other, "this type", TYPES, "name one of them")),
        };
        let name = segment.ident.to_string();
        match name.as_str() {
            "Tensor" | "TensorMut" => {
                let (element, shape) = self.tensor(segment, "Tensor<T, (rows, n)>")?;
                let element = self.bound(element, &["Float", "Int"], &ELEMENTS)?;
                let mutable = name == "TensorMut";
                Ok(quote! {
                    __s::ParamType::Tensor { element: #element, shape: &[#(#shape),*], mutable: #mutable }
                })
            }
            "Quantized" => {
                let (format, shape) = self.tensor(segment, "Quantized<W, (n, k)>")?;
                let format = self.bound(format, &["Format"], &[])?;
                Ok(quote! { __s::ParamType::Quantized { format: #format, shape: &[#(#shape),*] } })
            }
            "Activations" | "ActivationsMut" => {
                let (kind, shape) = self.tensor(segment, "Activations<A, (m, k)>")?;
                let kind = self.bound(kind, &["Activation", "Float"], &["f32", "f16", "bf16"])?;
                let mutable = name == "ActivationsMut";
                Ok(quote! {
                    __s::ParamType::Activations { kind: #kind, shape: &[#(#shape),*], mutable: #mutable }
                })
            }
            "Value" if self.helper => Ok(quote! { __s::ParamType::Value }),
            "Value" => Err(faults::over(
                segment,
                "`Value` in a kernel",
                TYPES,
                "`Value` is for helpers, `#[kernel]` without a grid",
            )),
            scalar if SCALARS.contains(&scalar) && segment.arguments.is_empty() => {
                Ok(quote! { __s::ParamType::Scalar(#scalar) })
            }
            other => {
                let found = format!("the type `{other}`");
                Err(faults::over(&segment.ident, &found, TYPES, "name one of them"))
            }
        }
    }

    /// The element name and the shape of `Name<Element, shape>`.
    fn tensor<'t>(
        &mut self,
        segment: &'t PathSegment,
        example: &str,
    ) -> Result<(&'t syn::Ident, Vec<TokenStream>)> {
        let write = format!("write `{example}`");
        let arguments = match &segment.arguments {
            PathArguments::AngleBracketed(arguments) => arguments.args.iter().collect(),
            _ => Vec::new(),
        };
        let [element, shape] = arguments.as_slice() else {
            let found = format!("`{}` with {} arguments", segment.ident, arguments.len());
            return Err(faults::over(segment, &found, "an element type and a shape", &write));
        };
        let element = match element {
            GenericArgument::Type(Type::Path(path)) => path.path.get_ident(),
            _ => None,
        }
        .ok_or_else(|| faults::over(element, "this", "the name of an element type", &write))?;
        let extents: Vec<Expr> = match shape {
            GenericArgument::Type(Type::Tuple(tuple)) => {
                collect(tuple.elems.iter().map(|extent| match extent {
                    Type::Path(path) => Ok(Expr::Path(syn::ExprPath {
                        attrs: Vec::new(),
                        qself: path.qself.clone(),
                        path: path.path.clone(),
                    })),
                    other => Err(faults::over(other, "this extent", "a name", BRACES)),
                }))?
            }
            GenericArgument::Const(Expr::Block(block)) => match block.block.stmts.as_slice() {
                [syn::Stmt::Expr(Expr::Tuple(tuple), None)] => {
                    tuple.elems.iter().cloned().collect()
                }
                _ => return Err(faults::over(shape, "this", "a tuple in the braces", BRACES)),
            },
            other => {
                let write = "a single axis is written `(n,)`, with the comma";
                return Err(faults::over(other, "no tuple", "a shape", write));
            }
        };
        if extents.is_empty() {
            return Err(faults::over(shape, "no axes", "a shape of at least one", &write));
        }
        let tokens = collect(extents.iter().map(|extent| {
            self.extent(extent, Place::Shape)?;
            expr(extent)
        }))?;
        Ok((element, tokens))
    }

    /// An element name: a generic with a fitting bound, or a concrete name (`known` empty: any in lower case).
    fn bound(&self, name: &syn::Ident, bounds: &[&str], known: &[&str]) -> Result<String> {
        let text = name.to_string();
        let write = format!("declare it: `<{text}: {}>`", bounds[0]);
        match self.bounds.get(&text) {
            Some((bound, _)) if bounds.contains(&bound.as_str()) => Ok(text),
            Some((bound, _)) => {
                let found = format!("`{text}`, which is bound by {bound}");
                let expected = format!("a generic bound by {}", bounds.join(" or "));
                Err(faults::at(name.span(), &found, &expected, "use another generic"))
            }
            None => {
                let lower = text.chars().all(|letter| !letter.is_ascii_uppercase());
                if known.contains(&text.as_str()) || known.is_empty() && lower {
                    return Ok(text);
                }
                let found = format!("`{text}`, which is not declared");
                let expected = if known.is_empty() {
                    "a generic or the name of a format".to_owned()
                } else {
                    format!("a generic or one of {}", known.join(", "))
                };
                Err(faults::at(name.span(), &found, &expected, &write))
            }
        }
    }

    /// Checks an expression over dimensions and notes the names of shapes.
    fn extent(&mut self, extent: &Expr, place: Place) -> Result<()> {
        match extent {
            Expr::Lit(ExprLit { lit: Lit::Int(literal), .. }) if literal.suffix().is_empty() => {
                Ok(())
            }
            Expr::Paren(inner) => self.extent(&inner.expr, place),
            Expr::Group(inner) => self.extent(&inner.expr, place),
            Expr::Path(_) => {
                let ident = simple_name(extent)?;
                let name = ident.to_string();
                if is_constant(&name) {
                    return Ok(());
                }
                if place == Place::Shape {
                    self.dims.entry(name).or_insert_with(|| ident.span());
                } else if !self.dims.contains_key(&name) {
                    let dims: Vec<_> = self.dims.keys().map(String::as_str).collect();
                    return Err(faults::at(
                        ident.span(),
                        &format!("`{name}`, which no parameter's shape names"),
                        "a dimension or a constant in capitals",
                        &format!("the dimensions are: {}", dims.join(", ")),
                    ));
                }
                Ok(())
            }
            Expr::Binary(binary)
                if matches!(
                    binary.op,
                    BinOp::Add(_) | BinOp::Sub(_) | BinOp::Mul(_) | BinOp::Div(_)
                ) =>
            {
                self.extent(&binary.left, place)?;
                self.extent(&binary.right, place)
            }
            Expr::MethodCall(call)
                if ["div_ceil", "min", "max"].contains(&call.method.to_string().as_str())
                    && call.args.len() == 1
                    && call.turbofish.is_none() =>
            {
                self.extent(&call.receiver, place)?;
                self.extent(&call.args[0], place)
            }
            other => Err(faults::over(
                other,
                "this",
                "an expression over dimensions",
                "use names, integers, `+ - * /`, `.div_ceil()`, `.min()` and `.max()`",
            )),
        }
    }

    fn names_are_distinct(&self, function: &ItemFn) -> Result<()> {
        let mut faults = Faults::default();
        let mut seen = Vec::new();
        for input in &function.sig.inputs {
            let FnArg::Typed(param) = input else { continue };
            let Pat::Ident(pattern) = &*param.pat else { continue };
            let name = pattern.ident.to_string();
            let span = pattern.ident.span();
            if self.dims.contains_key(&name) {
                let found = format!("`{name}` as a parameter and as a dimension");
                faults.push(faults::at(span, &found, "two names", "rename one of them"));
            } else if seen.contains(&name) {
                let found = format!("a second parameter `{name}`");
                faults.push(faults::at(span, &found, "another name", "rename one of them"));
            } else if is_constant(&name) {
                let found = format!("the parameter `{name}`");
                let write = "capitals are compile-time constants";
                faults.push(faults::at(span, &found, "a name in lower case", write));
            }
            seen.push(name);
        }
        faults.finish(())
    }

    fn result(&self, output: &ReturnType, attribute_faulty: bool) -> Result<()> {
        let ReturnType::Type(_, ty) = output else { return Ok(()) };
        if !self.helper {
            let write = "store to a `TensorMut` parameter";
            return Err(faults::over(ty, "a result type", "none: a kernel returns nothing", write));
        }
        let is_value = |ty: &Type| matches!(ty, Type::Path(path) if path.path.is_ident("Value"));
        let fits = match &**ty {
            Type::Tuple(tuple) => tuple.elems.iter().all(is_value),
            other => is_value(other),
        };
        if fits || attribute_faulty {
            return Ok(());
        }
        let write = "write `-> Value`";
        Err(faults::over(ty, "this result type", "`Value` or a tuple of them", write))
    }
}

const BRACES: &str = "put a shape with computed extents in braces: `{ (n, HEAD_DIM / 2) }`";
