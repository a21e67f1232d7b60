//! What the steps of a routing pipeline share.

use std::any::Any;
use std::fmt;

/// Memory that the steps of a pipeline share, so that what several of them need about one decision is made once: scripts
/// keep the columns that they read here.
///
/// A copy is empty, since the steps make anew what they need.
#[derive(Default)]
pub struct StepMemory {
    decision: u64,
    shared: Option<Box<dyn Any + Send>>,
}

impl StepMemory {
    /// Begins another decision: what the steps keep is about an earlier one.
    pub fn begin(&mut self) {
        self.decision += 1;
    }

    /// Number of the decision, from 1 on; 0 where a step is asked by itself.
    #[must_use]
    pub fn decision(&self) -> u64 {
        self.decision
    }

    /// What the steps keep that share a `T`: the default at first, and where the latest steps shared another type.
    pub fn shared<T: Any + Send + Default>(&mut self) -> &mut T {
        if !self.shared.as_ref().is_some_and(|shared| shared.is::<T>()) {
            self.shared = None;
        }
        let shared = self.shared.get_or_insert_with(|| Box::new(T::default()));
        shared.downcast_mut().expect("it is one, or was made a moment ago")
    }
}

impl Clone for StepMemory {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for StepMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepMemory").field("decision", &self.decision).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_share_one_value_of_their_type() {
        let mut memory = StepMemory::default();
        *memory.shared::<u32>() += 1;
        *memory.shared::<u32>() += 1;
        assert_eq!((*memory.shared::<u32>(), *memory.clone().shared::<u32>()), (2, 0));
        memory.shared::<String>().push('a');
        assert_eq!(memory.shared::<String>(), "a");
        assert_eq!(*memory.shared::<u32>(), 0);
    }
}
