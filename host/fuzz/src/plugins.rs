//! Plugins that could be loaded are called a few times.

use blis_plugin::check::setup;
use blis_plugin::inputs::{GuestCall, ties};
use blis_plugin::{Limits, Plugin};

/// Starts `plugin` as every kind that it declares, and calls it for four instances. A result is in range, or a fault
/// with a message; a saved state can be restored.
pub fn call_a_few_times(plugin: &dyn Plugin, limits: &Limits) {
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
            if let Err(fault) = GuestCall::plausible(kind, 4, item).run(&mut *guest, &ties()) {
                assert!(!fault.to_string().is_empty());
            }
        }
        if let (Ok(state), Ok(mut other)) = (guest.save(), start()) {
            let _ = other.restore(&state);
        }
    }
}
