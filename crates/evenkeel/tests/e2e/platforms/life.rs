//! One life of a service instance, as users wish it: made, bound, changed, and mostly deleted, at
//! times all at once.

use std::time::Instant;

use super::desk::{Desk, Instance};
use super::{Platform, Updated};

/// The instance as it stands at the end, if it still does.
pub(crate) async fn live<P: Platform>(mut desk: Desk) -> Option<Instance> {
    let desk = &mut desk;
    let mut instance = desk.new_instance();
    if !P::create(desk, &instance).await {
        desk.delete_instance(&instance).await;
        return None;
    }
    desk.agrees(&instance).await;
    for _ in 0..desk.dice.below(5) {
        match desk.dice.below(12) {
            0..4 => {
                let binding = desk.new_binding(&instance);
                let bound = P::bind(desk, &instance, &binding).await;
                instance
                    .bindings
                    .extend(bound.map(|credentials| (binding, credentials)));
            }
            4..7 => instance = change::<P>(desk, instance).await,
            7..9 => unbind_one(desk, &mut instance).await,
            9 => instance = bind_twice::<P>(desk, instance).await,
            10 => instance = bind_and_change::<P>(desk, instance).await,
            _ => {
                delete_amid::<P>(desk, &instance).await;
                return None;
            }
        }
        P::look_again(desk, &instance).await;
    }
    if desk.dice.chance(30) {
        return Some(instance);
    }
    // Platforms unbind first, as far as they know what is bound.
    if desk.dice.chance(60) {
        while !instance.bindings.is_empty() {
            unbind_one(desk, &mut instance).await;
        }
    }
    desk.delete_instance(&instance).await;
    None
}

async fn unbind_one(desk: &mut Desk, instance: &mut Instance) {
    let Some(binding) = instance.bindings.keys().next().cloned() else {
        return;
    };
    desk.delete_binding(instance, &binding).await;
    instance.bindings.remove(&binding);
}

/// An update, asked for until the platform knows that it has happened.
async fn change<P: Platform>(desk: &mut Desk, mut instance: Instance) -> Instance {
    let change = desk.new_change(&instance);
    let since = Instant::now();
    for tries in 0.. {
        match desk
            .update(&instance, P::patch(&instance, &change), tries)
            .await
        {
            Updated::Done => {
                change.apply(&mut instance);
                desk.agrees(&instance).await;
                return instance;
            }
            // What failed has changed nothing (H11, U11).
            Updated::Failed => desk.agrees(&instance).await,
            Updated::Unknown => {}
        }
        // A bind that waits for its turn keeps it waiting too.
        assert!(
            since.elapsed() < desk.client.patience,
            "seed {}: {instance:?} cannot be updated",
            desk.seed
        );
        tokio::time::sleep(super::PAUSE).await;
    }
    unreachable!("tries have no end")
}

async fn bind_twice<P: Platform>(desk: &mut Desk, mut instance: Instance) -> Instance {
    let names = [desk.new_binding(&instance), desk.new_binding(&instance)];
    let (mut one, mut two) = (desk.fork(), desk.fork());
    (one.calm, two.calm) = (true, true);
    let (one, two) = tokio::join!(
        P::bind(&mut one, &instance, &names[0]),
        P::bind(&mut two, &instance, &names[1]),
    );
    for (name, credentials) in names.into_iter().zip([one, two]) {
        instance
            .bindings
            .extend(credentials.map(|credentials| (name, credentials)));
    }
    instance
}

async fn bind_and_change<P: Platform>(desk: &mut Desk, instance: Instance) -> Instance {
    let binding = desk.new_binding(&instance);
    let (mut binding_desk, mut update_desk) = (desk.fork(), desk.fork());
    let (bound, mut changed) = tokio::join!(
        P::bind(&mut binding_desk, &instance, &binding),
        change::<P>(&mut update_desk, instance.clone()),
    );
    changed
        .bindings
        .extend(bound.map(|credentials| (binding, credentials)));
    changed
}

/// The instance is deleted while something else is asked for it. Whoever comes first, it is gone
/// in the end with all that was bound.
async fn delete_amid<P: Platform>(desk: &mut Desk, instance: &Instance) {
    let (mut deleter, mut other) = (desk.fork(), desk.fork());
    let pause = desk.dice.millis(120);
    let delete = async {
        tokio::time::sleep(pause).await;
        deleter.delete_instance(instance).await;
    };
    match desk.dice.below(3) {
        0 => {
            let binding = desk.new_binding(instance);
            tokio::join!(delete, P::bind(&mut other, instance, &binding));
        }
        1 => {
            let change = other.new_change(instance);
            tokio::join!(
                delete,
                other.update(instance, P::patch(instance, &change), 0)
            );
        }
        _ => {
            let mut instance = instance.clone();
            tokio::join!(delete, unbind_one(&mut other, &mut instance));
        }
    }
}
