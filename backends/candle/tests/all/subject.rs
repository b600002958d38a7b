//! The backend under test, as the tests of `backends/tests` know it.

use modelbench_candle::{Candle, CandleKv, CandleTensor};

pub(crate) type Subject = Candle;
pub(crate) type Tensor = CandleTensor;
pub(crate) type Kv = CandleKv;

/// Whether f32 tensors lie on the host, where they can be read in place.
pub(crate) const ON_HOST: bool = true;

pub(crate) fn subject() -> Subject {
    Candle::new().unwrap()
}
