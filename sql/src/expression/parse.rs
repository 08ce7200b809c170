//! From text to a syntax tree whose every name is known: limits, unknown columns and functions, and what is refused.
//!
//! Must never know types. Invariant: a tree that leaves here names only columns of the stream and functions of the
//! registry, and has no subquery, aggregate, window or time-dependent function.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Expr, Function, Ident, ObjectNamePart, Query, Visit, Visitor, visit_expressions, visit_expressions_mut,
};
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use levada_common::types::{OP_COLUMN, StreamSchema};

use super::functions::{Functions, Lookup};
use levada_common::nearest::did_you_mean;

/// Longest text of an expression, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Most tokens of an expression; bounds the depth of its tree.
const TOKENS_MAX: usize = 2048;
/// Deepest nesting of what the parser calls itself for.
const NESTING_MAX: usize = 128;
/// Deepest nesting of brackets (those of calls left out) and `CASE`: the parser tries several readings of each, so that its
/// time multiplies with each.
const BRACKETS_MAX: usize = 12;

static DIALECT: GenericDialect = GenericDialect {};

/// Parses one expression; whole text, nothing after it.
///
/// Contract: on a deep stack. `is_column` tells names that the dialect would take for special (`user`) apart from columns.
pub(crate) fn parse(sql: &str, is_column: impl Fn(&str) -> bool) -> Result<Expr, String> {
    if sql.len() > TEXT_BYTES_MAX {
        return Err(format!("the expression has {} bytes; the limit is {TEXT_BYTES_MAX}", sql.len()));
    }
    if sql.trim().is_empty() {
        return Err("the expression is empty".into());
    }
    let mut tokens = Tokenizer::new(&DIALECT, sql).tokenize_with_location().map_err(|error| format!("not SQL: {error}"))?;
    let significant = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).count();
    if significant > TOKENS_MAX {
        return Err(format!("the expression has {significant} words and signs; the limit is {TOKENS_MAX}"));
    }
    let depth = bracket_depth(&tokens);
    if depth > BRACKETS_MAX {
        return Err(format!(
            "the expression is nested {depth} deep; the limit is {BRACKETS_MAX}; compute parts of it in a select before"
        ));
    }
    quote_special_columns(&mut tokens, is_column);
    let mut parser = Parser::new(&DIALECT).with_recursion_limit(NESTING_MAX).with_tokens_with_locations(tokens);
    let expr = parser.parse_expr().map_err(syntax_error)?;
    match parser.peek_token().token {
        Token::EOF => Ok(expr),
        token => Err(format!("not SQL: \"{token}\" follows a whole expression")),
    }
}

/// How deep brackets and `CASE` stand in each other at most; the brackets of calls do not count.
fn bracket_depth(tokens: &[TokenWithSpan]) -> usize {
    let (mut open, mut depth, mut deepest) = (Vec::new(), 0usize, 0);
    let mut after_name = false;
    for token in tokens {
        let counts = match &token.token {
            Token::Whitespace(_) => continue,
            Token::LParen => Some(!after_name),
            Token::LBracket | Token::LBrace => Some(true),
            Token::Word(word) if word.keyword == Keyword::CASE => Some(true),
            Token::RParen | Token::RBracket | Token::RBrace => {
                depth -= usize::from(open.pop().unwrap_or(false));
                None
            }
            Token::Word(word) if word.keyword == Keyword::END => {
                depth -= usize::from(open.pop().unwrap_or(false));
                None
            }
            _ => None,
        };
        if let Some(counts) = counts {
            open.push(counts);
            depth += usize::from(counts);
            deepest = deepest.max(depth);
        }
        after_name = matches!(&token.token, Token::Word(word) if word.keyword == Keyword::NoKeyword);
    }
    deepest
}

fn syntax_error(error: ParserError) -> String {
    match error {
        ParserError::RecursionLimitExceeded => format!("the expression is nested more than {NESTING_MAX} deep"),
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => format!("not SQL: {text}"),
    }
}

