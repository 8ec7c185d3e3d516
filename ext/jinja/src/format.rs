//! Python's `%` and `str.format`. What a format asks beyond numbers, texts, width, sign and precision is refused.

use std::iter::Peekable;
use std::str::Chars;

use crate::entries::LARGEST;
use crate::text;
use crate::value::Value;

/// A field's form: `[[fill]align][sign][#][0][width][,][.precision][type]`.
#[derive(Clone, Debug)]
struct Form {
    fill: char,
    align: Option<char>,
    sign: Option<char>,
    comma: bool,
    width: usize,
    precision: Option<usize>,
    kind: Option<char>,
}

impl Form {
    const PLAIN: Form = Form {
        fill: ' ',
        align: None,
        sign: None,
        comma: false,
        width: 0,
        precision: None,
        kind: None,
    };

    /// The flags, width and precision of a `%` conversion.
    fn of_percent(rest: &mut Peekable<Chars<'_>>) -> Result<Form, String> {
        let mut form = Form::PLAIN;
        while let Some(flag) = rest.next_if(|c| "-+ 0".contains(*c)) {
            match flag {
                '-' => form.align = Some('<'),
                '0' if form.align.is_none() => {
                    (form.fill, form.align) = ('0', Some('='));
                }
                '0' => {}
                '+' => form.sign = Some('+'),
                sign => form.sign = form.sign.or(Some(sign)),
            }
        }
        if form.align == Some('<') {
            form.fill = ' ';
        }
        let width = digits(rest);
        if !width.is_empty() {
            form.width = Form::number(&width)?;
        }
        if rest.next_if_eq(&'.').is_some() {
            let precision = digits(rest);
            form.precision = Some(if precision.is_empty() { 0 } else { Form::number(&precision)? });
        }
        Ok(form)
    }

    /// The form after the `:` of a field of `str.format`.
    fn of_braces(form: &str) -> Result<Form, String> {
        let mut rest: &str = form;
        let mut parsed = Form::PLAIN;
        let is_align = |c: &char| "<>^=".contains(*c);
        let mut characters = rest.chars();
        match (characters.next(), characters.next()) {
            (Some(fill), Some(align)) if is_align(&align) => {
                (parsed.fill, parsed.align) = (fill, Some(align));
                rest = characters.as_str();
            }
            (Some(align), _) if is_align(&align) => {
                parsed.align = Some(align);
                rest = rest.get(1..).unwrap_or_default();
            }
            _ => {}
        }
        let mut take = |wanted: &str| {
            let c = rest.chars().next().filter(|c| wanted.contains(*c))?;
            rest = rest.get(1..).unwrap_or_default();
            Some(c)
        };
        parsed.sign = take("+- ");
        if take("0").is_some() {
            if parsed.align.is_some() {
                return Err(refused(form));
            }
            (parsed.fill, parsed.align) = ('0', Some('='));
        }
        let mut width = String::new();
        while let Some(digit) = take("0123456789") {
            width.push(digit);
        }
        if !width.is_empty() {
            parsed.width = Form::number(&width)?;
        }
        parsed.comma = take(",").is_some();
        if take(".").is_some() {
            let mut precision = String::new();
            while let Some(digit) = take("0123456789") {
                precision.push(digit);
            }
            parsed.precision = Some(Form::number(&precision)?);
        }
        parsed.kind = take("sdfFxXob%");
        let pads_zeros = parsed.fill == '0' && parsed.align == Some('=');
        if !rest.is_empty() || parsed.comma && pads_zeros {
            return Err(refused(form));
        }
        Ok(parsed)
    }

    fn number(digits: &str) -> Result<usize, String> {
        let number = digits.parse().ok().filter(|number| *number <= 1 << 16);
        number.ok_or_else(|| format!("a format's number {digits} is too large"))
    }

    fn pad(&self, sign: &str, digits: &str, align: char) -> String {
        let length = sign.chars().count() + digits.chars().count();
        let missing = self.width.saturating_sub(length);
        let fill = |count: usize| self.fill.to_string().repeat(count);
        match self.align.unwrap_or(align) {
            '<' => format!("{sign}{digits}{}", fill(missing)),
            '^' => format!("{}{sign}{digits}{}", fill(missing / 2), fill(missing - missing / 2)),
            '=' => format!("{sign}{}{digits}", fill(missing)),
            _ => format!("{}{sign}{digits}", fill(missing)),
        }
    }

