#![no_main]

use blis_http::sse::EventReader;

libfuzzer_sys::fuzz_target!(|input: (&[u8], u8)| {
    let (bytes, part) = input;
    let read = |parts: &mut dyn Iterator<Item = &[u8]>| {
        let (mut reader, mut events) = (EventReader::default(), Vec::new());
        for part in parts {
            if let Err(error) = reader.read(part, |event| events.push(event.to_owned())) {
                return (events, Some(error));
            }
        }
        (events, None)
    };
    let whole = read(&mut std::iter::once(bytes));
    assert_eq!(whole, read(&mut bytes.chunks(usize::from(part).max(1))));
});
