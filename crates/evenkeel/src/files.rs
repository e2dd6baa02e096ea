//! Names of what `serve` leaves in the data folder for commands to find.

/// The admin API's address.
pub(crate) const ADMIN_URL: &str = "admin-url";
/// The admin API's token, 0600.
pub(crate) const ADMIN_TOKEN: &str = "admin-token";
/// The OSB API's address.
pub(crate) const OSB_URL: &str = "osb-url";
/// The generated password of [`GENERATED_USER`], 0600.
pub(crate) const OSB_PASSWORD: &str = "osb-password";
/// Who may use the OSB API where the configuration names nobody.
pub(crate) const GENERATED_USER: &str = "platform";
