//! The contract of the embedded API, asked of a real API server: the same tables, each case in a namespace of its own.

use contract::{Case, read_cases, run_case, tables};
use futures::{StreamExt, stream};
use testbed::ControlPlane;

mod real;

use real::Real;

/// Most of a case is waiting: for a watch to end, for the store.
const AT_ONCE: usize = 8;

#[test]
fn a_real_api_server_keeps_the_contract() {
    if !testbed::is_wanted() {
        return;
    }
    let _turn = crate::turn();
    // Without controllers, nothing is added to a new namespace.
    let control_plane = ControlPlane::start(&[]).unwrap();
    let cases: Vec<(String, Case)> = tables()
        .into_iter()
        .flat_map(|table| read_cases(&table).into_iter().map(move |case| (table.clone(), case)))
        .filter(|(_, case)| !case.embedded_only)
        .collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let failed: Vec<String> = runtime.block_on(async {
        let real = Real::new(control_plane.client_without_retries("contract").await.unwrap()).await;
        let real = &real;
        let outcomes = stream::iter(&cases).map(|(table, case)| async move {
            let outcome = run_case(real, case).await;
            outcome.err().map(|wrong| format!("{table}: {}: {wrong}", case.name))
        });
        outcomes
            .buffered(AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await
    });
    assert!(
        failed.is_empty(),
        "{} of {} cases failed:\n{}",
        failed.len(),
        cases.len(),
        failed.join("\n")
    );
}
