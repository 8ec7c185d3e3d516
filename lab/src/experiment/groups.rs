//! Parameter groups: frozen parameters, those that Muon updates, and multipliers of learning rate and weight decay.
//!
//! An entry must match a parameter, unless it ends in `?`, and no two entries of one field may match the same one. The
//! digest changes with the update of any parameter, since graphs do not contain the roles that patterns name.

use compiler::digest::Digest;
use compiler::graph::Param;
use compiler::plan::{Muon, MuonScale, ParamUpdate, UpdateRule};
use dsl::Decimal;

use super::access::{list, real, text, truth};
use crate::error::FieldProblem;
use crate::field::{FieldValue, Fields, Pattern};

const MUON: &str = "optimizer.muon";
const FROZEN: &str = "optimizer.frozen";
const LR: &str = "optimizer.lr_multipliers";
const DECAY: &str = "optimizer.weight_decay_multipliers";
const TAG: &str = "canonc.groups.v1";

/// The update of each parameter; empty if all have the plain one.
pub(super) fn updates(
    arch: &str,
    params: &[Param],
    fields: &Fields,
    problems: &mut Vec<FieldProblem>,
) -> Vec<ParamUpdate> {
    let mut updates = vec![ParamUpdate::PLAIN; params.len()];
    let mut each = |path: &str, set: &mut dyn FnMut(&mut ParamUpdate, &FieldValue)| {
        let matched = members(arch, params, path, list(fields, path), problems);
        for (update, entry) in updates.iter_mut().zip(matched) {
            if let Some(entry) = entry {
                set(update, entry);
            }
        }
    };
    each(LR, &mut |update, entry| update.lr_factor = multiplier(entry));
    each(DECAY, &mut |update, entry| update.decay_factor = multiplier(entry));
    let muon = Muon {
        momentum: real(fields, "optimizer.momentum"),
        nesterov: truth(fields, "optimizer.nesterov"),
        scale: MuonScale::named(text(fields, "optimizer.muon_scale")).unwrap_or(MuonScale::Keller),
    };
    each(MUON, &mut |update, _| update.rule = UpdateRule::Muon(muon));
    each(FROZEN, &mut |update, _| {
        *update = ParamUpdate { rule: UpdateRule::Frozen, ..ParamUpdate::PLAIN };
    });
    whole_matrices(params, &updates, fields, problems);
    let decay = real(fields, "optimizer.weight_decay");
    if let Some(update) = updates.iter().find(|update| decay.mul(update.decay_factor).is_err()) {
        problems.push(FieldProblem::new(
            DECAY,
            "bad-multiplier",
            format!("{} x weight_decay {decay} cannot be stored exactly", update.decay_factor),
            "write numbers with fewer digits",
        ));
    }
    let frozen = |update: &ParamUpdate| update.rule == UpdateRule::Frozen;
    if !params.is_empty() && updates.iter().all(frozen) {
        problems.push(FieldProblem::new(
            FROZEN,
            "nothing-learns",
            format!("every parameter of `{arch}` is frozen, so nothing would be trained"),
            "leave out the patterns of those to train",
        ));
    }
    if updates.iter().all(|update| *update == ParamUpdate::PLAIN) { Vec::new() } else { updates }
}

/// Muon updates matrices, and only whole ones.
fn whole_matrices(
    params: &[Param],
    updates: &[ParamUpdate],
    fields: &Fields,
    problems: &mut Vec<FieldProblem>,
) {
    let by_muon = |update: &ParamUpdate| matches!(update.rule, UpdateRule::Muon(_));
    let mut matrices = params.iter().zip(updates).filter(|(_, update)| by_muon(update));
    if let Some((param, _)) = matrices.clone().find(|(param, _)| param.shape.len() < 2) {
        problems.push(FieldProblem::new(
            MUON,
            "no-matrix",
            format!(
                "{MUON} names `{}`, which has the shape {:?}: Muon updates matrices",
                param.path, param.shape
            ),
            "name matrices only, such as \"layers.**:linear\"; AdamW updates the rest",
        ));
    }
    let shard = text(fields, "platform.shard");
    if matrices.next().is_some() && shard != "none" {
        problems.push(FieldProblem::new(
            "platform.shard",
            "divided-matrices",
            format!(
                "platform.shard is \"{shard}\" and optimizer.kind is \"muon\": Muon needs whole matrices, of which each rank would hold a part"
            ),
            "write shard = \"none\" under [platform], or kind = \"adamw\" under [optimizer]",
        ));
    }
}

/// The digest of [`text_of`]; `None` if all updates are the plain one.
pub(super) fn digest(params: &[Param], updates: &[ParamUpdate]) -> Option<Digest> {
    let lines = text_of(params, updates);
    (!lines.is_empty()).then(|| Digest::of(TAG, &lines))
}