    fn number_text(&self, value: &Value, kind: char) -> Result<String, String> {
        let (negative, digits) = match (kind, value) {
            ('d' | 'x' | 'X' | 'o' | 'b', value) => {
                let number = value.as_int().ok_or_else(|| {
                    format!("%{kind} format: an integer is required, not {}", value.type_name())
                })?;
                let size = number.unsigned_abs();
                let digits = match kind {
                    'x' => format!("{size:x}"),
                    'X' => format!("{size:X}"),
                    'o' => format!("{size:o}"),
                    'b' => format!("{size:b}"),
                    _ => size.to_string(),
                };
                (number < 0, digits)
            }
            (_, value) => {
                let number = value
                    .as_float()
                    .ok_or_else(|| format!("must be real number, not {}", value.type_name()))?;
                let scaled = if kind == '%' { number * 100.0 } else { number };
                let precision = self.precision.unwrap_or(6);
                let digits = match scaled.is_finite() {
                    true => format!("{:.*}", precision, scaled.abs()),
                    false => text::float(scaled.abs()),
                };
                let digits = if kind == '%' { digits + "%" } else { digits };
                (number.is_sign_negative() && !number.is_nan(), digits)
            }
        };
        let sign = match (negative, self.sign) {
            (true, _) => "-",
            (false, Some('+')) => "+",
            (false, Some(' ')) => " ",
            (false, _) => "",
        };
        let digits = if self.comma { with_commas(&digits) } else { digits };
        Ok(self.pad(sign, &digits, '>'))
    }

    fn text(&self, text: &str) -> String {
        let cut: String = match self.precision {
            Some(length) => text.chars().take(length).collect(),
            None => text.to_owned(),
        };
        self.pad("", &cut, '<')
    }
}

fn with_commas(digits: &str) -> String {
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (whole, rest) = digits.split_at(end);
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

/// Takes the digits that come next.
fn digits(rest: &mut Peekable<Chars<'_>>) -> String {
    let mut digits = String::new();
    while let Some(digit) = rest.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    digits
}

fn refused(form: &str) -> String {
    format!("the format `:{form}` is not supported by canonc")
}

fn checked(out: String) -> Result<String, String> {
    match out.len() <= LARGEST {
        true => Ok(out),
        false => Err(format!("a text of {} bytes; the limit is {LARGEST}", out.len())),
    }
}

/// `text % values`.
pub(crate) fn percent(text: &str, values: &Value) -> Result<String, String> {
    let listed = match values {
        Value::Tuple(items) => items.to_vec(),
        other => vec![other.clone()],
    };
    let mut next = listed.iter();
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    let mut is_named = false;
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut named = None;
        if rest.next_if_eq(&'(').is_some() {
            let name: String = rest.by_ref().take_while(|c| *c != ')').collect();
            is_named = true;
            let value = values.get(&Value::from(name.as_str()));
            named = Some(value.ok_or_else(|| format!("format requires the key {name:?}"))?);
        }
        let form = Form::of_percent(&mut rest)?;
        let kind = rest.next().ok_or("incomplete format")?;
        if form.precision.is_some() && "diuxXo".contains(kind) {
            return Err("a precision of a whole number is not supported by canonc".to_owned());
        }
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = match &named {
            Some(value) => value,
            None => next.next().ok_or("not enough arguments for format string")?,
        };
        if let Value::Undefined(message) = value
            && !['s', 'r'].contains(&kind)
        {
            return Err(message.to_string());
        }
        out += &converted(value, &form, kind)?;
        out = checked(out)?;
    }
    if next.next().is_some() && !is_named && !matches!(values, Value::Map(_) | Value::List(_)) {
        return Err("not all arguments converted during string formatting".to_owned());
    }
    Ok(out)
}

