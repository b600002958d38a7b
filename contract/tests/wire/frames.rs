//! Frames from arbitrary bytes.

use modelbench_contract::wire::{Request, Response, frame};
use proptest::prelude::*;

use crate::refusals::Recorder;

/// Bytes that are noise, or a frame's start with lengths of any size, or JSON that is nearly a message.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let noise = prop::collection::vec(any::<u8>(), 0..400);
    let lengths = (0u32..200_000, prop_oneof![0u64..64, any::<u64>()]);
    let text = prop_oneof![
        "\\PC{0,60}".prop_map(String::into_bytes),
        r#"\{"(op|is)":"(sync|read|done|values|index|error)"(,"(shape|value|tensor)":[\[0-9,\]-]{0,12})?\}"#
            .prop_map(String::into_bytes),
        Just([vec![b'['; 60_000], vec![b'1']].concat()),
        prop::collection::vec(any::<u8>(), 0..60),
    ];
    let framed =
        (lengths, text, any::<bool>(), noise.clone()).prop_map(|((header, body), text, honest, rest)| {
            let header = if honest { text.len() as u32 } else { header };
            [&header.to_le_bytes()[..], &body.to_le_bytes(), &text, &rest].concat()
        });
    prop_oneof![noise, framed]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    /// `read` makes no buffer that it does not ask the stream to fill, so what it asks for is what it allocates.
    #[test]
    fn reading_never_panics_and_asks_for_little_more_than_is_there(
        bytes in bytes(),
        limit in prop_oneof![Just(0), 0u64..1000, any::<u64>()],
    ) {
        let there = bytes.len();
        let mut stream = Recorder { bytes: bytes.clone(), asked: 0 };
        let _ = frame::read::<Request>(&mut stream, limit);
        prop_assert!(stream.asked <= there + (2 << 20));
        let mut stream = Recorder { bytes, asked: 0 };
        if let Ok((_, body)) = frame::read::<Response>(&mut stream, limit) {
            prop_assert!(body.len() as u64 <= limit && body.len() <= there);
            prop_assert!(stream.asked <= there);
        }
    }
}
