mod broker;
mod calls;
mod failures;
mod mitigating;
mod retrying;
mod waiting;
