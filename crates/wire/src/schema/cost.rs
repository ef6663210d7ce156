//! What checking an answer may cost at most. Schemas that apply several others to the same value multiply the work with
//! each level of the answer, and one that applies itself to the same value never ends.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Keywords whose schemas apply to the same value.
const SAME: [&str; 8] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"];
/// Keywords whose schemas apply to what is inside the value.
const INSIDE: [&str; 8] = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "propertyNames",
];
/// Keywords that make the cost hard to tell, or refer elsewhere by rules of their own.
const BEYOND: [&str; 7] =
    ["$dynamicRef", "$recursiveRef", "unevaluatedItems", "unevaluatedProperties", "$id", "$anchor", "dependencies"];

/// Most schemas that may apply to one value.
const MAX_AT_ONE_VALUE: u64 = 1_000;
/// Most applications of a schema to a value in one check.
const MAX_VISITS: u64 = 200_000;
/// How deep applications may nest in one check.
const MAX_NESTED: u64 = 512;

/// What a schema costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    /// Most schemas that apply to one value because one is applied to it.
    here: Reach,
}

/// What applying a schema to a value reaches at that value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Reach {
    /// Schemas applied to it, this one included.
    schemas: u64,
    /// Of those, how many look inside it.
    inward: u64,
    /// How deep they nest.
    depth: u64,
}

impl Cost {
    /// The cost of a schema; `None` where it can't be told or is too high whatever the answer.
    pub(super) fn of(schema: &Value) -> Option<Self> {
        let mut survey = Survey { root: schema, known: HashMap::new() };
        let mut here = Reach::default();
        survey.everywhere(schema, &mut here)?;
        Some(Self { here })
    }

    /// Whether an answer may be checked.
    pub(super) fn allows(&self, answer: &Value) -> bool {
        let (values, depth) = size(answer);
        let fan = self.here.inward.max(1).checked_pow(u32::try_from(depth).unwrap_or(u32::MAX));
        let visits =
            fan.and_then(|fan| fan.checked_mul(values)).and_then(|all| all.checked_mul(self.here.schemas.max(1)));
        visits.is_some_and(|visits| visits <= MAX_VISITS) && self.here.depth.saturating_mul(depth) <= MAX_NESTED
    }
}

/// How many values there are in a value, itself included, and how deep they nest.
fn size(value: &Value) -> (u64, u64) {
    let inside = |all: &mut dyn Iterator<Item = &Value>| {
        all.map(size).fold((1, 0), |(count, deepest), (more, depth)| (count + more, depth.max(deepest)))
    };
    let (count, depth) = match value {
        Value::Array(items) => inside(&mut items.iter()),
        Value::Object(members) => inside(&mut members.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (1, 0),
    };
    (count, depth + 1)
}

struct Survey<'a> {
    root: &'a Value,
    /// By address; nothing while it is being surveyed: reaching it again then is a circle.
    known: HashMap<*const Value, Option<Reach>>,
}

impl<'a> Survey<'a> {
    /// Surveys every schema of the document, wherever it stands, and keeps the most that any reaches.
    fn everywhere(&mut self, node: &'a Value, most: &mut Reach) -> Option<()> {
        match node {
            Value::Object(members) => {
                let Reach { schemas, inward, depth } = self.reach(node)?;
                most.schemas = most.schemas.max(schemas);
                most.inward = most.inward.max(inward);
                most.depth = most.depth.max(depth);
                members.values().try_for_each(|member| self.everywhere(member, most))
            }
            Value::Array(items) => items.iter().try_for_each(|item| self.everywhere(item, most)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(()),
        }
    }

    /// What applying a schema reaches at the same value; `None` where it never ends or is too much.
    fn reach(&mut self, schema: &'a Value) -> Option<Reach> {
        let Value::Object(members) = schema else { return Some(Reach { schemas: 1, inward: 0, depth: 1 }) };
        let address = std::ptr::from_ref(schema);
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        self.known.insert(address, None);
        let reach = self.reach_of(members)?;
        self.known.insert(address, Some(reach));
        Some(reach)
    }

    fn reach_of(&mut self, members: &'a Map<String, Value>) -> Option<Reach> {
        if BEYOND.iter().any(|keyword| members.contains_key(*keyword)) {
            return None;
        }
        let inward = INSIDE.iter().any(|keyword| members.contains_key(*keyword));
        let mut reach = Reach { schemas: 1, inward: u64::from(inward), depth: 1 };
        let mut deepest = 0;
        for schema in self.at_the_same_value(members)? {
            let more = self.reach(schema)?;
            reach.schemas = reach.schemas.saturating_add(more.schemas);
            reach.inward = reach.inward.saturating_add(more.inward);
            deepest = deepest.max(more.depth);
        }
        reach.depth += deepest;
        (reach.schemas <= MAX_AT_ONE_VALUE).then_some(reach)
    }

    fn at_the_same_value(&self, members: &'a Map<String, Value>) -> Option<Vec<&'a Value>> {
        let mut found = Vec::new();
        for keyword in SAME {
            match members.get(keyword) {
                Some(Value::Array(schemas)) => found.extend(schemas),
                Some(Value::Object(by_name)) if keyword == "dependentSchemas" => found.extend(by_name.values()),
                Some(schema) => found.push(schema),
                None => {}
            }
        }
        if let Some(reference) = members.get("$ref") {
            // Only what stands in this document is ever looked at.
            let pointer = reference.as_str()?.strip_prefix('#')?;
            found.push(self.root.pointer(pointer)?);
        }
        Some(found)
    }
}
