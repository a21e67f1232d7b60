#![no_main]

use std::io::Cursor;

use blis_report::decisions::{Diff, LineFilter, Listing, RequestHistory, Top, TopBy, TraceReader};
use blis_sim::ids::RequestId;

// Whatever the bytes are, `blis decisions` reads them to the end or reports an error.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let open = || TraceReader::new(Box::new(Cursor::new(bytes.to_vec())), &"fuzz".into());
    let reader = match open() {
        Ok(reader) => reader,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut listing = Listing::new(reader, LineFilter::default());
    assert!(!listing.heading().is_empty());
    let whole = loop {
        match listing.next_text(false) {
            Ok(Some(line)) => assert!(line.ends_with('\n')),
            Ok(None) => break true,
            Err(error) => break error.to_string().is_empty(),
        }
    };
    for by in [TopBy::ScoreRegret, TopBy::Margin, TopBy::Ttft, TopBy::E2e, TopBy::Wait] {
        let top = Top::from_reader(&mut open().expect("as before"), by, 3);
        assert!(top.is_ok() == whole && top.is_ok_and(|top| !top.to_string().is_empty()) == whole);
    }
    for request in [0, 1, 7] {
        let story = RequestHistory::from_reader(&mut open().expect("as before"), RequestId(request));
        assert_eq!(story.is_ok(), whole);
        assert!(story.ok().flatten().is_none_or(|story| !story.to_string().is_empty()));
    }
    let diff = Diff::between(["a".into(), "b".into()], open, open);
    assert_eq!(diff.is_ok(), whole);
    assert!(diff.is_ok_and(|diff| diff.to_string().contains("no decision differs")) == whole);
});
