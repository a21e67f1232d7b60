//! Plugins that loaded: they are asked a little.

use blis_plugin::check::{setup, ties};
use blis_plugin::inputs::GuestCall;
use blis_plugin::{Limits, Plugin};

/// Starts `plugin` as everything it says it is, and asks it about four instances. An answer is in range,
/// or a fault that says something; the state that it saves is one that it takes back.
pub fn ask_a_little(plugin: &dyn Plugin, limits: &Limits) {
    for &kind in &plugin.description().kinds {
        let start = || plugin.start(&setup(plugin, kind, 4, limits));
        let mut guest = match start() {
            Ok(guest) => guest,
            Err(fault) => {
                assert!(!fault.to_string().is_empty());
                continue;
            }
        };
        for item in [0, 15] {
            if let Err(fault) = GuestCall::plausible(kind, 4, item).run(&mut guest, &ties()) {
                assert!(!fault.to_string().is_empty());
            }
        }
        if let (Ok(state), Ok(mut other)) = (guest.save(), start()) {
            let _ = other.restore(&state);
        }
    }
}
