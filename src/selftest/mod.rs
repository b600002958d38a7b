//! The kit against the zoo: every misbehaving backend must be caught, and every allowed one must survive.
//!
//! Each behaviour gets a worker of its own and the cases of a set in one fixed mixed order, until two of them have
//! rejected it. What does not depend on the behaviour (operands, oracle, cpu-ref, the truth about models) is found out
//! once for each thread. Where the cases alone do not reject it, the gate and the label are asked as for a real run.

mod killers;
mod order;
mod pool;
mod trial;

pub use killers::{Killers, KillersError};
pub use order::mixed;
pub use pool::run;
pub use trial::{Bench, Killer, SelftestError, Trial};