/// Makes columns of words that the dialect takes for functions without brackets, where the stream has such a column.
fn quote_special_columns(tokens: &mut [TokenWithSpan], is_column: impl Fn(&str) -> bool) {
    let special = [Keyword::USER, Keyword::CURRENT_USER, Keyword::SESSION_USER, Keyword::CURRENT_CATALOG];
    for token in tokens {
        let Token::Word(word) = &mut token.token else { continue };
        if special.contains(&word.keyword) && is_column(&word.value) {
            word.quote_style = Some('"');
            word.keyword = Keyword::NoKeyword;
        }
        // The parser tries `position(a in b)` in three ways, so nested ones would take 3^n; `strpos(b, a)` does the same.
        if word.keyword == Keyword::POSITION {
            word.keyword = Keyword::NoKeyword;
        }
    }
}

/// The text that names this column in an expression, quoted where it must be.
pub(crate) fn column_reference(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && matches!(parse(name, |_| true), Ok(Expr::Identifier(ident)) if ident.value == name);
    if plain { name.to_string() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Checks every name of `expr` against the stream's columns and the functions, in the order of the text.
pub(super) fn check_names(expr: &Expr, input: &StreamSchema, functions: &Functions) -> Result<(), String> {
    let mut checker = NameChecker { input, functions };
    match expr.visit(&mut checker) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(reason) => Err(reason),
    }
}

/// The columns of `input` that `expr` names; its names were checked.
pub(super) fn columns_in(expr: &Expr, input: &StreamSchema) -> Vec<String> {
    let mut found = Vec::new();
    let visited = visit_expressions(expr, |expr| {
        let ident = match expr {
            Expr::Identifier(ident) => Some(ident),
            Expr::CompoundIdentifier(parts) => parts.first(),
            _ => None,
        };
        found.extend(ident.filter(|ident| input.column(&ident.value).is_some()).map(|ident| ident.value.clone()));
        ControlFlow::<()>::Continue(())
    });
    debug_assert!(visited.is_continue());
    found
}

/// Calls functions by their own names instead of their other ones: DataFusion wraps a call by another name so that typing
/// it takes twice the time of what it holds, which nested calls would multiply.
pub(super) fn use_own_names(expr: &mut Expr, functions: &Functions) {
    let visited = visit_expressions_mut(expr, |expr| {
        if let Expr::Function(function) = expr
            && let [ObjectNamePart::Identifier(ident)] = function.name.0.as_mut_slice()
            && let Some(name) = functions.own_name(&ident.value)
        {
            ident.value = name.to_string();
        }
        ControlFlow::<()>::Continue(())
    });
    debug_assert!(visited.is_continue());
}

struct NameChecker<'a> {
    input: &'a StreamSchema,
    functions: &'a Functions,
}

impl Visitor for NameChecker<'_> {
    type Break = String;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<String> {
        ControlFlow::Break("a subquery cannot stand in an expression".into())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<String> {
        let defect = match expr {
            Expr::Identifier(ident) => self.column_defect(ident),
            Expr::CompoundIdentifier(parts) => parts.first().and_then(|ident| self.column_defect(ident)),
            Expr::Function(function) => self.function_defect(function),
            Expr::Lambda(_) => Some("a lambda cannot stand in an expression".into()),
            _ => None,
        };
        defect.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }
}

impl NameChecker<'_> {
    fn column_defect(&self, ident: &Ident) -> Option<String> {
        let name = ident.value.as_str();
        if self.input.column(name).is_some() {
            return None;
        }
        if name == OP_COLUMN {
            return Some(format!("\"{OP_COLUMN}\" is the kind of a change and cannot be used in an expression"));
        }
        Some(unknown_column(name, self.input))
    }

    fn function_defect(&self, function: &Function) -> Option<String> {
        let [ObjectNamePart::Identifier(ident)] = function.name.0.as_slice() else {
            return Some(format!("unknown function \"{}\"", function.name));
        };
        if function.over.is_some() {
            return Some(format!(
                "window function \"{}\" cannot stand in an expression; use `window` and `aggregate`",
                ident.value
            ));
        }
        match self.functions.look_up(&ident.value) {
            Lookup::Scalar => None,
            Lookup::Refused(reason) => Some(reason),
        }
    }
}

/// `column "lin" not found; columns: line`, with the nearest name where one is near.
pub(crate) fn unknown_column(name: &str, input: &StreamSchema) -> String {
    let near = did_you_mean(name, input.columns.iter().map(|column| column.name.as_str()));
    let near = if input.columns.len() > 1 { near } else { String::new() };
    format!("column \"{name}\" not found; columns: {}{near}", input.names())
}
