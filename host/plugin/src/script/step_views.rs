//! The arguments of scripts that are steps of one routing pipeline: made once for each decision, with the columns that any of
//! them uses.

use std::sync::Arc;

use blis_sim::policy::{BlockIds, ClusterView, RequestView};

use super::values::NameTexts;
use super::views::{ClusterFields, ClusterObject, RequestFields, RequestObject, UsedFields};

/// The views of the latest decision; the next one uses their memory again.
#[derive(Debug, Default)]
pub(super) struct StepViews {
    latest: Option<LatestStepViews>,
}

#[derive(Debug)]
struct LatestStepViews {
    decision: u64,
    /// The union of what the scripts so far use.
    used_fields: UsedFields,
    block_ids: BlockIds,
    names: NameTexts,
    arguments: (RequestObject, ClusterObject),
}

impl StepViews {
    /// The arguments about `request` in decision number `decision` for a script that uses `used_fields`.
    pub fn of(
        &mut self,
        decision: u64,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        used_fields: &UsedFields,
        names: &NameTexts,
    ) -> &(RequestObject, ClusterObject) {
        let suits = |latest: &LatestStepViews| {
            latest.used_fields.cover(used_fields)
                && latest.block_ids == request.block_ids()
                && Arc::ptr_eq(&latest.names, names)
        };
        let latest = match self.latest.take() {
            Some(latest) if latest.decision == decision && suits(&latest) => latest,
            Some(latest) if suits(&latest) => latest.updated(decision, request, cluster),
            other => {
                let all = other.map_or(*used_fields, |other| other.used_fields.and(used_fields));
                LatestStepViews::new(decision, request, cluster, all, names)
            }
        };
        &self.latest.insert(latest).arguments
    }
}

impl LatestStepViews {
    fn new(
        decision: u64,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        used_fields: UsedFields,
        names: &NameTexts,
    ) -> Self {
        let mut columns = ClusterFields::default();
        columns.update(Some(request), cluster, &used_fields);
        let request_fields = request_fields(request, cluster, &used_fields, names);
        Self {
            decision,
            used_fields,
            block_ids: request.block_ids(),
            names: Arc::clone(names),
            arguments: (RequestObject(Arc::new(request_fields)), ClusterObject(Arc::new(columns))),
        }
    }

    /// The same for another decision. A view that a script has kept stays unchanged.
    fn updated(mut self, decision: u64, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Self {
        let (RequestObject(fields), ClusterObject(columns)) = &mut self.arguments;
        let new = request_fields(request, cluster, &self.used_fields, &self.names);
        match Arc::get_mut(fields) {
            Some(own) => *own = new,
            None => *fields = Arc::new(new),
        }
        Arc::make_mut(columns).update(Some(request), cluster, &self.used_fields);
        Self { decision, ..self }
    }
}

fn request_fields(
    request: &RequestView<'_>,
    cluster: &ClusterView<'_>,
    used_fields: &UsedFields,
    names: &NameTexts,
) -> RequestFields {
    let tenant_in_flight = cluster.tenant_in_flight(request.tags.tenant);
    RequestFields::new(request, cluster.now, Some(tenant_in_flight), used_fields, names)
}
