//! What can put foreign code between a backend and its device, or send the backend to another device or driver:
//! environment variables, implicit Vulkan layers and the system's preload list.
//!
//! Interference is no proof of a fraud; debuggers and profilers work this way. But what was measured under it may not
//! be the backend's own doing, so a certified run must be free of it.

mod files;
mod layers;
mod variables;

pub(super) use files::preload_list;
pub(super) use layers::{Switch, implicit_layers};
pub(super) use variables::{Effect, effect};
