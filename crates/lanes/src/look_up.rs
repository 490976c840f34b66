//! Names that rules look up.

use super::local::Local;
use manylane_plan::generation::{Order, Question};
use manylane_sync::Arc;
use std::net::IpAddr;
use std::time::Duration;

/// Longest wait of a rule, in addition to the section's own attempts.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait of a rule, including the section's attempts.
const LONGEST_LOOK_UP: Duration = Duration::from_secs(60);

impl Local {
    /// Returns the address that a rule asks for; `None` if there is none or it is not known in time.
    pub async fn look_up(&self, section: usize, question: Arc<Question>) -> Option<IpAddr> {
        let section = &self.generation.resolvers[section];
        if !section.order(Order::Ask(question.clone())) {
            return None;
        }
        // Each attempt queries both families.
        let tries = section.settings.retry.saturating_mul(section.settings.retries.max(1).saturating_mul(2));
        let timeout = tries.saturating_add(TIMEOUT).min(LONGEST_LOOK_UP);
        self.here().timeout(timeout, question.answered()).await.ok().flatten()
    }
}
