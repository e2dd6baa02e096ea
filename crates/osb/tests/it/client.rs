mod broker;
mod calls;
mod failures;
mod waiting;
