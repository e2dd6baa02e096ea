//! Where a dashboard is, said before an instance is made.

use evenkeel_core::ids::InstanceId;

use super::{SMALLEST, good};

#[test]
fn an_id_of_any_characters_stays_one_part_of_the_url() {
    let text = SMALLEST.replace(
        "name: db",
        "name: db, dashboard_url: 'https://dash/{instance_id}?of={instance_id}'",
    );
    let service = good(&text).service;
    let at = |id: &str| {
        let id = InstanceId::new(id.to_owned()).expect("an id");
        service.dashboard_of(&id).expect("a dashboard")
    };
    assert_eq!(at("a-Z_0.~"), "https://dash/a-Z_0.~?of=a-Z_0.~");
    assert_eq!(
        at("../ü?&{instance_id}"),
        "https://dash/..%2F%C3%BC%3F%26%7Binstance_id%7D?of=..%2F%C3%BC%3F%26%7Binstance_id%7D"
    );
    let id = InstanceId::new("i".to_owned()).expect("an id");
    assert_eq!(good(SMALLEST).service.dashboard_of(&id), None);
}
