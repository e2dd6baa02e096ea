//! Schemas that no bundle may have, and what their author is told.

use insta::assert_snapshot;

use super::{SMALLEST, errors};

fn with(from: &str, to: &str) -> String {
    assert!(SMALLEST.contains(from), "nothing to replace");
    errors(SMALLEST.replace(from, to))
}

#[test]
fn a_schema_must_be_what_platforms_can_use() {
    let plan = |schema: &str| {
        with(
            "description: A small one",
            &format!("description: A, schemas: {{provision: {schema}}}"),
        )
    };
    assert_snapshot!(plan("{type: object}"), @"
    bundle.yml:4:56: plans[0].schemas.provision: `$schema` is missing
      hint: add $schema: http://json-schema.org/draft-04/schema#
    ");
    assert_snapshot!(plan("[]"), @"bundle.yml:4:56: plans[0].schemas.provision: expected a mapping, found a list");
    assert_snapshot!(plan("{$schema: 'http://example.com/mine'}"), @r#"
    bundle.yml:4:66: plans[0].schemas.provision.$schema: "http://example.com/mine" is no draft of JSON Schema
      hint: use http://json-schema.org/draft-04/schema#
    "#);
    let draft4 = "$schema: 'http://json-schema.org/draft-04/schema#'";
    assert_snapshot!(
        plan(&format!("{{{draft4}, type: objekt, properties: {{a: {{$ref: 'http://example.com/a.json'}}, b: {{$ref: '#/definitions/b'}}, c: {{type: [string, int], required: true}}, d: {{exclusiveMinimum: 3}}, $ref: {{type: string}}}}}}")),
        @r##"
    bundle.yml:4:115: plans[0].schemas.provision.type: "objekt" is no type of JSON
      hint: types are array, boolean, integer, null, number, object, string
    bundle.yml:4:146: plans[0].schemas.provision.properties.a.$ref: the reference "http://example.com/a.json" leads out of the schema
      hint: platforms may not fetch references: copy what it names under `definitions` and write #/definitions/NAME
    bundle.yml:4:186: plans[0].schemas.provision.properties.b.$ref: the reference "#/definitions/b" points at nothing
    bundle.yml:4:225: plans[0].schemas.provision.properties.c.type[1]: "int" is no type of JSON
      hint: types are array, boolean, integer, null, number, object, string
    bundle.yml:4:241: plans[0].schemas.provision.properties.c.required: must be a list of names
      hint: `required: true` on a property was draft 3: list the name in `required` of the object that holds the property
    bundle.yml:4:270: plans[0].schemas.provision.properties.d.exclusiveMinimum: must be true or false in draft 4
      hint: put the number into `minimum` and write exclusiveMinimum: true
    "##
    );
    assert_snapshot!(
        plan("{$schema: 'http://json-schema.org/draft-06/schema#', items: [{exclusiveMaximum: true}], anyOf: {}, required: a}"),
        @"
    bundle.yml:4:136: plans[0].schemas.provision.items[0].exclusiveMaximum: must be a number from draft 6 on
    bundle.yml:4:151: plans[0].schemas.provision.anyOf: expected a list, found a mapping
    bundle.yml:4:165: plans[0].schemas.provision.required: expected a list, found a text
      hint: write it as a list: [a]
    "
    );
    assert_snapshot!(plan(&format!("{{{draft4}, title: {}}}", "x".repeat(65_536))), @"bundle.yml:4:56: plans[0].schemas.provision: the schema has 65600 bytes as JSON, more than the 65536 allowed");
}

#[test]
fn a_schema_must_be_valid_in_its_own_draft() {
    let plan = |draft: &str, schema: &str| {
        let schema = format!("{{$schema: 'http{draft}', {schema}}}");
        with(
            "description: A small one",
            &format!("description: A, schemas: {{bind: {schema}}}"),
        )
    };
    let draft4 = "://json-schema.org/draft-04/schema#";
    assert_snapshot!(
        plan(draft4, "properties: {a: {minLength: '3', enum: []}, b: true}, dependencies: {a: {maxItems: -1}}"),
        @r##"
    bundle.yml:4:132: plans[0].schemas.bind.properties.a.minLength: is no valid schema: value is not of type "integer"
    bundle.yml:4:151: plans[0].schemas.bind.properties.b: is no valid schema: value is not of type "object"
    bundle.yml:4:176: plans[0].schemas.bind.dependencies.a: is no valid schema: value is not valid under any of the schemas listed in the 'anyOf' keyword
    "##
    );
    for draft in [
        "://json-schema.org/draft-06/schema#",
        "s://json-schema.org/draft-07/schema",
        "s://json-schema.org/draft/2019-09/schema",
        "s://json-schema.org/draft/2020-12/schema#",
    ] {
        let found = plan(draft, "properties: {a: {type: string, minLength: '3'}}");
        assert!(
            found.contains("plans[0].schemas.bind.properties.a.minLength: is no valid schema"),
            "{draft}: {found}"
        );
    }
}

#[test]
fn a_pattern_must_be_matched_in_linear_time() {
    let schema =
        "{$schema: 'http://json-schema.org/draft-07/schema', properties: {a: {pattern: '^(?=x)'}}}";
    let plan = format!("description: A, schemas: {{bind: {schema}}}");
    assert_snapshot!(with("description: A small one", &plan), @r##"
    bundle.yml:4:129: plans[0].schemas.bind.properties.a.pattern: is no pattern that can be used: value is not a "regex"
      hint: patterns are matched in linear time: without look-around and back-references, and not too large
    "##);
    let plan = plan.replace("^(?=x)", r"(a)\1");
    assert_snapshot!(with("description: A small one", &plan), @r##"
    bundle.yml:4:129: plans[0].schemas.bind.properties.a.pattern: is no pattern that can be used: value is not a "regex"
      hint: patterns are matched in linear time: without look-around and back-references, and not too large
    "##);
    let plan = plan.replace(r"(a)\1", "a{1000}{1000}{1000}");
    assert_snapshot!(with("description: A small one", &plan), @r##"
    bundle.yml:4:129: plans[0].schemas.bind.properties.a.pattern: is no pattern that can be used: value is not a "regex"
      hint: patterns are matched in linear time: without look-around and back-references, and not too large
    "##);
}

#[test]
fn every_draft_refuses_a_pattern_that_cannot_be_matched_in_linear_time() {
    for draft in [
        "draft-04/schema#",
        "draft-06/schema#",
        "draft-07/schema#",
        "draft/2019-09/schema",
        "draft/2020-12/schema",
    ] {
        for (place, keyword) in [
            (
                "properties.a.pattern",
                "properties: {a: {pattern: '(?!x)'}}",
            ),
            ("patternProperties", "patternProperties: {'(?!x)': {}}"),
        ] {
            let schema = format!("{{$schema: 'http://json-schema.org/{draft}', {keyword}}}");
            let plan = format!("description: A, schemas: {{update: {schema}}}");
            let found = with("description: A small one", &plan);
            let expected = format!("plans[0].schemas.update.{place}");
            assert!(
                found.contains(&expected) && found.contains("is no pattern that can be used"),
                "{draft}: {found}"
            );
        }
    }
}

#[test]
fn no_reference_leads_out_of_a_schema_wherever_it_is_written() {
    let away = "{$ref: 'http://example.com/a.json'}";
    for place in [
        format!("dependencies: {{a: {away}}}"),
        format!("dependentSchemas: {{a: {away}}}"),
        format!("contentSchema: {away}"),
        format!("properties: {{a: {{not: {{items: [{{anyOf: [{away}]}}]}}}}}}"),
        format!("properties: {{enum: {away}, default: true}}"),
        format!("patternProperties: {{'^a': {away}}}"),
        format!("unevaluatedProperties: {away}"),
        format!("x-parts: {{one: [{away}]}}"),
        "$dynamicRef: 'other.json#x'".to_owned(),
        "$ref: 'https://json-schema.org/draft/2020-12/schema'".to_owned(),
        "$id: 'http://example.com/b.json', properties: {a: {$ref: 'a.json'}}".to_owned(),
    ] {
        let schema =
            format!("{{$schema: 'https://json-schema.org/draft/2020-12/schema', {place}}}");
        let plan = format!("description: A, schemas: {{provision: {schema}}}");
        let found = with("description: A small one", &plan);
        assert!(
            found.contains("leads out of the schema"),
            "{place}: {found}"
        );
    }
    // What only looks like one.
    let values =
        "enum: [{$ref: 'http://x'}], default: {$ref: 'http://x'}, const: {$ref: 'http://x'}";
    let schema = format!(
        "{{$schema: 'https://json-schema.org/draft/2020-12/schema', properties: {{$ref: true, a: {{{values}}}}}}}"
    );
    super::good(&SMALLEST.replace(
        "description: A small one",
        &format!("description: A, schemas: {{provision: {schema}}}"),
    ));
}

#[test]
fn defaults_that_are_handed_to_actions_must_fit_their_schema() {
    let plan = |schema: &str| {
        let schema = format!("{{$schema: 'http://json-schema.org/draft-04/schema#', {schema}}}");
        with(
            "description: A small one",
            &format!("description: A, schemas: {{apply_defaults: true, provision: {schema}}}"),
        )
    };
    assert_snapshot!(
        plan("definitions: {gb: {type: integer, default: five}}, required: [x], properties: {disk: {type: object, properties: {gb: {$ref: '#/definitions/gb'}}}, colour: {enum: [red], default: blue}}"),
        @r##"
    bundle.yml:4:174: plans[0].schemas.provision.definitions.gb.default: does not fit its own schema: value is not of type "integer"
      hint: with apply_defaults this is what actions get
    bundle.yml:4:309: plans[0].schemas.provision.properties.colour.default: does not fit its own schema: value is not one of "red"
      hint: with apply_defaults this is what actions get
    "##
    );
    // Each definition names the next one so many times.
    let chain = |links: usize, times: usize| {
        let links: Vec<_> = (0..links)
            .map(|n| {
                let next = |name| format!("p{name}: {{$ref: '#/definitions/d{}'}}", n + 1);
                let all: Vec<_> = (0..times).map(next).collect();
                format!("d{n}: {{properties: {{{}}}}}", all.join(", "))
            })
            .collect();
        let (all, last) = (links.join(", "), links.len());
        plan(&format!(
            "definitions: {{{all}, d{last}: {{default: 1}}}}, properties: {{a: {{$ref: '#/definitions/d0'}}}}"
        ))
    };
    assert_snapshot!(chain(40, 1), @r##"bundle.yml:4:1859: plans[0].schemas.provision.definitions.d32: is no valid schema: its defaults cannot be applied: there are objects nested deeper than 32"##);
    assert_snapshot!(chain(20, 2), @r##"bundle.yml:4:1688: plans[0].schemas.provision.definitions.d18: is no valid schema: its defaults cannot be applied: there are too many schemas to look at"##);
}
