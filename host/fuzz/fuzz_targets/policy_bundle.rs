#![no_main]

use blis_config::policy::{Bundle, Choices, NoPlugins, PolicySettings};
use blis_diag::YamlPage;

// An accepted bundle can be explained, and its explanation is a bundle with the same settings.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let read =
        |text: &str| PolicySettings::choose(&Choices::default(), Some(&Bundle::parse("fuzz", text)?), &NoPlugins);
    match read(text) {
        Ok(settings) => {
            let mut page = YamlPage::default();
            settings.explain(&mut page);
            assert_eq!(read(&page.to_string()).expect("explained"), settings);
        }
        Err(error) => assert!(error.to_string().contains("\nhint: ")),
    }
});
