//! A warden's broker, and what is told of its lives.

use std::fs;

use reqwest::Method;
use serde_json::Value;

use super::{Broker, children, eventually};

impl Broker {
    /// The broker that a warden has started; waits for it.
    pub(crate) async fn under_warden(&self, warden: u32) -> u32 {
        eventually("the warden has a broker", || {
            let serves = |pid: &u32| {
                fs::read(format!("/proc/{pid}/cmdline"))
                    .is_ok_and(|line| line.split(|byte| *byte == 0).any(|arg| arg == b"serve"))
            };
            std::future::ready(children(warden).into_iter().find(serves))
        })
        .await
    }

    /// The boot of the broker that answers, if one does.
    pub(crate) async fn boot_id(&self) -> Option<String> {
        let url = fs::read_to_string(self.data().join("admin-url")).ok()?;
        let token = fs::read_to_string(self.data().join("admin-token")).ok()?;
        let url = format!("{}/admin/v1/status", url.trim());
        let asked = self.http.get(url).bearer_auth(token.trim()).send().await;
        let answer: Value = asked.ok()?.json().await.ok()?;
        // Before that not every earlier boot has been looked at.
        let ready = answer["ready"] == true;
        ready.then(|| answer["boot"].as_str().unwrap().to_owned())
    }

    /// Waits until a broker answers that is not of this boot, and ready; gives its boot.
    pub(crate) async fn next_boot(&self, before: &str) -> String {
        eventually("another broker is ready", || async {
            self.boot_id().await.filter(|boot| boot != before)
        })
        .await
    }

    /// One boot of the list that the admin API gives.
    pub(crate) async fn boot_in_list(&self, id: &str) -> Value {
        let list = self.admin(Method::GET, "/admin/v1/boots?limit=500").await;
        assert_eq!(list.status, 200, "{list:?}");
        let boots = list.body["boots"].as_array().unwrap().clone();
        boots
            .into_iter()
            .find(|boot| boot["id"] == id)
            .unwrap_or_else(|| panic!("{id} is not in {}", list.body))
    }
}