/// A line for each parameter whose update is not the plain one.
pub(super) fn text_of(params: &[Param], updates: &[ParamUpdate]) -> String {
    let changed = params.iter().zip(updates).filter(|(_, update)| **update != ParamUpdate::PLAIN);
    changed.map(|(param, update)| format!("{} {}\n", param.path, shown(update))).collect()
}

/// An update in one line: its rule, and its factors of learning rate and weight decay.
fn shown(update: &ParamUpdate) -> String {
    let ParamUpdate { rule, lr_factor, decay_factor } = update;
    match rule {
        UpdateRule::Frozen => "frozen".to_owned(),
        UpdateRule::Muon(_) => format!("muon {lr_factor} {decay_factor}"),
        UpdateRule::AdamW => format!("adamw {lr_factor} {decay_factor}"),
    }
}

/// By parameter, the entry that matches it.
fn members<'a>(
    arch: &str,
    params: &[Param],
    path: &str,
    entries: &'a [FieldValue],
    problems: &mut Vec<FieldProblem>,
) -> Vec<Option<&'a FieldValue>> {
    let mut matched: Vec<Option<&FieldValue>> = vec![None; params.len()];
    for entry in entries {
        let text = pattern_of(entry);
        let Some(pattern) = Pattern::parse(text) else { continue };
        let mut any = false;
        for (param, matched) in params.iter().zip(&mut matched) {
            if !pattern.matches(param) {
                continue;
            }
            any = true;
            if let Some(other) = matched {
                problems.push(FieldProblem::new(
                    path,
                    "two-groups",
                    format!(
                        "`{}` and `{text}` of {path} both match `{}`",
                        pattern_of(other),
                        param.path
                    ),
                    "narrow one of the two, so that each parameter has one entry",
                ));
                return none_matched(params.len());
            }
            *matched = Some(entry);
        }
        if !any && !pattern.optional {
            problems.push(no_match(arch, params, path, text, &pattern));
        }
    }
    matched
}

/// The result after a problem: no parameter is matched.
fn none_matched<'a>(count: usize) -> Vec<Option<&'a FieldValue>> {
    vec![None; count]
}

fn no_match(
    arch: &str,
    params: &[Param],
    path: &str,
    text: &str,
    pattern: &Pattern,
) -> FieldProblem {
    let mut roles: Vec<&str> = params.iter().map(|param| param.role.as_str()).collect();
    roles.sort_unstable();
    roles.dedup();
    // Layers are alike, so each path counts once, with `*` for the number of the layer.
    let general = |param: &Param| {
        let parts = param.path.split('.');
        let part = |part: &str| match part.bytes().all(|b| b.is_ascii_digit()) {
            true => "*".to_owned(),
            false => part.to_owned(),
        };
        parts.map(part).collect::<Vec<_>>().join(".")
    };
    let mut paths: Vec<String> = params.iter().map(general).collect();
    paths.sort();
    paths.dedup();
    let wrong_role = pattern.role().filter(|role| !roles.contains(role));
    let known = match (wrong_role, pattern.path()) {
        (Some(role), _) => match dsl::suggest(role, roles.iter().copied()) {
            Some(nearest) => format!("did you mean the role `{nearest}`?"),
            None => format!("its roles are {}", roles.join(", ")),
        },
        (None, Some(path)) => match dsl::suggest(&path, paths.iter().map(String::as_str)) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!("its parameters are {}", paths.join(", ")),
        },
        (None, None) => format!("its parameters are {}", paths.join(", ")),
    };
    FieldProblem::new(
        path,
        "no-such-parameters",
        format!("`{text}` of {path} matches no parameter of arch `{arch}`"),
        format!("{known} If another arch of the comparison has such parameters, write \"{text}?\""),
    )
}

/// The pattern of an entry, which is a text, or a pair of a text and a number.
fn pattern_of(entry: &FieldValue) -> &str {
    match entry {
        FieldValue::Text(text) => text,
        FieldValue::List(pair) => pair.first().map_or("", pattern_of),
        FieldValue::Int(_) | FieldValue::Big(_) | FieldValue::Real(_) | FieldValue::Bool(_) => "",
    }
}

fn multiplier(entry: &FieldValue) -> Decimal {
    match entry {
        FieldValue::List(pair) => match pair.get(1) {
            Some(FieldValue::Real(x)) => *x,
            Some(_) | None => Decimal::ONE,
        },
        FieldValue::Text(_)
        | FieldValue::Int(_)
        | FieldValue::Big(_)
        | FieldValue::Real(_)
        | FieldValue::Bool(_) => Decimal::ONE,
    }
}