/// A value by a `%` conversion.
fn converted(value: &Value, form: &Form, kind: char) -> Result<String, String> {
    let flat = Form {
        fill: ' ',
        align: form.align.filter(|align| *align == '<').or(Some('>')),
        ..form.clone()
    };
    match kind {
        's' => Ok(flat.text(&value.text()?)),
        'r' => Ok(flat.text(&value.repr()?)),
        'd' | 'i' | 'u' => match value {
            Value::Float(number) if number.is_finite() => {
                form.number_text(&Value::Int(number.trunc() as i128), 'd')
            }
            value => form.number_text(value, 'd'),
        },
        'x' | 'X' | 'o' => form.number_text(value, kind),
        'f' | 'F' => form.number_text(value, 'f'),
        other => Err(format!("`%{other}` in a format is not supported by canonc")),
    }
}

/// `text.format(*positional, **keywords)`.
pub(crate) fn braces(
    text: &str,
    positional: &[Value],
    keywords: &[(String, Value)],
) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    let (mut automatic, mut has_numbers) = (0, false);
    while let Some(at) = rest.find(['{', '}']) {
        let (plain, from) = rest.split_at(at);
        out += plain;
        if from.starts_with("{{") || from.starts_with("}}") {
            out += from.get(..1).unwrap_or_default();
            rest = from.get(2..).unwrap_or_default();
            continue;
        }
        let inside = from.strip_prefix('{').ok_or("Single '}' encountered in format string")?;
        let (field, after) =
            inside.split_once('}').ok_or("Single '{' encountered in format string")?;
        rest = after;
        if field.contains('{') {
            return Err("a field inside a field of a format is not supported by canonc".to_owned());
        }
        let (name, form) = field.split_once(':').unwrap_or((field, ""));
        let (name, conversion) = name.split_once('!').unwrap_or((name, ""));
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, path) = name.split_at(end);
        let is_numbered = first.parse::<usize>().is_ok();
        if is_numbered && automatic > 0 || first.is_empty() && has_numbers {
            return Err("a format has numbers in all its fields or in none".to_owned());
        }
        has_numbers |= is_numbered;
        let value = match first.parse::<usize>() {
            Ok(index) => positional.get(index).cloned(),
            Err(_) if first.is_empty() => {
                automatic += 1;
                positional.get(automatic - 1).cloned()
            }
            Err(_) => keywords.iter().find(|(key, _)| key == first).map(|(_, value)| value.clone()),
        };
        let mut value =
            value.ok_or_else(|| format!("the format has no value for `{{{field}}}`"))?;
        value = along(value, path)?;
        value = match conversion {
            "" => value,
            "s" => Value::from(value.text()?),
            "r" => Value::from(value.repr()?),
            other => return Err(format!("`!{other}` in a format is not supported by canonc")),
        };
        out += &formatted(&value, form)?;
        out = checked(out)?;
    }
    Ok(out + rest)
}

/// The part of a value at `.attribute[item]…`.
fn along(mut value: Value, path: &str) -> Result<Value, String> {
    for part in path.split(['.', '[']).filter(|part| !part.is_empty()) {
        value = match part.strip_suffix(']') {
            Some(key) => {
                let key = key.parse().map_or_else(|_| Value::from(key), Value::Int);
                crate::lookup::item(&value, &key)?
            }
            None => crate::lookup::attribute(&value, part)?,
        };
    }
    Ok(value)
}

/// `format(value, form)`.
fn formatted(value: &Value, form: &str) -> Result<String, String> {
    if form.is_empty() {
        return value.text();
    }
    let parsed = Form::of_braces(form)?;
    match (value, parsed.kind) {
        (Value::Str(text), None | Some('s'))
            if parsed.sign.is_none() && parsed.align != Some('=') && !parsed.comma =>
        {
            Ok(parsed.text(text))
        }
        (Value::Int(_) | Value::Bool(_), Some(kind @ ('d' | 'x' | 'X' | 'o' | 'b')))
            if parsed.precision.is_none() =>
        {
            parsed.number_text(value, kind)
        }
        (Value::Int(_), None) if parsed.precision.is_none() => parsed.number_text(value, 'd'),
        (Value::Int(_) | Value::Bool(_) | Value::Float(_), Some(kind @ ('f' | 'F' | '%'))) => {
            parsed.number_text(value, if kind == '%' { '%' } else { 'f' })
        }
        _ => Err(refused(form)),
    }
}
