use evenkeel_osb::{Operation, Query, decode_segment, encode_segment};

// H12
#[test]
fn an_id_in_a_path_is_decoded_once_and_may_hold_anything() {
    for (segment, id) in [
        ("plain-1._~", "plain-1._~"),
        ("a%2Fb", "a/b"),
        ("a%252Fb", "a%2Fb"),
        ("a+b", "a+b"),
        ("a%20b", "a b"),
        ("%F0%9F%98%80", "😀"),
        ("100%", "100%"),
        ("%zz", "%zz"),
        ("%00", "\0"),
    ] {
        assert_eq!(decode_segment(segment).as_deref(), Ok(id));
    }
    assert_eq!(encode_segment("a/b c+😀%"), "a%2Fb%20c%2B%F0%9F%98%80%25");
    assert_eq!(encode_segment("plain-1._~"), "plain-1._~");
}

// H12
#[test]
fn an_id_that_is_empty_or_not_utf_8_is_a_typed_error() {
    assert_eq!(
        decode_segment("").unwrap_err().to_string(),
        "an id in the path is empty"
    );
    assert_eq!(
        decode_segment("%ff").unwrap_err().to_string(),
        "an id in the path is not UTF-8"
    );
}

fn operation(query: &str) -> Option<String> {
    Query::parse(query)
        .operation
        .map(|operation| operation.as_str().to_owned())
}

// H12
#[test]
fn in_a_query_a_plus_sign_is_a_space() {
    assert_eq!(operation("operation=op+1%2F2").as_deref(), Some("op 1/2"));
    assert_eq!(operation("operation=a%2Bb").as_deref(), Some("a+b"));
    assert_eq!(operation("operation=a%252Fb").as_deref(), Some("a%2Fb"));
    assert_eq!(operation("operation=a=b").as_deref(), Some("a=b"));
}

// H13
#[test]
fn repeated_unknown_and_empty_parameters_are_tolerated() {
    let query =
        Query::parse("service_id=s&&=&x=1&plan_id=&service_id=s&plan_id=p&flag&%ff=%ff&plan_id=q");
    assert_eq!(query.service_id.as_deref(), Some("s"));
    assert_eq!(query.plan_id.as_deref(), Some("p"));
    assert_eq!(Query::parse(""), Query::default());
    assert_eq!(
        Query::parse("service%5Fid=s").service_id.as_deref(),
        Some("s")
    );
}

// H13
#[test]
fn only_true_accepts_incomplete() {
    for (query, accepts) in [
        ("accepts_incomplete=true", true),
        ("accepts_incomplete=&accepts_incomplete=true", true),
        ("accepts_incomplete=false", false),
        ("accepts_incomplete=", false),
        ("accepts_incomplete", false),
        ("accepts_incomplete=TRUE", false),
        ("accepts_incomplete=1", false),
        ("accepts_incomplete=yes+please", false),
        ("", false),
    ] {
        assert_eq!(Query::parse(query).accepts_incomplete, accepts, "{query}");
    }
}

// H14
#[test]
fn an_empty_operation_is_none() {
    assert_eq!(operation("operation="), None);
    assert_eq!(operation("operation"), None);
}

// H13, L5
#[test]
fn a_parameter_that_cannot_be_read_is_absent_and_missed_only_where_it_is_required() {
    let query =
        Query::parse("plan_id=p&service_id=%ff&operation=%ff&accepts_incomplete=%ff&whatever=%ff");
    assert_eq!(
        query,
        Query {
            plan_id: Some("p".into()),
            ..Query::default()
        }
    );
    let error = query.required_service_id().unwrap_err();
    assert_eq!(
        error.to_string(),
        "?service_id: is missing, empty or not UTF-8: this query parameter is required"
    );
    let long = "a".repeat(10_001);
    assert_eq!(operation(&format!("operation={long}")), None);
    // Whoever repeats it until it can be read is understood.
    let again = format!("service_id=%ff&service_id=s&operation={long}&operation=op");
    assert_eq!(Query::parse(&again).required_service_id(), Ok("s"));
    assert_eq!(operation(&again).as_deref(), Some("op"));
}

#[test]
fn a_delete_names_the_parameter_that_it_misses() {
    let query = Query::parse("service_id=&plan_id=p");
    assert_eq!(query.required_plan_id(), Ok("p"));
    assert_eq!(
        query.required_service_id().unwrap_err().pointer,
        "?service_id"
    );
}

#[test]
fn a_query_is_written_so_that_it_reads_the_same() {
    let query = Query {
        service_id: Some("s&=+ /".into()),
        plan_id: Some("%2F".into()),
        operation: Some(Operation::received("op 1/2").unwrap()),
        accepts_incomplete: true,
    };
    assert_eq!(
        query.encode(),
        "accepts_incomplete=true&service_id=s%26%3D%2B%20%2F&plan_id=%252F&operation=op%201%2F2"
    );
    assert_eq!(Query::parse(&query.encode()), query);
    assert_eq!(Query::default().encode(), "");
}
